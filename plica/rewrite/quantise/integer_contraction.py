"""Integer contractions: layers of bytes recognised in stages, whatever operators they came from.

    reduced[n, o, i, j] = sum(i32(x[n, k, i * s + a, j * s + b]) * i32(w[o, k, a, b]))
    out[n, o, i, j]     = i8(min(max(reduced[n, o, i, j] + bias[o] >> shift[o], low), high))

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var, const
>>> from plica.ir.op.elementwise import cast, clip
>>> from plica.ir.op.linear import matmul
>>> from plica.ir.type.term import tensor
>>> x, w = Var(Name("x"), tensor((3, 4), "i8")), const(np.arange(8, dtype=np.int8).reshape(4, 2))
>>> y = cast(clip(matmul(cast(x, i32), cast(w, i32)), min=0, max=127), i8)
>>> found = integer_contraction(y)
>>> found.data is x, found.weight.tolist(), found.low, found.high
(True, [[0, 2, 4, 6], [1, 3, 5, 7]], 0, 127)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from attrs import frozen

from plica.analysis.index.context import conjuncts
from plica.core import substitute
from plica.ir.graph.expression import Const, Expr
from plica.ir.loop import Each, scalar as sc
from plica.ir.loop.stages import pairs
from plica.ir.type import i8, i32, known, polynomial
from plica.rewrite.fuse.to_stages import to_stages
from plica.rewrite.quantise.integer_region import IntegerRegion, joins, region_of

Array: TypeAlias = np.ndarray[Any, Any]
Pair: TypeAlias = tuple[int, int]


@frozen(eq=False)
class IntegerContraction:
    """A layer between bytes; `node` is the operator that first joins data and weights."""

    data: Expr
    node: Expr
    weight: Array  # int8 `[outputs, channels / groups, …]`
    bias: tuple[int, ...] | None
    shifts: tuple[int, ...]
    low: int
    high: int
    strides: tuple[int, ...]
    padding: tuple[Pair, ...]
    dilation: tuple[int, ...]
    groups: int


def integer_contraction(root: Expr) -> IntegerContraction | None:
    """The layer that computes an inferred byte value, or None."""
    if (region := region_of(root)) is None:
        return None
    stages = to_stages(region.function).stages
    if not all(isinstance(stage, Each) for stage in stages.stages):
        return None
    every = pairs(stages)
    if len(every) != 1 or every[0][1] is None:
        return None
    fold, last = every[0]
    assert last is not None
    if (sums := _sums(fold, region)) is None:
        return None
    if (finish := _epilogue(fold, last, region)) is None:
        return None
    node = joins(region, sums.data, sums.of_weight)
    windows = sums.windows
    return IntegerContraction(
        sums.data, node, sums.weight, finish.bias, finish.shifts, finish.low, finish.high,
        tuple([window[0] for window in windows]), tuple([window[1] for window in windows]),
        tuple([window[2] for window in windows]), sums.groups,
    )  # fmt: skip


@frozen(eq=False)
class _Sums:
    data: Expr
    of_weight: Expr
    weight: Array
    windows: tuple[tuple[int, Pair, int], ...]
    groups: int


def _sums(fold: Each, region: IntegerRegion) -> _Sums | None:
    """The sum of products of data and a constant weight, with a window for each axis after two."""
    body = fold.value
    sizes = [known(size) for size in fold.out.shape]
    if (
        not isinstance(body, sc.Reduce)
        or body.combiner != "sum"
        or not isinstance(body.body, sc.Mul)
    ):
        return None
    if len(sizes) < 2 or None in sizes[1:]:  # a batch may be open, or empty
        return None
    for left, right in ((body.body.left, body.body.right), (body.body.right, body.body.left)):
        data, weight = _guarded(left), _widened(right)
        if data is None or weight is None:
            continue
        source, constant = region.leaves[data.buffer.name], region.leaves[weight.buffer.name]
        if isinstance(source, Const) or not isinstance(constant, Const):
            continue
        values = _bytes(constant)
        if values is None or data.buffer.dtype is not i8:
            return None
        terms = {var: known(size) or 0 for var, size in zip(body.axes, body.extents, strict=True)}
        data = _without_single(data, terms)
        if len(sizes) == 2:
            return _product(fold, (data, weight), source, (constant, values), terms)
        return _windowed(fold, (data, weight), source, (constant, values), terms)
    return None


def _without_single(of: sc.Load, terms: Mapping[sc.ScalarVar, int]) -> sc.Load:
    """The load where terms that are 0 and nothing else are 0."""
    gone: dict[sc.ScalarVar, sc.Scalar] = {
        var: sc.index(0) for var, size in terms.items() if size == 1
    }
    return sc.Load(of.buffer, tuple([substitute(place, gone) for place in of.indices]))


def _widened(of: sc.Scalar) -> sc.Load | None:
    """A load, possibly cast from i8 to i32."""
    inside = of.value if isinstance(of, sc.Cast) and of.dtype is i32 else of
    return inside if isinstance(inside, sc.Load) else None


def _guarded(of: sc.Scalar) -> sc.Load | None:
    """A load guarded to be in bounds, and 0 elsewhere."""
    if isinstance(of, sc.Cast) and isinstance(of.value, sc.Select) and of.dtype is i32:
        of = of.value
    if not isinstance(of, sc.Select):
        return _widened(of)
    load = _widened(of.then)
    if load is None or not isinstance(of.orelse, sc.Lit) or of.orelse.value != 0:
        return None
    inside = list(zip(load.indices, load.buffer.shape, strict=True))
    for conjunct in conjuncts(of.condition):
        match conjunct:
            case sc.Le(low, place) if low is sc.index(0) and place in load.indices:
                continue
            case sc.Lt(place, size) if (place, size) in inside:
                continue
        return None
    return load


def _bytes(of: Const) -> Array | None:
    """The numbers of a constant, if they are signed bytes."""
    values = of.numpy()
    if of.dtype is i8 or not values.size:
        return values if values.size else None
    low, high = i8.bounds
    is_bytes = of.dtype is i32 and low <= values.min() and values.max() <= high
    return values.astype(np.int8) if is_bytes else None


def _is_at(place: sc.Scalar, var: sc.ScalarVar | None, size: int | None) -> bool:
    """Whether a place runs through an axis as the variable does; one of length 1 needs none."""
    return place is var or (size == 1 and known(place) == 0)


def _product(
    fold: Each,
    loads: tuple[sc.Load, sc.Load],
    source: Expr,
    weight: tuple[Const, Array],
    terms: Mapping[sc.ScalarVar, int],
) -> _Sums | None:
    """`[rows, k]` by `[outputs, k]`, or by `[k, outputs]`."""
    data, by = loads
    row, output = fold.axes
    rows, outputs = (known(size) for size in fold.out.shape)
    shape = data.buffer.shape
    term = next((var for var, size in terms.items() if size > 1), None)
    wide = max(terms.values(), default=1)
    if len(shape) != 2 or weight[1].ndim != 2 or sum(size > 1 for size in terms.values()) > 1:
        return None
    if shape[0] is not fold.out.shape[0] or known(shape[1]) != wide:
        return None
    if not _is_at(data.indices[0], row, rows):
        return None
    if not _is_at(data.indices[1], term, wide):
        return None
    for array, places in ((weight[1], by.indices), (weight[1].T, tuple(reversed(by.indices)))):
        fits = array.shape == (outputs, wide)
        if fits and _is_at(places[0], output, outputs) and _is_at(places[1], term, wide):
            return _Sums(source, weight[0], array, (), 1)
    return None


def _windowed(
    fold: Each,
    loads: tuple[sc.Load, sc.Load],
    source: Expr,
    weight: tuple[Const, Array],
    terms: Mapping[sc.ScalarVar, int],
) -> _Sums | None:
    """`[n, channels, …]` by `[outputs, channels / groups, …]`, a window for each further axis."""
    data, by = loads
    sizes = [known(size) or 0 for size in fold.out.shape]
    shape = [known(size) or 0 for size in data.buffer.shape]
    array, rank = weight[1], len(sizes)
    if len(shape) != rank or array.ndim != rank or array.shape[0] != sizes[1]:
        return None
    if data.buffer.shape[0] is not fold.out.shape[0]:
        return None
    if 0 in shape[1:] or not _is_at(data.indices[0], fold.axes[0], sizes[0]):
        return None
    if not _is_at(by.indices[0], fold.axes[1], sizes[1]) or shape[1] % array.shape[1]:
        return None
    own = [index if isinstance(index, sc.ScalarVar) else None for index in by.indices]
    groups = shape[1] // array.shape[1]
    for place, var, size in zip(by.indices[1:], own[1:], array.shape[1:], strict=True):
        if not _is_at(place, var, size) or (var is not None and terms.get(var) != size):
            return None
    if len({each for each in own if each is not None}) < sum(each is not None for each in own):
        return None
    if not _is_channel(data.indices[1], own[1], fold.axes[1], (groups, sizes[1], array.shape[1])):
        return None
    windows: list[tuple[int, Pair, int]] = []
    for at in range(2, rank):
        counts = (shape[at], array.shape[at], sizes[at])
        if (window := _window(data.indices[at], (fold.axes[at], own[at]), counts)) is None:
            return None
        windows.append(window)
    used = {each for each in own[1:] if each is not None}
    if any(size > 1 and each not in used for each, size in terms.items()):
        return None
    return _Sums(source, weight[0], array, tuple(windows), groups)


def _is_channel(
    place: sc.Scalar, term: sc.ScalarVar | None, output: sc.ScalarVar, sizes: tuple[int, int, int]
) -> bool:
    """Whether a place is the channel of a term, in the group of the output."""
    groups, outputs, channels = sizes
    if groups == 1:
        return _is_at(place, term, channels)
    first = (output if groups == outputs else output // (outputs // groups)) * channels
    wanted = first if term is None else first + term
    return polynomial(place) == polynomial(wanted)


def _window(
    place: sc.Scalar,
    variables: tuple[sc.ScalarVar, sc.ScalarVar | None],
    sizes: tuple[int, int, int],
) -> tuple[int, Pair, int] | None:
    """Stride, padding before and after, and dilation, of which a place is made."""
    axis, term = variables
    given, kernel, count = sizes
    stride, dilation, start = 0, 0, 0
    for atoms, factor in polynomial(place).values():
        match atoms:
            case ():
                start = factor
            case (only,) if only is axis:
                stride = factor
            case (only,) if only is term:
                dilation = factor
            case _:
                return None
    before, span = -start, (kernel - 1) * (dilation or 1) + 1
    if before < 0 or stride < 0 or dilation < 0 or (kernel > 1 and not dilation):
        return None
    if not stride and count > 1:
        return None
    stride = stride or max(1, given + 2 * before - span + 1)  # one place: the next is outside

    def places(after: int) -> int:
        return (given + before + after - span) // stride + 1

    needed = max(0, (count - 1) * stride + span - before - given)
    after = next((each for each in (before, needed) if places(each) == count), None)
    return None if after is None else (stride, (before, after), dilation or 1)


@frozen(eq=False)
class _Finish:
    bias: tuple[int, ...] | None
    shifts: tuple[int, ...]
    low: int
    high: int


def _epilogue(fold: Each, last: Each, region: IntegerRegion) -> _Finish | None:
    """The epilogue of a sum: a bias, a right shift, clips, and the cast to a byte."""
    value = last.value
    if not isinstance(value, sc.Cast) or value.dtype is not i8:
        return None
    if len(last.axes) != len(fold.axes):
        return None
    value = value.value
    clips: list[tuple[bool, int]] = []
    while isinstance(value, sc.Max | sc.Min):
        sides = (value.left, value.right)
        bounds = [_numbers(side, last.axes[1], region) for side in sides]
        number = bounds[1] or bounds[0]
        if number is None or len(number) > 1:
            return None
        clips.append((isinstance(value, sc.Max), number[0]))
        value = sides[0] if bounds[1] else sides[1]
    low, high = i32.bounds
    for is_max, number_ in reversed(clips):
        take = max if is_max else min
        low, high = take(low, number_), take(high, number_)
    if not i8.bounds[0] <= low < high <= i8.bounds[1]:
        return None
    output = last.axes[1]
    shifts: tuple[int, ...] | None = (0,)
    if isinstance(value, sc.ShiftRight):
        shifts = _numbers(value.right, output, region)
        value = value.left
    if shifts is None or not all(0 <= shift < i32.bits for shift in shifts):
        return None
    bias: tuple[int, ...] | None = None
    if isinstance(value, sc.Add):
        sides = (value.left, value.right)
        is_sum = [isinstance(side, sc.Load) and side.buffer is fold.out for side in sides]
        if is_sum.count(True) != 1:
            return None
        value, other = sides[is_sum.index(True)], sides[is_sum.index(False)]
        if (bias := _numbers(other, output, region)) is None:
            return None
    if not isinstance(value, sc.Load) or value.buffer is not fold.out:
        return None
    if not _in_order(value.indices, last.axes, value.buffer):
        return None
    return _Finish(bias, shifts, low, high)


def _in_order(places: Sequence[sc.Scalar], axes: Sequence[sc.ScalarVar], of: sc.Buffer) -> bool:
    """Whether a load is of the element itself."""
    return len(places) == len(axes) and all(
        _is_at(place, axis, known(size))
        for place, axis, size in zip(places, axes, of.shape, strict=True)
    )


def _numbers(of: sc.Scalar, output: sc.ScalarVar, region: IntegerRegion) -> tuple[int, ...] | None:
    """A constant of i32: one number, or one for each output."""
    if isinstance(of, sc.Lit):
        return (int(of.value),)
    leaf = region.leaves.get(of.buffer.name) if isinstance(of, sc.Load) else None
    if not isinstance(of, sc.Load) or not isinstance(leaf, Const):
        return None
    if sum(index is output for index in of.indices) > 1:
        return None
    at: list[int | slice] = []
    for place in of.indices:
        number = known(place)
        if place is not output and number is None:
            return None
        at.append(slice(None) if number is None else number)
    return tuple([int(each) for each in np.ravel(leaf.numpy()[tuple(at)])])
