"""All-reduce: a reduction across threads becomes a sum of one's own, then a tree.

    for t in threadIdx.x(6):                    for t in threadIdx.x(6):
        for k in range(n):                          acc = 0
            with block(r=k * 6 + t (reduce)):       for k in range(n): acc += A[k * 6 + t]
                init: C[0] = 0            -->       part[t] = acc;            barrier
                C[0] += A[r]                        if t < 3: part[t] += part[t + 3];  barrier
                                                    if t < 1: part[t] += part[t + 2];  barrier
                                                    if t < 1: part[t] += part[t + 1];  barrier
                                                    if t == 0: C[0] = 0 + part[0]

Any number of threads works. If the threads are those of whole warps along `threadIdx.x`, or a power
of two that fits into one (with rows along other axes), a warp combines its parts by shuffles
(`lanes_join`), and only the results of warps go through shared memory. The order of additions
changes: for floats the contract is `reassociates`.

The total starts with the init, or, if the chain has only later terms, with the current value.

Law: the kernel means the same.  Refused: a block that is no plain reduction, loops that serve
both its elements and its terms, or a loop of its terms around that over the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from attrs import frozen

from plica.analysis.index import EMPTY, can_prove, simplify
from plica.analysis.index.context import conjuncts
from plica.analysis.site import distinct, map_of
from plica.analysis.statement import refused, walked, with_body, with_substatements
from plica.core import Name, Term, free_vars, fresh, substitute
from plica.ir.loop import MEANING, Buffer, Load, Lt, Scalar, ScalarVar, index, statement as st
from plica.ir.loop.memory_scope import WARP, scope
from plica.ir.loop.scalar import And, Cast, Combiner, Eq
from plica.ir.type import DType, bf16, f16, f32, known
from plica.schedule.default.gpu.warp_meaning import JOINED, SHUFFLED, lanes_joined

WORDS: Final[dict[type, Combiner]] = {join: word for word, (_, join) in MEANING.items()}  # type: ignore[misc]  # the joins are node classes


def allreduce(kernel: st.Kernel) -> st.Kernel:
    """The kernel without reductions across threads."""
    kernel = distinct(kernel)
    used = set(map_of(kernel).names)
    block = ThreadExtents.of(kernel)

    def down(
        stmt: st.Stmt, around: tuple[st.For, ...]
    ) -> tuple[st.Stmt, tuple[tuple[st.For, ...], ...]]:
        lane = isinstance(stmt, st.For) and stmt.kind.startswith("threadIdx")
        inner = (*around, stmt) if lane else around
        return stmt, (inner,) * len(st.substatements(stmt))  # type: ignore[return-value]  # a lane is a loop

    def up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], around: tuple[st.For, ...]) -> st.Stmt:
        new = with_substatements(stmt, parts)
        if isinstance(new, st.For) and new.kind.startswith("threadIdx"):
            chain = _chain(new)
            if chain is not None:
                _check(chain, kernel.dims)
                return _lowered(chain, around, used, block)
        return new

    start: tuple[st.For, ...] = ()
    return with_body(kernel, walked(kernel.body, start, down, up))


@frozen
class ThreadExtents:
    """The numbers of threads along `threadIdx.x`, and along each of the other axes."""

    along: frozenset[int]
    others: frozenset[tuple[str, int]]

    @staticmethod
    def of(kernel: st.Kernel) -> ThreadExtents:
        """Those of a kernel."""
        loops = [each for each in st.statements(kernel.body) if isinstance(each, st.For)]
        threads = [loop for loop in loops if loop.kind.startswith("threadIdx")]
        along = [known(thread.extent) or 0 for thread in threads
                 if thread.kind == "threadIdx.x" and known(thread.extent) != 1]  # fmt: skip
        rest = [(thread.kind, known(thread.extent) or 0) for thread in threads
                if thread.kind != "threadIdx.x" and known(thread.extent) != 1]  # fmt: skip
        return ThreadExtents(frozenset(along), frozenset(rest))

    def width(self, lane: st.For, around: Sequence[st.For]) -> int | None:
        """How many neighbours of a thread loop are in one warp and converged."""
        threads = known(lane.extent) or 0
        if lane.kind != "threadIdx.x" or threads < 2:
            return None
        if threads % WARP == 0 and not (self.others and any(each % WARP for each in self.along)):
            return WARP
        # Adjacent rows share a warp if all threads of a block are in them.
        here = [(loop.kind, known(loop.extent) or 0) for loop in around if known(loop.extent) != 1]
        alike = self.along == {threads} and sorted(here) == sorted(self.others)
        return threads if alike and WARP % threads == 0 else None


@frozen(eq=False)
class ReductionChain:
    """A loop over threads, loops inside, and a block that reduces across the threads."""

    lane: st.For
    loops: tuple[st.For, ...]
    block: st.Block

    def bound(self, *, reducing: bool) -> frozenset[Term]:
        """The variables that its reduce variables follow, or the others."""
        pairs = zip(self.block.bindings, self.block.kinds, strict=True)
        chosen = [free_vars(scalar) for scalar, kind in pairs if (kind == "reduce") == reducing]
        return frozenset[Term]().union(*chosen)


def _chain(lane: st.For) -> ReductionChain | None:
    loops: list[st.For] = []
    inside = lane.body
    while isinstance(inside, st.For) and inside.kind in ("serial", "unrolled"):
        loops.append(inside)
        inside = inside.body
    if not isinstance(inside, st.Block):
        return None
    chain = ReductionChain(lane, tuple(loops), inside)
    return chain if lane.var in chain.bound(reducing=True) else None


@frozen(eq=False)
class Update:
    """`into[indices] = join(into[indices], value)`, from `start`."""

    into: Buffer
    indices: tuple[Scalar, ...]
    word: Combiner
    start: Scalar
    value: Scalar

    def join(self, old: Scalar, new: Scalar) -> Scalar:
        return MEANING[self.word][1](old, new)


def _update(chain: ReductionChain) -> Update:
    """The update of a reduction block, in terms of its loops."""
    block = chain.block
    body, init = block.body, block.init
    if isinstance(body, st.Store) and isinstance(init, st.Store):
        old = Load(body.buffer, body.indices)
        word = WORDS.get(type(body.value))
        same = init.buffer is body.buffer and init.indices == body.indices
        sides = body.value._children
        if word is not None and same and old in sides:
            value = sides[1] if sides[0] is old else sides[0]
            if isinstance(value, Scalar) and body.buffer not in free_vars(value):
                values = dict(zip(block.vars, block.bindings, strict=True))
                parts = (*body.indices, init.value, value)
                *indices, start, term = [substitute(part, values) for part in parts]
                if not _begins(chain):
                    start = Load(body.buffer, tuple(indices))
                return Update(body.buffer, tuple(indices), word, start, term)
    message = f"The block {str(block.label)!r} cannot be reduced across threads."
    expected = f"an init, and an update by one of {', '.join(MEANING)}"
    hint = "Bind a loop that it does not reduce to the threads."
    raise refused(message, block.label, expected, "another body", hint)


def _begins(chain: ReductionChain) -> bool:
    """Whether a chain includes the first terms of a reduction, so that its init runs; False if it
    does not, as in later parts made by `loop_partition`."""
    loops = (chain.lane, *chain.loops)
    pairs = zip(chain.block.bindings, chain.block.kinds, strict=True)
    terms = [scalar for scalar, kind in pairs if kind == "reduce"]
    first = dict.fromkeys([loop.var for loop in loops], index(0))
    if all(known(simplify(substitute(term, first))) == 0 for term in terms):
        return True
    context = EMPTY
    for loop in loops:
        context = context.loop(loop.var, loop.extent)
    if any(can_prove(Lt(index(0), term), context) for term in terms):
        return False
    message = f"The block {str(chain.block.label)!r} cannot be reduced across threads."
    expected = "loops that begin with its first term, or surely after it"
    raise refused(message, chain.block.label, expected, "loops of which neither is shown")


@frozen(eq=False)
class Joined:
    """How threads join their parts: in which buffers, by which steps, and where the whole is."""

    buffers: tuple[Buffer, ...]
    steps: tuple[st.Stmt, ...]
    whole: Scalar


def _lowered(
    chain: ReductionChain, around: tuple[st.For, ...], used: set[Name], block: ThreadExtents
) -> st.Stmt:
    lane, update = chain.lane, _update(chain)
    terms = chain.bound(reducing=True)
    spatial = [each for each in chain.loops if each.var not in terms]
    reducing = [each for each in chain.loops if each.var in terms]
    start, _ = MEANING[update.word]
    dtype = update.into.dtype
    own = Buffer(_name("acc", used), (index(1),), dtype, "local")
    inside = {each.var for each in reducing} | {lane.var}
    said = conjuncts(chain.block.predicate)
    each_term = [scalar for scalar in said if not free_vars(scalar).isdisjoint(inside)]
    each_element = [scalar for scalar in said if scalar not in each_term]
    add: st.Stmt = st.Store(own, (index(0),), update.join(own[0], update.value))
    if said:
        add = st.Branch(reduce(And, said), add, st.NOTHING)
    for loop in reversed(reducing):
        add = st.For(loop.var, loop.extent, loop.kind, add, loop.annotations)
    shuffled = update.word in JOINED and _shuffled_dtype(update.word, dtype) is not None
    width = block.width(lane, around) if shuffled else None
    private = scope(update.into.scope).reach == "thread"
    if width is None:
        joined = _tree(update, own, around, lane, used)
    else:
        joined = _shuffled(update, own, around, lane, width, used)
    result: st.Stmt = st.Store(update.into, update.indices, update.join(update.start, joined.whole))
    if conditions := [*each_element, *([] if private else [Eq(lane.var, index(0))])]:
        result = st.Branch(reduce(And, conditions), result, st.NOTHING)
    steps = [st.Store(own, (index(0),), start(dtype)), add, *joined.steps, result]
    inner: st.Stmt = st.Seq(tuple(steps))
    for loop in reversed(spatial):
        inner = st.For(loop.var, loop.extent, loop.kind, inner, loop.annotations)
    inner = st.allocated(inner, reversed((*joined.buffers, own)))
    return st.For(lane.var, lane.extent, lane.kind, inner, lane.annotations)


def _tree(
    update: Update, own: Buffer, around: Sequence[st.For], lane: st.For, used: set[Name]
) -> Joined:
    """A tree reduction in shared memory, halving the parts repeatedly.

    All read the first part, which is written again in the next round.
    """
    shape = (*[loop.extent for loop in around], lane.extent)
    part = Buffer(_name("part", used), shape, own.dtype, "shared")
    mine = [loop.var for loop in around]

    def at(place: Scalar) -> Scalar:
        return Load(part, (*mine, place))

    steps: list[st.Stmt] = [st.Store(part, (*mine, lane.var), own[0]), st.Barrier("shared")]
    width = known(lane.extent) or 0
    while width > 1:
        half = (width + 1) // 2
        join = st.Store(part, (*mine, lane.var), update.join(at(lane.var), at(lane.var + half)))
        steps += [
            st.Branch(Lt(lane.var, index(width - half)), join, st.NOTHING),
            st.Barrier("shared"),
        ]
        width = half
    return Joined((part,), tuple(steps), at(index(0)))


def _shuffled(  # noqa: PLR0917  # as a tree, and how wide
    update: Update, own: Buffer, around: Sequence[st.For], lane: st.For, width: int, used: set[Name]
) -> Joined:
    """Parts in registers, which threads of a warp join; then every thread joins those of warps."""
    zero, dtype = index(0), _shuffled_dtype(update.word, own.dtype)
    assert dtype is not None
    start, _ = MEANING[update.word]
    warps = (known(lane.extent) or 0) // width
    place: Scalar = lane.var if warps == 1 else lane.var % width
    shared = width < WARP and bool(around)  # a warp has the threads of several rows
    number = _number(around, lane) % WARP if shared else place
    lanes = index(WARP if shared else width)
    held = Buffer(_name("held", used), (lanes, index(1)), dtype, "warp")
    total = Buffer(_name("total", used), (index(1),), dtype, "local")
    mine = own[0] if dtype is own.dtype else Cast(own[0], dtype)
    steps = [lanes_joined(update.word, held, (number, width), mine, total)]
    whole = total[0] if dtype is own.dtype else Cast(total[0], own.dtype)
    if warps == 1:
        return Joined((held, total), tuple(steps), whole)
    shape = (*[loop.extent for loop in around], index(warps))
    part = Buffer(_name("part", used), shape, own.dtype, "shared")
    rows = [loop.var for loop in around]
    warp = ScalarVar(_name("w", used), lane.var.dtype)
    store = st.Store(part, (*rows, lane.var // width), whole)
    join = st.Store(own, (zero,), update.join(own[0], Load(part, (*rows, warp))))
    steps += [
        st.Branch(Eq(place, zero), store, st.NOTHING),
        st.Barrier("shared"),
        st.Store(own, (zero,), start(own.dtype)),
        st.For(warp, index(warps), "serial", join),
    ]
    return Joined((part, held, total), tuple(steps), own[0])


def _shuffled_dtype(word: Combiner, dtype: DType) -> DType | None:
    """The dtype in which threads of a warp exchange their parts; an extreme is the same in f32."""
    if dtype in SHUFFLED:
        return dtype
    return f32 if word in ("max", "min") and dtype in (f16, bf16) else None


def _number(around: Sequence[st.For], lane: st.For) -> Scalar:
    """The number of a thread in its block."""
    scalar: Scalar = index(0)
    for each in (*sorted(around, key=lambda loop: loop.kind, reverse=True), lane):
        scalar = scalar * each.extent + each.var
    return scalar


def _check(chain: ReductionChain, dims: tuple[ScalarVar, ...]) -> None:
    message = f"The block {str(chain.block.label)!r} cannot be reduced across threads."
    where = chain.block.label
    if known(chain.lane.extent) is None:
        raise refused(message, where, "a number of threads", "a symbolic extent")
    both = chain.bound(reducing=True) & chain.bound(reducing=False)
    if not both.isdisjoint((chain.lane.var, *[loop.var for loop in chain.loops])):
        expected = "loops that serve either the elements or the terms of the reduction"
        raise refused(message, where, expected, "one that serves both")
    terms = chain.bound(reducing=True)
    if not terms <= {chain.lane.var, *[loop.var for loop in chain.loops], *dims}:
        expected = "all loops of its terms inside the loop over threads"
        hint = "Put the loop over threads around it: reorder."
        raise refused(message, where, expected, "one around it", hint)
    if any(not terms.isdisjoint(free_vars(loop.extent)) for loop in chain.loops):
        raise refused(message, where, "extents apart from the reduction", "one that follows it")


def _name(hint: str, used: set[Name]) -> Name:
    name = fresh(Name(hint), used)
    used.add(name)
    return name
