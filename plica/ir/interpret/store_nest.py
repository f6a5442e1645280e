"""Nests: loops that do one store, recognised and written out flat.

    for i: for j: for k: block(vi = i, vj = j, vk = k): init C[vi, vj] = 0; C[vi, vj] += A * B

is a nest: its loops, the guard under which it stores, what and where, and the reset of a reduction,
all in terms of the loops alone.  `plica.ir.interpret.vectorised` runs a nest over arrays at once.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, i = buffer("x", (3,), f32), axis("i")
>>> found = nest(For(i, x.shape[0], "serial", Store(x, (i,), x[i] * 2)))
>>> [str(loop.var.name) for loop in found.loops], found.update is None, found.reads_itself
(['i'], False, True)

Only terms that mean the same, bit by bit, on arrays and on numbers are accepted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from attrs import frozen

from plica.core import Term, free_vars, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar_table import ROWS
from plica.ir.loop.statement import ACCUMULATING, TRUE, Bind, Block, Branch, For, Seq, Stmt, Store
from plica.ir.loop.vector import VECTORS
from plica.ir.type import i64

MAX_LOOPS: Final = 16
_ZERO: Final = sc.Lit(0, i64)


@frozen(eq=False)
class StoreNest:
    """One store under loops.

    Where `guard` holds, `inside` must hold, and `buffer[indices]` becomes `value`; where `reset`
    holds too, it is first set to `start`. `update` is the value as `kind(own element, rest)`.
    """

    loops: tuple[For, ...]
    guard: sc.Scalar
    inside: sc.Scalar
    reset: sc.Scalar | None
    start: sc.Scalar | None
    buffer: sc.Buffer
    indices: tuple[sc.Scalar, ...]
    value: sc.Scalar
    update: (
        tuple[type[sc.Scalar], sc.Scalar, bool] | None
    )  # the operation, the rest, rest on the left
    loads: tuple[sc.Load, ...]
    hidden_loads: bool  # inside reductions, where their places are not known
    outer: tuple[sc.ScalarVar, ...]

    @property
    def reads_itself(self) -> bool:
        """Whether the value depends on the element it replaces."""
        return any(load.buffer is self.buffer for load in self.loads)

    @property
    def terms(self) -> tuple[sc.Scalar, ...]:
        """All scalars of the nest."""
        more = [each for each in (self.reset, self.start) if each is not None]
        return (self.guard, self.inside, *self.indices, self.value, *more)


def nest(loop: For) -> StoreNest | None:
    """The store nest of a loop, or None if it has another form."""
    if (found := _chain(loop)) is None:
        return None
    loops, guard, inside, reset, start, store = found
    terms = [guard, inside, *store.indices, store.value]
    terms += [each for each in (reset, start) if each is not None]
    if not all(_is_exact(each) for each in terms):
        return None
    buffer, own = store.buffer, sc.Load(store.buffer, store.indices)
    others = [guard, inside, *store.indices, *[e for e in (reset, start) if e is not None]]
    if any(buffer in free_vars(each) for each in others):
        return None
    loads, hidden = _loads(terms)
    if any(load.buffer is buffer and load is not own for load in loads):
        return None
    update = _update(store.value, own)
    if start is not None and update is None:
        return None
    variables = {each.var for each in loops}
    outer: dict[sc.ScalarVar, None] = {}
    for term in terms:
        for var in sorted(
            (v for v in free_vars(term) if isinstance(v, sc.ScalarVar)), key=lambda v: v.name
        ):
            if var not in variables:
                outer[var] = None
    return StoreNest(
        loops, guard, inside, reset, start, buffer, store.indices, store.value,
        update, tuple(loads), hidden, tuple(outer),
    )  # fmt: skip


def _chain(loop: For) -> Any:
    """The loops, conditions and store of a statement without anything else."""
    loops: list[For] = []
    known: dict[Term, Term] = {}  # block and bound variables, by the loops'
    guard: sc.Scalar = TRUE
    inside: sc.Scalar = TRUE
    reset: sc.Scalar | None = None
    start: sc.Scalar | None = None
    bound: set[Term] = set()
    stmt: Stmt = loop

    def moved(term: sc.Scalar) -> sc.Scalar:
        return substitute(term, known) if known else term

    while not isinstance(stmt, Store):
        match stmt:
            case For(var, extent, _, body):
                known_extent = moved(extent)
                if len(loops) == MAX_LOOPS or var in bound or _mentions(known_extent, bound):
                    return None
                if known_extent is not extent:
                    return None
                bound.add(var)
                loops.append(stmt)
                stmt = body
            case Block():
                if bound & set(stmt.vars) or any(var in known for var in stmt.vars):
                    return None
                guard = _both(guard, moved(stmt.predicate))
                places = [moved(binding) for binding in stmt.bindings]
                for place, extent in zip(places, stmt.extents, strict=True):
                    here = sc.And(sc.Le(_ZERO, place), sc.Lt(place, moved(extent)))
                    inside = _both(inside, here if guard is TRUE else sc.Or(sc.Not(guard), here))
                for var, place in zip(stmt.vars, places, strict=True):
                    known[var] = place
                    bound.add(var)
                if stmt.init is not None:
                    if not (isinstance(stmt.init, Store) and isinstance(stmt.body, Store)):
                        return None
                    first, then = stmt.init, stmt.body
                    if first.buffer is not then.buffer or first.indices != then.indices:
                        return None
                    reset = TRUE
                    for place, kind in zip(places, stmt.kinds, strict=True):
                        if kind in ACCUMULATING:
                            reset = _both(reset, sc.Eq(place, _ZERO))
                    start = moved(first.value)
                stmt = stmt.body
            case Branch(condition, then_, Seq(())):
                guard = _both(guard, moved(condition))
                stmt = then_
            case Bind(var, value, body) if var not in bound and not _has_loads(value):
                known[var] = moved(value)
                bound.add(var)
                stmt = body
            case _:
                return None
    store = Store(stmt.buffer, tuple([moved(index) for index in stmt.indices]), moved(stmt.value))
    return tuple(loops), guard, inside, reset, start, store


def _both(left: sc.Scalar, right: sc.Scalar) -> sc.Scalar:
    if left is TRUE:
        return right
    return left if right is TRUE else sc.And(left, right)


def _mentions(term: sc.Scalar, variables: set[Term]) -> bool:
    return not isinstance(term, sc.Lit) and not free_vars(term).isdisjoint(variables)


def _has_loads(term: sc.Scalar) -> bool:
    return any(isinstance(var, sc.Buffer) for var in free_vars(term))


def _update(value: sc.Scalar, own: sc.Load) -> tuple[type[sc.Scalar], sc.Scalar, bool] | None:
    """The value as an operation on the store's own element and a rest that does not read it."""
    if type(value) not in sc.BINARY:
        return None
    left, right = value.left, value.right  # type: ignore[attr-defined]  # it is binary
    if left is own and own.buffer not in free_vars(right):
        return type(value), right, False
    if right is own and own.buffer not in free_vars(left):
        return type(value), left, True
    return None


def _loads(terms: list[sc.Scalar]) -> tuple[list[sc.Load], bool]:
    """Each distinct load outside reductions, and whether reductions contain loads."""
    loads: list[sc.Load] = []
    hidden = False
    seen: set[Term] = set()
    stack = list(reversed(terms))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, sc.Reduce):
            hidden = hidden or _has_loads(node)
            # The updated buffer must be loaded where it is used.
            for buffer in sorted(_buffers(node), key=lambda b: b.name):
                loads.append(sc.Load(buffer, tuple([_ZERO] * len(buffer.shape))))
            continue
        if isinstance(node, sc.Load):
            loads.append(node)
            stack.extend(reversed(node.indices))
            continue
        stack.extend([kid for kid in reversed(node._children) if isinstance(kid, sc.Scalar)])
    return loads, hidden


def _buffers(term: sc.Scalar) -> list[sc.Buffer]:
    return [var for var in free_vars(term) if isinstance(var, sc.Buffer)]


@lru_cache(maxsize=4096)
def _is_exact(root: sc.Scalar) -> bool:
    """Whether arrays give the same bits, and all sizes are numbers."""

    def is_exact(node: Term) -> bool:
        match node:
            case sc.Intrinsic(name, args):
                row = ROWS.get(name)
                return row is not None and row.is_exact and sc.dtype_of(args[0]).is_float
            case sc.Reduce(extents=sizes) | sc.Buffer(shape=sizes):
                return all(isinstance(size, sc.Lit) for size in sizes)
            case _:
                return not isinstance(node, (sc.Pow, *VECTORS))

    return all(map(is_exact, post_order(root)))
