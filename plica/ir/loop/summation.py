"""Summation: the order in which a long sum of floats is made.

Every term added to a running total loses digits. So a `Reduce` of floats may be computed in `runs`:
each run is summed in the dtype of the terms; the totals of runs are summed in f64, along each axis
in turn, and rounded once. Terms of f64 are summed in runs of 128 totals, recursively.

    row    16 terms along the last axis: sums
    box    256 terms: as many of the last axes as fit whole, and 2^n places of the one before these:
           sums of products

    sum over k < 1000 of x[k], in runs of 16
      -->  f32(sum over b < 62 of f64(sum over h < 16 of x[b * 16 + h])
                + f64(sum over h < 8 of x[h + 992]))

The terms of a run depend on the sizes alone, not on which of them are static. `spelled` writes the
order out as reductions that go term by term. It is the only definition: interpreters evaluate its
result, and loops are built from it.

>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (100,), f32)
>>> total = reduce("sum", (100,), lambda k: x[k], runs="row")
>>> spelled(total).value
Add(Reduce(...), Cast(Reduce(...), DType('f64')))
>>> run_shape((64, 3, 3), "box"), run_shape((64, 3, 3), "row")
((16, 3, 3), (1, 1, 3))

Laws: `spelled` has no runs left; a sum that fits into one run is the plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from attrs import frozen

from plica.core import Name, Term, all_of, fresh, map_bottom_up, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.type import f64, i64, known

TOTALS: Final = 128  # the number of f64 totals summed at once if the terms are f64
MAX_LEVELS_OF_TOTALS: Final = 2  # how often totals of f64 are cut into runs again

Size: TypeAlias = int | sc.Scalar


def run_shape(extents: Sequence[Size], runs: sc.Runs) -> tuple[Size, ...]:
    """The extent of a run along each axis."""
    most = sc.RUN_LENGTH[runs]
    inner: Size = 1
    found: list[Size] = []
    for extent in reversed(extents):
        part = most if inner == 1 else 1 if runs == "row" else _fitting(inner, most)
        both = isinstance(extent, int) and isinstance(part, int)
        found.append(min(extent, part) if both else part)  # type: ignore[type-var]  # numbers
        inner = (most if runs == "row" else inner) * extent
    return tuple(reversed(found))


def _fitting(inner: Size, most: int) -> Size:
    """The largest power of two of boxes with `inner` terms that fit into a run, at least 1."""
    if isinstance(inner, int):
        return 1 << max(0, (most // max(1, inner)).bit_length() - 1)
    part: sc.Scalar = sc.index(1)
    for power in range(1, most.bit_length()):
        part = part + sc.Select(
            sc.Le(inner, sc.index(most >> power)), sc.index(1 << (power - 1)), sc.index(0)
        )
    return part


def _blocks(extent: Size, part: Size) -> Size:
    """How many parts an extent has."""
    return (extent + (part - 1)) // part


def spelled(of: sc.Scalar) -> sc.Scalar:
    """A scalar in which the order of every sum is written out."""
    found = spelled_within(of)
    assert isinstance(found, sc.Scalar)
    return found


def spelled_within(of: Term) -> Term:
    """A term in all scalars of which the order of every sum is written out."""
    if not any(node.runs for node in all_of(sc.Reduce, of)):
        return of
    names = {node.name for node in all_of(sc.ScalarVar, of)}

    def spell(node: Term) -> Term:
        in_runs = isinstance(node, sc.Reduce) and node.runs
        return _Runs(node, names).whole() if in_runs else node  # type: ignore[arg-type]  # it is one

    return map_bottom_up(spell, of)


def _size(of: sc.Scalar) -> Size:
    number = known(of)
    return of if number is None else number


def _term(of: Size) -> sc.Scalar:
    return sc.index(of) if isinstance(of, int) else of


@frozen
class _Part:
    """A section of some axes: start, length, and the end of the axis if it matters."""

    taken: tuple[tuple[sc.ScalarVar, sc.Scalar, Size, sc.Scalar | None], ...] = ()

    def taking(
        self, axis: sc.ScalarVar, start: sc.Scalar, count: Size, within: sc.Scalar | None = None
    ) -> _Part:
        """The same, and a part of one more axis."""
        return _Part((*self.taken, (axis, start, count, within)))


class _Runs:
    """A reduction, and the names that are in use around it."""

    def __init__(self, of: sc.Reduce, names: set[Name]) -> None:
        self.of, self.names = of, names
        self.extents = tuple([_size(extent) for extent in of.extents])
        self.shape = run_shape(self.extents, of.runs)
        self.dtype = sc.dtype_of(of)

    def whole(self) -> sc.Scalar:
        """The reduction, term by term."""
        if 0 in self.extents:
            return sc.Reduce(self.of.combiner, self.of.axes, self.of.extents, self.of.body)
        total = self._along(0, _Part())
        return total if self.dtype is f64 else sc.Cast(total, self.dtype)

    def _along(self, at: int, here: _Part) -> sc.Scalar:
        """The f64 total from an axis on, with sections of the earlier axes fixed."""
        if at == len(self.extents):
            return self._run(here)
        axis, extent, part = self.of.axes[at], self.extents[at], self.shape[at]
        if part == extent:
            return self._along(at + 1, here.taking(axis, sc.index(0), extent))

        def block(number: sc.Scalar, count: Size) -> sc.Scalar:
            start = number if part == 1 else number * _term(part)
            return self._along(at + 1, here.taking(axis, start, count))

        if not isinstance(extent, int) or not isinstance(part, int):
            most, all_ = _term(part), _term(extent)
            count = _blocks(all_, most)
            return self._total(axis, count, lambda b: block(b, sc.Min(most, all_ - b * most)))
        full, rest = divmod(extent, part)
        if rest and self.dtype is f64:
            return self._total(
                axis,
                full + 1,
                lambda b: self._along(
                    at + 1, here.taking(axis, b * part, part, within=sc.index(extent))
                ),
            )
        main = self._total(axis, full, lambda b: block(b, part))
        _, join = MEANING[self.of.combiner]
        return join(main, block(sc.index(full), rest)) if rest else main

    def _total(
        self, like: sc.ScalarVar, count: Size, at: Callable[[sc.Scalar], sc.Scalar], depth: int = 0
    ) -> sc.Scalar:
        """The sum of a given number of terms in f64; f64 terms are summed in nested runs."""
        run = TOTALS
        short = isinstance(count, int) and count <= run
        if self.dtype is not f64 or short or depth == MAX_LEVELS_OF_TOTALS:
            b = self._var(like)
            return self._reduce((b,), (count,), at(b))
        outer = -(-count // run) if isinstance(count, int) else (count + (run - 1)) // run

        def several(number: sc.Scalar) -> sc.Scalar:
            h = self._var(like)
            place = number * run + h
            if not isinstance(count, int):
                return self._reduce((h,), (sc.Min(sc.index(run), count - number * run),), at(place))
            value = at(place)
            if count % run:
                start, _ = MEANING[self.of.combiner]
                value = sc.Select(sc.Lt(place, sc.index(count)), value, start(f64))
            return self._reduce((h,), (run,), value)

        return self._total(like, outer, several, depth + 1)

    def _run(self, here: _Part) -> sc.Scalar:
        """The total of a run, in f64."""
        axes: list[sc.ScalarVar] = []
        counts: list[Size] = []
        where: dict[Term, Term] = {}
        inside: list[sc.Scalar] = []
        for axis, first, count, within in here.taken:
            place = first
            if count != 1:
                var = self._var(axis)
                axes.append(var)
                counts.append(count)
                place = var if first is sc.index(0) else first + var
            where[axis] = place
            if within is not None:
                inside.append(sc.Lt(place, within))
        body = substitute(self.of.body, where)
        start, _ = MEANING[self.of.combiner]
        for condition in inside:
            body = sc.Select(condition, body, start(self.dtype))
        total = self._reduce(axes, counts, body) if axes else body
        return total if self.dtype is f64 else sc.Cast(total, f64)

    def _reduce(
        self, axes: Sequence[sc.ScalarVar], counts: Sequence[Size], body: sc.Scalar
    ) -> sc.Scalar:
        sizes = tuple([_term(count) for count in counts])
        return sc.Reduce(self.of.combiner, tuple(axes), sizes, body)

    def _var(self, like: sc.ScalarVar) -> sc.ScalarVar:
        name = fresh(like.name, self.names)
        self.names.add(name)
        return sc.ScalarVar(name, i64)
