"""Operands of a product: which axes of a contraction are batch, M, N and K, and where sides lie.

    out[z, m, n] = epilogue(sum over k of left[z, m, k] * right[z, k, n], …)

Any contraction is read this way: adjacent result axes of one kind are one number. Columns are the
contiguous axes of the result, rows the last run of the other kind before them, and all others are
batch, except those that fill up few rows or columns. f16 or bf16 operands that are only loaded and
cast to f32 count in their storage type.

>>> from plica.ir.type.dtype import f16, f32
>>> from plica.ir.loop.scalar import Cast
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (5, 7, 8), f16), buffer("w", (6, 8), f16)
>>> dense = stage("y", (5, 7, 6), lambda b, m, n: reduce(
...     "sum", (8,), lambda k: Cast(x[b, m, k], f32) * Cast(w[n, k], f32)))
>>> found = operands(stages((x, w), (dense,)))
>>> found.size("batch"), found.size("rows"), found.size("columns"), found.size("terms")
(1, 35, 6, 8)
>>> found.left.buffer.dtype.name, found.right.buffer.name == w.name
('f16', True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Final, Literal, TypeAlias

from attrs import evolve, frozen

from plica.core import Name, Term, free_vars, substitute
from plica.ir.loop import Buffer, Each, Le, Load, Lt, Names, Scalar, ScalarVar, Stages, index, loads
from plica.ir.type import DType, f32, i8, i32, known
from plica.schedule.default.contraction import Contraction, contraction
from plica.schedule.default.gpu.narrow_read import BYTES, narrowed, widened
from plica.schedule.default.grouped import by_group

FEW: Final = 32  # rows or columns, fewer of which leave most of a tile empty

Group: TypeAlias = Literal["batch", "rows", "columns", "terms"]
Axes: TypeAlias = tuple[ScalarVar, ...]

GROUPS: Final[tuple[Group, ...]] = ("batch", "rows", "columns", "terms")


@frozen(eq=False)
class Where:
    """The position of an element: the number of each group (all its axes merged), and the remaining
    axes."""

    numbers: Mapping[Group, Scalar]
    axes: Mapping[Term, Scalar]


@frozen(eq=False, slots=False)
class Operands:
    """A contraction as a product of matrices."""

    inputs: tuple[Buffer, ...]
    axes: Axes
    """The groups of the result, in order; unit axes are in no group."""
    groups: Mapping[Group, Axes]
    sizes: Mapping[ScalarVar, int]
    left: Load
    right: Load
    border: tuple[Scalar, ...]
    """The condition that the data is in bounds, over the axes."""
    bordered: Load | None
    """The side that is 0 outside of the border."""
    reduced: Buffer
    value: Scalar
    ends: tuple[Scalar, ...] = ()
    """The condition that terms exist, over the axes; both operands are 0 elsewhere."""
    small: frozenset[Name] = frozenset()
    """Inputs of i32 that are known to hold bytes."""

    def kind(self, side: Load) -> DType:
        """The type in which an operand is multiplied."""
        return i8 if side.buffer.name in self.small else side.buffer.dtype

    def size(self, group: Group) -> int:
        """How long all axes of a group are as one."""
        return prod(self.sizes[var] for var in self.groups[group])

    @property
    def dtype(self) -> DType:
        """The multiplication type: f32 if one operand has it, and the other is read as such.

        Of bytes one side may have a sign and the other none.
        """
        left, right = self.kind(self.left), self.kind(self.right)
        return left if left is right or left in BYTES else f32

    @property
    def octet(self) -> int:
        """Elements that are moved at once: 16 bytes."""
        return 16 // self.dtype.bytes

    @property
    def depth(self) -> int:
        """How many products are summed."""
        return self.size("terms")

    @cached_property
    def views(self) -> Mapping[Buffer, Buffer]:
        """Inputs in another shape of the same elements, in which axes that are one number are one.

        A buffer with two access patterns is unchanged.
        """
        found: dict[Buffer, set[tuple[int, ...]]] = {}
        for load in (self.left, self.right, *self.others()):
            found.setdefault(load.buffer, set()).add(tuple([n for n, _ in self._runs(load)]))
        return {
            buffer: Buffer(buffer.name, tuple(map(index, next(iter(shapes)))), buffer.dtype)
            for buffer, shapes in found.items()
            if len(shapes) == 1
        }

    def others(self) -> Iterator[Load]:
        """The operands of the epilogue besides the sum."""
        return (load for load in loads(self.value) if load.buffer is not self.reduced)

    def depends(self, of: Load, group: Group) -> bool:
        """Whether a side differs along a group."""
        return not free_vars(of).isdisjoint(self.groups[group])

    def along(self, of: Load) -> bool:
        """Whether the elements of neighbouring terms are neighbours, and only they."""
        terms = self.groups["terms"]
        last = [scalar for scalar, size in zip(of.indices, of.buffer.shape, strict=True)
                if known(size) != 1]  # fmt: skip
        return bool(last) and bool(terms) and last[-1] is terms[-1]

    def at(self, of: Load, where: Where) -> Load:
        """A load with its axes substituted."""
        if (view := self.views.get(of.buffer)) is None:
            return Load(of.buffer, tuple([self.put(scalar, where) for scalar in of.indices]))
        return Load(view, tuple([self._run(run, where) for _, run in self._runs(of)]))

    def inside(self, side: Load, where: Where) -> list[Scalar]:
        """The condition that an operand is not 0, with the axes substituted."""
        border = self.border if side is self.bordered else ()
        return [self.put(scalar, where) for scalar in (*border, *self.ends)]

    def result(self, names: Names) -> tuple[Axes, tuple[Scalar, ...], Where]:
        """Axes of the result, the shape, and where an element of it is.

        Contiguous groups are one axis each: z, if there are several, m and n.
        """
        if not self.is_plain():
            return self.pixels()
        words = (("z", "batch"), ("m", "rows"), ("n", "columns"))
        axes: list[ScalarVar] = []
        told: dict[Group, Scalar] = {}
        sizes: list[Scalar] = []
        for word, group in words:
            told[group] = index(0)  # type: ignore[index]  # a group's name
            if group != "batch" or self.size("batch") > 1:
                axes.append(names.var(word))
                sizes.append(index(self.size(group)))  # type: ignore[arg-type]  # a group of axes
                told[group] = axes[-1]  # type: ignore[index]  # a group of axes
        return tuple(axes), tuple(sizes), Where(told, {})

    def pixels(self) -> tuple[Axes, tuple[Scalar, ...], Where]:
        """The same with the axes that the result has."""
        numbers = {group: joined(self.groups[group], self.sizes) for group in GROUPS[:3]}
        shape = tuple([index(self.sizes[axis]) for axis in self.axes])
        return self.axes, shape, Where(numbers, {})

    def is_plain(self) -> bool:
        """Whether each group is one axis of the result, one behind another."""
        own = [axis for axis in self.axes if self.sizes[axis] > 1]
        return own == [*self.groups["batch"], *self.groups["rows"], *self.groups["columns"]]

    def _runs(self, of: Load) -> list[tuple[int, tuple[Scalar, ...]]]:
        """The axes of a load with their lengths; neighbours of one group that are whole are one."""
        found: list[tuple[int, tuple[Scalar, ...]]] = []
        for place, extent in zip(of.indices, of.buffer.shape, strict=True):
            size = known(extent)
            assert size is not None
            if size == 1 and known(place) == 0:
                continue
            last = found[-1][1][-1] if found else None
            if self._follow(last, place) and self.sizes.get(place) == size:  # type: ignore[call-overload]  # an axis
                count, run = found.pop()
                found.append((count * size, (*run, place)))
            else:
                found.append((size, (place,)))
        return found or [(1, (index(0),))]

    def _follow(self, one: Scalar | None, other: Scalar) -> bool:
        for axes in self.groups.values():
            if one in axes and other in axes:
                return axes.index(other) == axes.index(one) + 1
        return False

    def _run(self, run: tuple[Scalar, ...], where: Where) -> Scalar:
        """The index of a run of axes; a whole group is its number, unless axes are given
        separately."""
        for group, axes in self.groups.items():
            if run[0] in axes and run[-1] in axes and group in where.numbers:
                first, last = axes.index(run[0]), axes.index(run[-1])
                number = where.numbers[group]
                after = prod(self.sizes[axis] for axis in axes[last + 1 :])
                if after > 1:
                    number = number // after
                if first:
                    number = number % prod(self.sizes[axis] for axis in axes[first : last + 1])
                return number
        several = [each for each in run if isinstance(each, ScalarVar)]
        return self.put(joined(several, self.sizes) if len(run) > 1 else run[0], where)

    def put(self, of: Scalar, where: Where) -> Scalar:
        told: dict[Term, Term] = dict(where.axes)
        for group, axes in self.groups.items():
            if group in where.numbers:
                told |= {axis: self._run((axis,), where) for axis in axes}
        for axis in self.axes:
            if self.sizes[axis] == 1:
                told.setdefault(axis, index(0))
        return substitute(of, {k: v for k, v in told.items() if k is not v})


@lru_cache(maxsize=1024)
def operands(of: Stages, small: tuple[int, ...] = ()) -> Operands | None:
    """The product of some stages, or None; `small` i32 inputs hold bytes.

    Sides are of f32, f16 or bf16, and sums are of f32; or sides are bytes, and sums are of i32.
    """
    if not all(isinstance(stage, Each) for stage in of.stages):
        return None
    wide, narrow = widened(of)
    if (found := contraction(wide)) is None:
        apart = by_group(wide)
        found = None if apart is None else contraction(apart)
    if found is None or found.weight is None or found.combiner != "sum":
        return None
    sides = [narrowed(each, narrow) for each in (found.data, found.weight)]
    names = frozenset([of.inputs[number].name for number in small])
    bytes_ = [side.buffer.dtype in BYTES or side.buffer.name in names for side in sides]
    if found.reduced.dtype is not (i32 if all(bytes_) else f32) or found.fill.value != 0:
        return None
    if any(bytes_) and not all(bytes_):
        return None
    made = _arranged(of, found, sides[0], sides[1])
    return made if made is None or not all(bytes_) else evolve(made, small=names)


def _arranged(of: Stages, found: Contraction, data: Load, weight: Load) -> Operands | None:
    """Axes in groups, or None if a buffer would need two shapes."""
    kinds: dict[ScalarVar, str] = {}
    for axis in found.axes:
        if found.sizes[axis] > 1:
            kinds[axis] = "weight" if axis in found.n else "data" if axis in found.m else ""
    batch, rows, columns = _cut(kinds)
    batch, columns = _filled(batch, columns, kinds, found.sizes)
    batch, rows = _filled(batch, rows, kinds, found.sizes)
    over_data = all(kinds[axis] == "data" for axis in columns) if columns else (
        not all(kinds[axis] == "data" for axis in rows)
    )  # fmt: skip
    others = [each for each in loads(found.value) if each.buffer is not found.reduced]
    shapes: dict[Name, Buffer] = {}
    for load in (data, weight, *others):
        if shapes.setdefault(load.buffer.name, load.buffer) is not load.buffer:
            return None
    inputs = tuple([shapes.get(buffer.name, buffer) for buffer in of.inputs])
    return Operands(
        inputs=inputs,
        axes=found.axes,
        groups={"batch": batch, "rows": rows, "columns": columns, "terms": found.k},
        sizes=found.sizes,
        left=weight if over_data else data,
        right=data if over_data else weight,
        border=tuple(_border(found, data)),
        bordered=data if found.guarded else None,
        reduced=found.reduced,
        value=found.value,
    )


def _cut(kinds: Mapping[ScalarVar, str]) -> tuple[Axes, Axes, Axes]:
    """Batch, rows and columns among a result's axes, each of one operand or of both."""
    order = list(kinds)
    columns = _last_run(order, kinds, ("weight", "data"))
    left = [axis for axis in order if axis not in columns]
    kind = kinds[columns[0]] if columns else ""
    rows = _last_run(left, kinds, tuple({"weight", "data"} - {kind}) if kind else ())
    return tuple([axis for axis in left if axis not in rows]), tuple(rows), tuple(columns)


def _filled(
    batch: Axes, near: Axes, kinds: Mapping[ScalarVar, str], sizes: Mapping[ScalarVar, int]
) -> tuple[Axes, Axes]:
    """Batch and rows or columns: where those are few, others of their kind are of them, too.

    A gradient of weights has 9 places for each channel, say: tiles of one channel would be empty.
    """
    if not near or prod(sizes[axis] for axis in near) >= FEW:
        return batch, near
    more = tuple([axis for axis in batch if kinds[axis] == kinds[near[0]]])
    return tuple([axis for axis in batch if axis not in more]), (*more, *near)


def _last_run(
    order: Sequence[ScalarVar], kinds: Mapping[ScalarVar, str], wanted: tuple[str, ...]
) -> list[ScalarVar]:
    """The last axes of one of some kinds that follow one another."""
    run: list[ScalarVar] = []
    for axis in reversed(order):
        if kinds[axis] in wanted and (not run or kinds[axis] == kinds[run[0]]):
            run.insert(0, axis)
        elif run:
            break
    return run


def _border(of: Contraction, data: Load) -> Iterator[Scalar]:
    """The conditions that an index of the data is in bounds."""
    if not of.guarded:
        return
    for place, size in zip(data.indices, data.buffer.shape, strict=True):
        extent, number = known(size), known(place)
        if number is not None and extent is not None and 0 <= number < extent:
            continue
        longest = of.sizes.get(place) if isinstance(place, ScalarVar) else None
        if longest is None:
            yield Le(index(0), place)
            yield Lt(place, size)
        elif extent is None or longest > extent:  # padded at the end alone
            yield Lt(place, size)


def joined(axes: Sequence[ScalarVar], sizes: Mapping[ScalarVar, int]) -> Scalar:
    """All of some axes as one number."""
    scalar: Scalar = index(0)
    for number, axis in enumerate(axes):
        scalar = axis if number == 0 else scalar * sizes[axis] + axis
    return scalar
