"""Running totals: a reduction of all places up to one's own is made in one go along its axis.

    y[i, j] = sum over k of (x[i, k] if k <= j else 0)
      -->  total = 0
           for j:
               total = total + x[i, j]
               y[i, j] = total

A guard that compares the term of the reduction with an axis of the result, and nothing else that
depends on that axis, says that a place reduces what those before it do, and a term more.  Axes
behind it are lanes, each of which has a total; where there are none, several rows go side by side.
Totals from the end back join terms in another order than they come: for those who allow that.

>>> from plica.ir.loop.scalar import Lit
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (9,), f32)
>>> upto = stage("y", (9,), lambda i: reduce(
...     "sum", (9,), lambda k: sc.Select(sc.Le(k, i), x[k], Lit(0.0, f32))))
>>> made = running_form(stages((x,), (upto,)), Machine(512, 32))
>>> [type(each).__name__ for each in made.stages]
['ExternStage']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, loads, pairs, reductions, stages, with_element
from plica.ir.loop.statement import Alloc, For, LoopKind, Stmt, Store, seq
from plica.ir.type.dim import known, polynomial
from plica.schedule.default.machine import Machine

SIDE_BY_SIDE: Final = 4
"""Rows whose totals are under way at once: an addition takes as many cycles to come through."""

NEAR: Final = 256
"""Totals of so many lanes are in registers."""

WIDE: Final = 2048
"""Totals of so many lanes stay in the nearest cache from one place to the next."""

SHORT: Final = 8
"""Results of so few places before stay near without totals beside them: half of what is written.
With more of them some processors no longer keep what is only written."""

SHARED: Final = 1 << 15
"""Fewer elements than that are not worth waking other cores."""


@frozen(eq=False)
class RunningTotal:
    """A reduction of the places before, or behind, one's own along an axis; with it, or without."""

    fold: Each
    epilogue: Each | None
    out: sc.Buffer
    axis: sc.ScalarVar
    term: sc.ScalarVar
    value: sc.Scalar
    backwards: bool
    exclusive: bool

    def stored(self, total: sc.Scalar) -> Stmt:
        """What is done with the total of a place, which the axes of the reduction say."""
        fold, epilogue = self.fold, self.epilogue
        if epilogue is None:
            return Store(self.out, fold.axes, total)
        (read,) = [load for load in loads(epilogue.value) if load.buffer is fold.out]
        places: dict[Term, Term] = {
            e: a for e, a in zip(read.indices, fold.axes, strict=True) if e is not sc.index(0)
        }
        places |= {each: sc.index(0) for each in epilogue.axes if each not in places}
        value = substitute(with_element(epilogue.value, fold.out, total), places)
        indices = [places[each] for each in epilogue.axes]
        return Store(self.out, tuple(indices), value)  # type: ignore[arg-type]  # places are scalars


def running_form(of: Stages, machine: Machine, *, backwards: bool = False) -> Stages | None:
    """Stages of running totals with the loops they should have, None where they are none."""
    found = running_total(of)
    if found is None or found.backwards != backwards:
        return None
    body = _Writer(found, Names(of), machine).body(found.stored)
    return stages(of.inputs, (ExternStage((of.result,), body),))


def running_total(of: Stages) -> RunningTotal | None:
    """What running total some stages are, if they are one, and what becomes of its places."""
    every = pairs(of) if all(isinstance(each, Each) for each in of.stages) else []
    if len(every) != 1 or of.dims:
        return None
    ((fold, epilogue),) = every
    return _running(fold, epilogue, of.result)


def _running(of: Each, epilogue: Each | None, out: sc.Buffer) -> RunningTotal | None:
    body = of.value
    if not isinstance(body, sc.Reduce) or body.runs or len(body.axes) != 1:
        return None
    (term,), (extent,) = body.axes, body.extents
    start, _ = MEANING[body.combiner]
    match body.body:
        case sc.Select(sc.Le() | sc.Lt() as within, value, other) if other is start(
            sc.dtype_of(body)
        ):
            pass
        case _:
            return None
    ahead = dict(polynomial(within.right - within.left).values())
    gap = -ahead.pop((), 0) + isinstance(within, sc.Lt)
    sizes = dict(zip(of.axes, of.out.shape, strict=True))
    axes = [each for each in sizes if (each,) in ahead]
    if len(axes) != 1 or len(ahead) != 2 or gap not in (0, 1) or reductions(value):
        return None
    (axis,) = axes
    sign = ahead[axis,]
    if sizes[axis] is not extent or axis in free_vars(value) or known(extent) == 0:
        return None
    if abs(sign) != 1 or ahead.get((term,)) != -sign:
        return None
    return RunningTotal(of, epilogue, out, axis, term, value, sign < 0, bool(gap))


class _Writer:
    """The loops of a running total under construction."""

    def __init__(self, found: RunningTotal, names: Names, machine: Machine) -> None:
        of = found.fold
        assert isinstance(of.value, sc.Reduce)
        self.found, self.names = found, names
        self.start, self.join = MEANING[of.value.combiner]
        self.dtype = sc.dtype_of(of.value)
        at = of.axes.index(found.axis)
        self.sizes = {a: known(n) or 0 for a, n in zip(of.axes, of.out.shape, strict=True)}
        self.rows, self.lanes = list(of.axes[:at]), list(of.axes[at + 1 :])
        # Lanes do not ask for each other: with too many of them the first axes go around.
        while self._count(self.lanes) > WIDE and self._count(self.lanes[1:]) >= NEAR:
            self.rows.append(self.lanes.pop(0))
        self.shares = machine.cores > 1 and prod(self.sizes.values()) >= SHARED

    def _count(self, axes: Sequence[sc.ScalarVar]) -> int:
        return prod([self.sizes[each] for each in axes])

    def body(self, stored: Callable[[sc.Scalar], Stmt]) -> Stmt:
        """All rows; of those that have no lanes several at once, of many lanes some at a time."""
        rows = list(self.rows)
        counts = [self.sizes[each] for each in rows]
        many = 1
        if not self.lanes and rows and counts[-1] % SIDE_BY_SIDE == 0:
            many = SIDE_BY_SIDE
        inner = [(a, self.sizes[a]) for a in self.lanes]
        if len(inner) == 1 and inner[0][1] > WIDE:
            body = self.pieces(*inner[0], stored)
        elif many == 1:
            body = self.along(inner, stored, {})
        else:
            one, beside = rows[-1], self.names.var("u")
            outer = self.names.var("r")
            rows[-1], counts[-1] = outer, counts[-1] // many
            body = self.along([(beside, many)], stored, {one: outer * many + beside})
        for at in reversed(range(len(rows))):
            first = at == next((n for n, size in enumerate(counts) if size > 1), None)
            kind: LoopKind = "parallel" if self.shares and first else "serial"
            body = For(rows[at], sc.index(counts[at]), kind, body)
        return body

    def pieces(self, lane: sc.ScalarVar, size: int, stored: Callable[[sc.Scalar], Stmt]) -> Stmt:
        """A long row of lanes, so many at a time."""
        piece, beside, last = (self.names.var(each) for each in ("c", "u", "u"))
        whole, left = divmod(size, WIDE)
        alone = self.shares and self._count(self.rows) == 1
        some = self.along([(beside, WIDE)], stored, {lane: piece * WIDE + beside})
        parts: list[Stmt] = [For(piece, sc.index(whole), "parallel" if alone else "serial", some)]
        if left:
            parts.append(self.along([(last, left)], stored, {lane: last + whole * WIDE}))
        return seq(*parts)

    def along(
        self,
        inner: Sequence[tuple[sc.ScalarVar, int]],
        stored: Callable[[sc.Scalar], Stmt],
        where: dict[Term, Term],
    ) -> Stmt:
        """The totals of all inner places, from one end of the axis to the other."""
        found, size = self.found, self.sizes[self.found.axis]
        shape = tuple([sc.index(size) for _, size in inner]) or (sc.index(1),)
        scope = "local" if prod([size for _, size in inner]) <= NEAR else "global"
        if scope == "global" and found.epilogue is None and size <= SHORT:
            return self.in_result(inner, where)
        total = sc.Buffer(self.names.name("total"), shape, self.dtype, scope)
        own: tuple[sc.Scalar, ...] = tuple([axis for axis, _ in inner]) or (sc.index(0),)
        step = self.names.var("t")
        place = sc.index(size - 1) - step if found.backwards else step
        at: dict[Term, Term] = {found.axis: place, found.term: place, **where}
        read = substitute(found.value, at)
        add = Store(total, own, self.join(sc.Load(total, own), read))
        keep = substitute(stored(sc.Load(total, own)), at)
        unrolled = bool(where) and not self.lanes
        first, then = (keep, add) if found.exclusive else (add, keep)
        both = [seq(first, then)] if scope == "global" else [first, then]  # totals are read once
        parts = [self.inside(inner, each, unrolled) for each in both]
        begin = self.inside(inner, Store(total, own, self.start(self.dtype)), unrolled)
        if not found.exclusive:
            return Alloc(total, seq(begin, For(step, sc.index(size), "serial", seq(*parts))))
        every = For(step, sc.index(size - 1), "serial", seq(*parts))  # the last term is in no total
        last = self.inside(inner, substitute(keep, {step: sc.index(size - 1)}), unrolled)
        return Alloc(total, seq(begin, *([every] if size > 1 else []), last))

    def in_result(self, inner: Sequence[tuple[sc.ScalarVar, int]], where: dict[Term, Term]) -> Stmt:
        """The totals of many inner places, which are read from the result of the place before."""
        found, size = self.found, self.sizes[self.found.axis]
        step = self.names.var("t")

        def at(place: sc.Scalar) -> dict[Term, Term]:
            there = sc.index(size - 1) - place if found.backwards else place
            return {found.axis: there, found.term: there, **where}

        def result(place: sc.Scalar) -> sc.Load:
            read = substitute(sc.Load(found.out, found.fold.axes), at(place))
            assert isinstance(read, sc.Load)
            return read

        def stored(place: sc.Scalar, total: sc.Scalar) -> Stmt:
            return self.inside(inner, Store(found.out, result(place).indices, total), False)

        zero, start = sc.index(0), self.start(self.dtype)
        first = start if found.exclusive else self.join(start, substitute(found.value, at(zero)))
        term = substitute(found.value, at(step if found.exclusive else step + 1))
        every = stored(step + 1, self.join(result(step), term))
        rest = [For(step, sc.index(size - 1), "serial", every)] if size > 1 else []
        return seq(stored(zero, first), *rest)

    def inside(self, inner: Sequence[tuple[sc.ScalarVar, int]], body: Stmt, unrolled: bool) -> Stmt:
        """A statement for each inner place, by axes of its own."""
        last = len(inner) - 1
        own: dict[Term, Term] = {axis: self.names.var("j") for axis, _ in inner}
        made = substitute(body, own)
        for at, (axis, size) in reversed(list(enumerate(inner))):
            kind: LoopKind = "unrolled" if unrolled else "vectorized" if at == last else "serial"
            made = For(own[axis], sc.index(size), kind, made)  # type: ignore[arg-type]  # variables for variables
        return made
