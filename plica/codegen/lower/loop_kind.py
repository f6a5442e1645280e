"""Kinds of loops: which are written out, which can be vectors, which copies are a loop after all.

Unroll: expands requested loops to one copy of the body per iteration.

    for i in unrolled(2, unroll_explicit=True):         A[0] = B[0]
        A[i] = B[i]                             -->     A[1] = B[1]

Other unrolled loops stay: the code generator expands them without building terms. Refused: a loop
with a non-constant or too large extent, and a thread loop, which may contain barriers.

Vectorise: checks the requirements of a vector loop.

Roll: turns code over a register tile back into loops over it.

    for i in unrolled(13):                          for i in unrolled(13):
        for j in vectorized(16):                        for j in vectorized(16):
            out[r + i, j] = erf(acc[i, j])    -->           held[i, j] = acc[i, j]
                                                    for i in range(6):
                                                        for beside in unrolled(2):
                                                            for j in vectorized(16):
                                                                out[…] = erf(held[…, j])
                                                    …

Registers cannot be indexed by a loop, so the tile is stored in between; transposes for the store
happen before. A formula is a few dozen instructions: repeating it per register dominates the code
size and compile time of a kernel. Short code stays unrolled: a bias shared by rows, a clamp. For
fast compilation, tiles that no innermost loop touches are in memory, and their loops are rolled
wherever that is shorter at all.

Laws: the kernel means the same; doing it twice changes nothing.
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import evolve, frozen

from plica.analysis.statement import mapped, reads_memory, refused, walked, with_body
from plica.core import Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import Names, scalar as sc, statement as st
from plica.ir.loop.formula import FORMULAS
from plica.ir.type import known

MAX_UNROLLED_ITERATIONS: Final = 1024  # how many copies of a body one loop may make


def unroll(kernel: st.Kernel) -> st.Kernel:
    """The kernel with explicitly unrolled loops written out."""
    return with_body(kernel, mapped(kernel.body, _written_out))


def _written_out(stmt: st.Stmt) -> st.Stmt:
    if not isinstance(stmt, st.For) or dict(stmt.annotations).get("unroll_explicit") is not True:
        return stmt
    count = known(stmt.extent)
    message = f"The loop {str(stmt.var.name)!r} cannot be written out."
    if stmt.kind in st.THREADS:  # its iterations run side by side, and may wait for one another
        hint = "Bind another loop, or do not ask for this one to be written out."
        raise refused(message, stmt.var.name, "a loop of one thread", stmt.kind, hint)
    if count is None or count > MAX_UNROLLED_ITERATIONS:
        found = "a symbolic one" if count is None else str(count)
        hint = "Split it first."
        raise refused(
            message, stmt.var.name, f"an extent of at most {MAX_UNROLLED_ITERATIONS}", found, hint
        )
    copies = [
        substitute(stmt.body, {stmt.var: sc.Lit(number, stmt.var.dtype)}) for number in range(count)
    ]
    return st.Seq(tuple(copies))


def vectorise(kernel: st.Kernel) -> st.Kernel:
    """The kernel itself, where all its loops over lanes can be made vectors."""
    for stmt in st.statements(kernel.body):
        if isinstance(stmt, st.For) and stmt.kind == "vectorized":
            _check(stmt)
    return kernel


def _check(loop: st.For) -> None:
    message = f"The loop {str(loop.var.name)!r} cannot be made vectors."
    if known(loop.extent) is None:
        hint = "Split off a loop of a fixed number of lanes."
        raise refused(message, loop.var.name, "an extent that is a number", "a symbolic one", hint)
    for each in st.statements(loop.body):
        if _is_foreign(each):
            kind = type(each).__name__.lower()
            inside = f"{each.kind} loop {each.var.name}" if isinstance(each, st.For) else kind
            found = f"a {inside} inside"
            hint = "Reorder it inside, or split off an innermost loop for the lanes."
            raise refused(message, loop.var.name, "loops, branches and stores inside", found, hint)


def _is_foreign(stmt: st.Stmt) -> bool:
    if isinstance(stmt, st.For):
        return stmt.kind in st.THREADS or stmt.kind in ("parallel", "virtual")
    return isinstance(stmt, st.Barrier | st.While)


# --- copies that are a loop ---------------------------------------------------------------------

MIN_ADJACENT_COPIES: Final = 2
"""The minimum number of adjacent copies (or one more), so that they overlap."""

ADJACENT_BYTES: Final = 128
"""The bytes of registers that stay adjacent: short vectors have the same latency as long ones, so
more of them are in flight."""

ACCESS: Final = 2  # instructions of an access: an address, and the load or store
MOVED: Final = 2 * ACCESS - 1
"""Instructions that move a register to memory: it was read in any case, and has no address."""

FORMULA: Final = 24  # instructions of a short formula
MIN_ROLL_RATIO: Final = 2  # the minimum ratio of instructions that rolling must save


@frozen(eq=False)
class _Nest:
    """Unrolled loops around one store, which may be vectors and under a guard."""

    loops: tuple[st.For, ...]
    store: st.Store
    guard: st.Branch | None

    @property
    def copies(self) -> int:
        """How often the store is written down."""
        return prod([known(loop.extent) or 1 for loop in self.loops if loop.kind == "unrolled"])

    def together(self, soon: bool) -> int:
        """The maximum number of adjacent copies."""
        lanes = prod([known(loop.extent) or 1 for loop in self.loops if loop.kind == "vectorized"])
        widest = max([sc.dtype_of(load).bytes for load in _registers(self.store.value)], default=1)
        return (
            MIN_ADJACENT_COPIES
            if soon
            else max(MIN_ADJACENT_COPIES, ADJACENT_BYTES // (lanes * widest))
        )


def roll(kernel: st.Kernel, *, soon: bool = False) -> st.Kernel:
    """The kernel with operations on tiles rolled into loops; for fast compilation, all loops but
    the innermost ones."""
    names = Names(kernel)
    if soon:
        kernel = _with_cold_tiles(kernel)

    def down(stmt: st.Stmt, done: bool) -> tuple[st.Stmt, tuple[bool, ...]]:
        if not done and isinstance(stmt, st.For) and stmt.kind == "unrolled":
            done = True  # nothing inside is a nest of its own
            if (nest := _nest(stmt)) is not None and _pays(nest, soon):
                stmt = _rolled(nest, names, nest.together(soon))
        return stmt, (done,) * len(st.substatements(stmt))

    return with_body(kernel, walked(kernel.body, False, down))


def _nest(outer: st.For) -> _Nest | None:
    """The loops around one store to memory, or None if they contain more."""
    loops: list[st.For] = []
    inside: st.Stmt = outer
    while isinstance(inside, st.For) and known(inside.extent) is not None:
        if inside.kind not in ("unrolled", "vectorized") or inside.annotations:
            return None
        loops.append(inside)
        inside = inside.body
    guard = inside if isinstance(inside, st.Branch) and inside.orelse is st.NOTHING else None
    store = inside if guard is None else guard.then
    if not isinstance(store, st.Store) or store.buffer.scope == "local":
        return None
    nest = _Nest(tuple(loops), store, guard)
    return nest if _is_plain(nest) else None


def _is_plain(nest: _Nest) -> bool:
    """Whether registers are read, at places and under a guard that nothing stored changes."""
    asked = [] if nest.guard is None else [nest.guard.condition]
    asked += [place for read in _registers(nest.store.value) for place in read.indices]
    return not any(map(reads_memory, asked))


def _pays(nest: _Nest, soon: bool) -> bool:
    """Whether a loop is much shorter than the copies."""
    each = ACCESS + sum([_instructions(node, nest) for node in post_order(nest.store.value)])
    moved = nest.copies * MOVED * len(set(_registers(nest.store.value)))
    if not moved and not soon:
        return False
    return nest.copies * each >= (1 if soon else MIN_ROLL_RATIO) * (
        moved + nest.together(soon) * each
    )


def _with_cold_tiles(kernel: st.Kernel) -> st.Kernel:
    """The kernel with tiles in memory that no innermost loop touches and nothing transposes."""
    own = {each.buffer for each in st.statements(kernel.body) if isinstance(each, st.Alloc)}
    kept = {
        buffer
        for stmt in st.statements(kernel.body)
        if isinstance(stmt, st.For)
        for buffer in (_touched(stmt) if _is_innermost(stmt) else _strided_buffers(stmt))
    }
    cold = {each: evolve(each, scope="global") for each in own - kept if each.scope == "local"}
    if not cold:
        return kernel

    def change(node: Term) -> Term:
        match node:
            case sc.Load(buffer, indices) if buffer in cold:
                return sc.Load(cold[buffer], indices)
            case st.Store(buffer, indices, value) if buffer in cold:
                return st.Store(cold[buffer], indices, value)
            case st.Alloc(buffer, body) if buffer in cold:
                return st.Alloc(cold[buffer], body)
            case _:
                return node

    return with_body(kernel, map_bottom_up(change, kernel.body))


def _is_innermost(loop: st.For) -> bool:
    """Whether a loop is counted, and none inside is."""
    inside = [statement for statement in st.statements(loop) if isinstance(statement, st.For)]
    return [each for each in inside if each.kind in ("serial", "parallel")] == [loop]


def _touched(stmt: st.Stmt) -> set[sc.Buffer]:
    return {e.buffer for e in post_order(stmt) if isinstance(e, sc.Load | st.Store)}


def _strided_buffers(loop: st.For) -> set[sc.Buffer]:
    """The buffers that vectors read with strides."""
    if loop.kind != "vectorized":
        return set()
    reads = [each for each in post_order(loop.body) if isinstance(each, sc.Load)]
    return {e.buffer for e in reads if any(loop.var in free_vars(at) for at in e.indices[:-1])}


def _instructions(node: Term, nest: _Nest) -> int:
    """The instructions that a part of a value adds to each copy; shared parts add none."""
    if isinstance(node, sc.Load):
        free = free_vars(node)
        return ACCESS * all(loop.var in free for loop in nest.loops if loop.kind == "unrolled")
    if not isinstance(node, sc.Scalar) or isinstance(node, sc.Lit | sc.ScalarVar):
        return 0
    if isinstance(node, sc.Pow) or (isinstance(node, sc.Intrinsic) and node.name in FORMULAS):
        return FORMULA
    return int(sc.dtype_of(node).is_float)


def _rolled(nest: _Nest, names: Names, together: int) -> st.Stmt:
    """The nest as a loop over what it reads of registers, which is written down before."""
    reads = dict.fromkeys(_registers(nest.store.value))
    extents = [known(loop.extent) or 0 for loop in nest.loops]
    if nest.loops[-1].kind == "vectorized":  # rows begin where vectors do
        extents[-1] = 1 << (extents[-1] - 1).bit_length()
    shape = tuple([sc.index(extent) for extent in extents])
    at = tuple([loop.var for loop in nest.loops])
    held = {read: sc.Buffer(names.name("held"), shape, read.buffer.dtype) for read in reads}
    fills = [_around(nest, st.Store(held[read], at, _or_nothing(nest, read))) for read in reads]
    there = {load: sc.Load(buffer, at) for load, buffer in held.items()}
    value = map_bottom_up(lambda node: there.get(node, node), nest.store.value)  # type: ignore[call-overload]  # loads are terms
    assert isinstance(value, sc.Scalar)
    whole = st.Store(nest.store.buffer, nest.store.indices, value)
    body = st.seq(*fills, _counted(nest, _guarded(nest, whole), names, together))
    return st.allocated(body, held.values())


def _registers(value: sc.Scalar) -> list[sc.Load]:
    return [n for n in post_order(value) if isinstance(n, sc.Load) and n.buffer.scope == "local"]


def _or_nothing(nest: _Nest, read: sc.Load) -> sc.Scalar:
    """A load where the guard holds, else 0: inactive lanes are computed with the others, and on
    leftover memory contents, often subnormal numbers, that takes 100 times as long on some
    processors."""
    if nest.guard is None:
        return read
    return sc.Select(nest.guard.condition, read, sc.Lit(0, read.buffer.dtype))


def _guarded(nest: _Nest, store: st.Store) -> st.Stmt:
    return store if nest.guard is None else st.Branch(nest.guard.condition, store, st.NOTHING)


def _counted(nest: _Nest, body: st.Stmt, names: Names, together: int) -> st.Stmt:
    """The nest with counted loops, except for the innermost adjacent copies.

    A single copy has no overlap. A loop with more copies than may be adjacent processes several at
    a time, followed by the remainder.
    """
    room = together
    for loop in reversed(nest.loops):
        count = known(loop.extent) or 1
        if loop.kind != "unrolled":
            body = st.For(loop.var, loop.extent, loop.kind, body)
        elif room < MIN_ADJACENT_COPIES:
            body = st.For(loop.var, loop.extent, "serial", body)
        elif count <= room + 1:
            room //= count
            body = st.For(loop.var, loop.extent, "unrolled", body)
        else:
            parts = [part for part in range(MIN_ADJACENT_COPIES, room + 1) if count % part == 0]
            body = _some_at_a_time(loop, max(parts, default=room), body, names)
            room = 1
    return body


def _some_at_a_time(loop: st.For, some: int, body: st.Stmt, names: Names) -> st.Stmt:
    """The copies of a loop, several at a time, then the remainder."""
    turns, left = divmod(known(loop.extent) or 1, some)
    counted, copy = (names.var(str(loop.var.name)) for _ in range(2))
    inner = st.For(
        copy, sc.index(some), "unrolled", substitute(body, {loop.var: counted * some + copy})
    )
    whole = st.For(counted, sc.index(turns), "serial", inner)
    if not left:
        return whole
    rest = substitute(body, {loop.var: copy + sc.index(turns * some)})
    return st.seq(whole, st.For(copy, sc.index(left), "unrolled", rest))


def _around(nest: _Nest, body: st.Stmt) -> st.Stmt:
    for loop in reversed(nest.loops):
        body = st.For(loop.var, loop.extent, loop.kind, body)
    return body
