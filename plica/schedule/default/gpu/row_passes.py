"""Passes over rows: what stages do to each row, one reduction after another, then its elements.

    m[i]    = max over k of x[i, k]                   pass  max of x
    e[i, j] = exp(x[i, j] - m[i])              -->    pass  sum of exp(x - m)
    s[i]    = sum over k of e[i, k]                   last  exp(x - m) / s
    y[i, j] = e[i, j] / s[i]                          kept  x

The axes of a row may be any: neighbours in memory (a softmax of rows), or far apart (along columns,
over channels); elements that several passes read are worth keeping.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (90, 7), f32)
>>> most = stage("m", (7,), lambda j: reduce("max", (90,), lambda k: x[k, j]))
>>> less = stage("y", (90, 7), lambda i, j: x[i, j] - most[j])
>>> found = row_passes(stages((x,), (most, less)))
>>> found.length, found.beside, len(found.passes), len(found.kept)
(90, 7, 1, 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from attrs import evolve, frozen

from plica.analysis.constant_bound import interval
from plica.analysis.index import EMPTY, can_prove
from plica.core.binding import free_vars, substitute
from plica.core.fold import map_top_down, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.loop import Each, Stages, loads, reductions, scalar as sc
from plica.ir.type import known
from plica.schedule.default.gpu.one_fold import computed_there


@frozen(eq=False)
class RowPass:
    """A reduction of a row: its buffer and its value."""

    out: sc.Buffer
    combiner: sc.Combiner
    value: sc.Scalar


@frozen(eq=False)
class HeldTerm:
    """A term of a pass that later values read: the pass, and its placeholder load."""

    number: int
    load: sc.Load


@frozen(eq=False)
class RowPasses:
    """The passes over a row and the final value, in terms of the axes of rows and of one row."""

    passes: tuple[RowPass, ...]
    last: Each
    value: sc.Scalar
    row: tuple[sc.ScalarVar, ...]
    """The axes of a row; all others of the result say which row."""
    sizes: Mapping[sc.ScalarVar, int]
    kept: tuple[sc.Load, ...]
    """Elements that several passes read."""
    held: tuple[HeldTerm, ...] = ()
    """What threads hold of terms of a pass, instead of making them once more."""

    @property
    def length(self) -> int:
        return prod([self.sizes[each] for each in self.row])

    @property
    def lanes(self) -> tuple[sc.ScalarVar, ...]:
        """The axes behind those of a row: adjacent rows."""
        axes = self.last.axes
        inner = max([n for n, axis in enumerate(axes) if axis in self.row], default=len(axes) - 1)
        return axes[inner + 1 :]

    @property
    def beside(self) -> int:
        return prod([self.sizes[lane] for lane in self.lanes])

    @property
    def rows(self) -> tuple[sc.ScalarVar, ...]:
        """The axes that identify the row, except adjacent rows."""
        return tuple([e for e in self.last.axes if e not in self.row and e not in self.lanes])

    @property
    def is_dense(self) -> bool:
        """Whether rows are consecutive in memory in all kept inputs and in the result."""
        wide = [axis for axis in self.last.axes if self.sizes[axis] != 1]
        every = [*[each.value for each in self.passes], self.value]
        own = {each.buffer for each in self.kept}
        others = [e for value in every for e in loads(value) if e.buffer in own]
        return wide == [e for e in (*self.rows, *self.row) if self.sizes[e] != 1] and all(
            map(self.is_element, others)
        )

    def is_element(self, load: sc.Load) -> bool:
        """Whether a load has the position of the result element."""
        return lies_along(load, self.last.axes, self.sizes)

    @property
    def shared(self) -> tuple[sc.Load, ...]:
        """Values shared by rows that each element needs: a scale, a shift."""
        every = [e for value in (*[one.value for one in self.passes], self.value)
                 for e in loads(value)]  # fmt: skip
        found = [e for e in every if e not in self.kept and not free_vars(e).isdisjoint(self.row)]
        return tuple(dict.fromkeys(found))

    @property
    def count(self) -> int:
        """The number of rows, without adjacent ones."""
        return prod([self.sizes[row] for row in self.rows])


def row_passes(of: Stages) -> RowPasses | None:
    """The passes of stages, or None if there are none, or no element is read twice."""
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    if len(every) != len(of.stages) or of.outputs != (every[-1].out,):
        return None
    *before, last = every
    totals = {stage.out: stage for stage in before if isinstance(stage.value, sc.Reduce)}
    plain = {stage.out: stage for stage in before if stage.out not in totals}
    whole = [sub.value.body if sub.out in totals else sub.value for sub in every]  # type: ignore[attr-defined]  # totals are reductions
    if not totals or any(reductions(each) for each in whole):
        return None
    sizes = {axis: known(n) or 0 for axis, n in zip(last.axes, last.out.shape, strict=True)}
    if not all(sizes.values()):
        return None
    return _Reader(last, totals, plain, sizes).passes()


class _Reader:
    """Goes from the last stage back to the first, with all reductions in its axes."""

    def __init__(
        self,
        last: Each,
        totals: Mapping[sc.Buffer, Each],
        plain: Mapping[sc.Buffer, Each],
        sizes: dict[sc.ScalarVar, int],
    ) -> None:
        self.last, self.sizes = last, sizes
        self.totals, self.plain = totals, plain
        self.where: dict[sc.Buffer, tuple[sc.Scalar, ...]] = {}
        """Where each reduction is read."""

    def passes(self) -> RowPasses | None:
        single: dict[Term, Term] = {a: sc.index(0) for a, size in self.sizes.items() if size == 1}
        value = self._read(substitute(self.last.value, single))
        if value is None or not self.where:
            return None
        outer = {
            axis for place in self.where.values() for scalar in place for axis in free_vars(scalar)
        }
        row = tuple([e for e in self.last.axes if e not in outer and self.sizes[e] != 1])
        if not row:
            return None
        found: list[RowPass] = []
        for stage in reversed([*self.totals.values()]):
            if stage.out not in self.where:
                return None
            row_pass = self._pass(stage, outer, row)
            if row_pass is None:
                return None
            found.insert(0, row_pass)
        kept = _kept([*[pass_.value for pass_ in found], value], row, self.sizes)
        if not kept:
            return None
        return RowPasses(tuple(found), self.last, value, row, self.sizes, kept)

    def _pass(self, each: Each, outer: set[Term], row: tuple[sc.ScalarVar, ...]) -> RowPass | None:
        """A reduction in the axes of the last stage."""
        fold, place = each.value, self.where[each.out]
        assert isinstance(fold, sc.Reduce)
        mine = {axis for index in place for axis in free_vars(index)}
        extents = [known(size) for size in fold.extents]
        terms = [axis for axis, size in zip(fold.axes, extents, strict=True) if size != 1]
        same = [size for size in extents if size != 1]
        if mine != outer or fold.runs or same != [self.sizes[axis] for axis in row]:
            return None
        at: dict[Term, Term] = dict(zip(each.axes, place, strict=True))
        at |= {axis: sc.index(0) for axis in fold.axes}
        at |= dict(zip(terms, row, strict=True))
        value = self._read(substitute(fold.body, at))
        return None if value is None else RowPass(each.out, fold.combiner, value)

    def _read(self, value: sc.Scalar) -> sc.Scalar | None:
        """A value that reads inputs and reductions alone, these always at one place."""
        value = computed_there(value, self.plain)
        for load in loads(value):
            if load.buffer not in self.totals:
                continue
            simple = all(isinstance(place, sc.Lit) or place in self.sizes for place in load.indices)
            if not simple or self.where.setdefault(load.buffer, load.indices) != load.indices:
                return None
        return value


def holding_terms(of: RowPasses) -> RowPasses:
    """Passes with the first expensive terms (exponentials) kept if they are read again.

    >>> from plica.ir.type.dtype import f32
    >>> from plica.ir.loop.stage import stage
    >>> from plica.ir.loop.stages import stages
    >>> from plica.ir.loop.tensor import buffer, reduce
    >>> x = buffer("x", (7, 90), f32)
    >>> power = stage("e", (7, 90), lambda i, j: sc.Intrinsic("exp", (x[i, j],)))
    >>> total = stage("s", (7,), lambda i: reduce("sum", (90,), lambda k: power[i, k]))
    >>> last = stage("y", (7, 90), lambda i, j: power[i, j] / total[i])
    >>> found = holding_terms(row_passes(stages((x,), (power, total, last))))
    >>> [each.number for each in found.held], len(loads(found.value))
    ([0], 2)
    """
    for number, row_pass in enumerate(of.passes):
        term = row_pass.value.value if isinstance(row_pass.value, sc.Cast) else row_pass.value
        later = [*[one.value for one in of.passes[number + 1 :]], of.value]
        if not isinstance(term, sc.Intrinsic) or not any(term in post_order(v) for v in later):
            continue
        name = fresh(Name("term"), {buffer.name for load in of.kept for buffer in [load.buffer]})
        stand_in = sc.Buffer(name, of.last.out.shape, sc.dtype_of(term))
        load = sc.Load(stand_in, of.last.axes)
        instead = partial(_instead, {term: load})
        passes = [evolve(one, value=map_top_down(instead, one.value)) if at > number else one
                  for at, one in enumerate(of.passes)]  # fmt: skip
        return evolve(
            of, passes=tuple(passes), value=map_top_down(instead, of.value),
            held=(HeldTerm(number, load),),
        )  # fmt: skip
    return of


def _instead(of: Mapping[Term, Term], node: Term) -> Term:
    return of.get(node, node)


def lies_along(
    load: sc.Load, axes: Sequence[sc.ScalarVar], sizes: Mapping[sc.ScalarVar, int]
) -> bool:
    """Whether the flat offset of a load is the number of the element along some axes: it reads each
    axis where it is, of a buffer that is just as long there.  Axes of length 1 say nothing.

    A slice that begins at 0 is read at the axes themselves, but its rows lie further apart.

    >>> from plica.ir.loop.tensor import axis, buffer
    >>> from plica.ir.type.dtype import f32
    >>> i, j = axis("i"), axis("j")
    >>> [lies_along(buffer("x", shape, f32)[i, j], (i, j), {i: 3, j: 5})
    ...  for shape in ((3, 5), (3, 6), (4, 5))]
    [True, False, False]
    """
    wide = [(axis, sizes[axis]) for axis in axes if sizes[axis] != 1]
    extents = zip(load.indices, map(known, load.buffer.shape), strict=True)
    return [(i, n) for i, n in extents if n != 1] == wide


def is_along(of: sc.Load, axis: sc.ScalarVar) -> bool:
    """Whether a load that depends on an axis is contiguous along it."""
    if axis not in free_vars(of):
        return True
    *others, last = of.indices
    if any(axis in free_vars(scalar) for scalar in others):
        return False
    after = substitute(last, {axis: axis + 1})
    return can_prove(sc.Eq(after, last + 1), EMPTY)


def reads_inside(load: sc.Load, sizes: Mapping[sc.ScalarVar, int]) -> bool:
    """Whether a place is inside of its buffer for all numbers of some axes, so that it may be read
    where a choice would not."""
    ranges: dict[Term, tuple[int, int]] = {axis: (0, size - 1) for axis, size in sizes.items()}
    places = [interval(index, ranges, {}) for index in load.indices]
    shape = [known(size) or 0 for size in load.buffer.shape]
    return all(low >= 0 and high < n for (low, high), n in zip(places, shape, strict=True))


def _kept(
    values: list[sc.Scalar], row: tuple[sc.ScalarVar, ...], sizes: Mapping[sc.ScalarVar, int]
) -> tuple[sc.Load, ...]:
    """The elements of rows that several values read."""
    seen: dict[sc.Load, int] = {}
    for value in values:
        for load in loads(value):
            inner = any(isinstance(node, sc.Load) for index in load.indices
                        for node in post_order(index))  # fmt: skip
            if not inner and free_vars(load).issuperset(row):
                seen[load] = seen.get(load, 0) + 1
    return tuple([load for load, times in seen.items() if times > 1 and reads_inside(load, sizes)])
