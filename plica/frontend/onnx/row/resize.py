"""Rows of resampling: each place of a result is a weighted sum of places along each axis.

>>> grid = ResizeGrid(index(2), index(4), number(2.0), "asymmetric")
>>> weights(grid, ResizeKernel("nearest", "floor")).argmax(axis=1).tolist()
[0, 0, 1, 1]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

import attrs
import numpy as np

from plica.core.diagnostic import MAX_TENSOR_BYTES
from plica.frontend.measured import ONE, ZERO, Piece, amount, places
from plica.frontend.onnx.arithmetic import settled
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, along, axes_in, dtype, in_f32, like, rank, shape, to
from plica.frontend.onnx.run_time import clamped, lawful, pieces, size_from
from plica.frontend.onnx.storage import Array
from plica.frontend.onnx.value import TensorValue
from plica.frontend.word import select
from plica.ir.graph.expression import Const, Expr, Tuple, const
from plica.ir.interpret.graph_machine import computed
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type import f64, i64, is_size, known, normal_dim, product, same_dim

MOST_TAPS: Final = 8
"""With more places than this under a weight, a product with the whole matrix costs less."""

LONGEST: Final = 1 << 24  # an axis of more places is not made
SAMPLED_PLACES: Final = 3
"""Places of an input that tell how a result lies at all of them: both ends, and between."""

UNEVEN: Final = ("align_corners", "tf_crop_and_resize")
"""Modes in which places of a result do not lie alike in every step of the input."""

MOST_WEIGHTS: Final = 1 << 24
"""An axis is not resampled if its matrix of weights would have more elements."""


def number(value: float) -> Expr:
    """A constant of the type that places are computed in."""
    return const(value, f64)


NOTHING, HALF, WHOLE = number(0.0), number(0.5), number(1.0)

NEAREST: Final[dict[str, Callable[[Expr], Expr]]] = {
    "round_prefer_floor": lambda at: op.ceil(at - HALF),
    "round_prefer_ceil": lambda at: op.floor(at + HALF),
    "floor": op.floor,
    "ceil": op.ceil,
}


@attrs.frozen
class ResizeKernel:
    """How much each place of the input counts, by its distance."""

    mode: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude: bool = False

    @property
    def radius(self) -> int:
        """How far places are that count."""
        return 1 if self.mode == "linear" else 2

    @property
    def is_smooth(self) -> bool:
        """Whether the kernel is stretched where a result shrinks, so that no place is lost."""
        return self.antialias and self.mode != "nearest"

    def falloff(self, distance: Expr) -> Expr:
        """How much a place counts at a distance."""
        x = op.absolute(distance)
        if self.mode == "linear":
            return op.maximum(WHOLE - x, NOTHING)
        a = self.cubic
        near = ((number(a + 2) * x - number(a + 3)) * x) * x + WHOLE
        far = ((number(a) * x - number(5 * a)) * x + number(8 * a)) * x - number(4 * a)
        return op.where(x > WHOLE, op.where(x < number(2.0), far, NOTHING), near)


@attrs.frozen(eq=False)
class ResizeGrid:
    """Where the places of a result lie on an axis of the input, and whether the size of the result
    was given, whatever that of the input is."""

    before: Scalar
    after: Scalar
    scale: Expr
    mode: str
    start: Expr = NOTHING
    stop: Expr = WHOLE
    given: bool = False

    @property
    def sizes(self) -> tuple[int, int] | None:
        """The sizes before and after, where these and the scale are numbers."""
        before, after = known(self.before), known(self.after)
        if before is None or after is None or not isinstance(settled(self.scale), Const):
            return None
        region = (settled(self.start), settled(self.stop))
        return (before, after) if all(isinstance(each, Const) for each in region) else None

    def places(self) -> Expr:
        """The place in the input of each place of the result."""
        at = to(places(self.after), f64)
        before = to(amount(self.before), f64)
        length, last = self.scale * before, before - WHOLE
        single = op.equal(length, WHOLE)
        rest = op.where(single, WHOLE, length - WHOLE)
        half = (at + HALF) / self.scale - HALF
        match self.mode:
            case "asymmetric":
                return at / self.scale
            case "align_corners":
                return op.where(single, at * NOTHING, at * last / rest)
            case "tf_crop_and_resize":
                span = (self.stop - self.start) * last
                steps = at * span / rest
                step = op.where(single, at * NOTHING + HALF * span, steps)
                return step + self.start * last
            case "pytorch_half_pixel":
                return op.where(single, at * NOTHING + number(-0.5), half)
            case "half_pixel_symmetric":
                part = to(amount(self.after), f64) / length
                shift = before * HALF * (WHOLE - part)
                return shift + half
            case _:
                return half


def _tap(grid: ResizeGrid, kernel: ResizeKernel, at: Expr, step: Expr) -> tuple[Expr, Expr]:
    """The places a given number of steps from those that places of the result lie at, and their
    weights."""
    place = to(op.floor(at), i64) + step
    distance = to(place, f64) - at
    distance = distance * op.minimum(grid.scale, WHOLE) if kernel.is_smooth else distance
    weight = kernel.falloff(distance)
    if kernel.exclude:
        out = op.logical_or(place < ZERO, place >= amount(grid.before))
        weight = op.where(out, NOTHING, weight)
    return place, weight


def _reach(grid: ResizeGrid, kernel: ResizeKernel) -> Expr:
    """How far places lie at most that a smooth kernel looks at."""
    shrink = op.minimum(grid.scale, WHOLE)
    return to(op.ceil(number(float(kernel.radius)) / shrink), i64) + ONE


def _normalised(weight: Expr, total: Expr) -> Expr:
    return weight / op.where(op.equal(total, NOTHING), WHOLE, total)


def _steps(kernel: ResizeKernel) -> range:
    """The steps to the places that a kernel which is not stretched looks at."""
    return range(1 - kernel.radius, kernel.radius + 1)


def _tables(*of: Expr) -> list[Array]:
    """The elements of expressions over constants, which are computed together."""
    found = computed(Tuple(of))
    assert isinstance(found, tuple)
    return [const(each).numpy() for each in found]


def weights(grid: ResizeGrid, kernel: ResizeKernel) -> Array:
    """The matrix from the places of an input to those of a result, whose sizes are numbers."""
    sizes = grid.sizes
    assert sizes is not None
    before, after = sizes
    rows, at = np.arange(after), grid.places()
    whole = np.zeros((after, before))
    if kernel.mode == "nearest":
        (chosen,) = _tables(NEAREST[kernel.nearest](at))
        whole[rows, np.clip(chosen, 0, before - 1).astype(np.int64)] = 1
        return whole
    steps = _steps(kernel)
    if kernel.is_smooth:
        (reach_,) = _tables(_reach(grid, kernel))
        reach = int(reach_)
        steps = range(-reach, reach + 2)
    taps = [expr for step in steps for expr in _tap(grid, kernel, at, const(step, i64))]
    tables = _tables(*taps)
    for place, weight in zip(tables[::2], tables[1::2], strict=True):
        np.add.at(whole, (rows, np.clip(place, 0, before - 1)), weight)
    total = whole.sum(axis=1, keepdims=True)
    return whole / np.where(total == 0, 1.0, total) if kernel.antialias or kernel.exclude else whole


def _by_matrix(x: Expr, axis: int, matrix: Array) -> Expr:
    """x resampled along one axis."""
    used = int((matrix != 0).sum(axis=1).max(initial=1))
    if used > MOST_TAPS:
        turned = op.matmul(
            op.swapaxes(x, axis, rank(x) - 1), const(matrix.T.astype(dtype(x).numpy))
        )
        return op.swapaxes(turned, axis, rank(x) - 1)
    order = np.argsort(matrix == 0, axis=1, kind="stable")[:, :used]
    parts: list[Expr] = []
    for tap in range(used):
        places = order[:, tap].astype(np.int64)
        part = op.take(x, const(places), axis=axis)
        factor = matrix[np.arange(len(places)), places]
        if not (factor == 1).all():
            vector = const(factor.astype(dtype(x).numpy), dtype(x))
            part = part * along(vector, axis, rank(x))
        parts.append(part)
    return reduce(op.add, parts)


def repeats(grid: ResizeGrid, kernel: ResizeKernel) -> int | None:
    """The factor by which each place is repeated in turn, or None if the result is another one.

    Places of a whole factor lie alike in every step of the input, unless ends are aligned.

    >>> halves = ResizeGrid(index(5), index(10), number(2.0), "half_pixel")
    >>> repeats(halves, ResizeKernel("nearest")), repeats(halves, ResizeKernel("nearest", "ceil"))
    (2, None)
    """
    factor = settled(grid.scale)
    if kernel.mode != "nearest" or grid.mode in UNEVEN or not isinstance(factor, Const):
        return None
    scale = int(factor.numpy().item())
    if scale != factor.numpy().item() or not same_dim(grid.after, grid.before * scale):
        return None
    some = attrs.evolve(grid, before=index(SAMPLED_PLACES), after=index(SAMPLED_PLACES * scale))
    (chosen,) = _tables(NEAREST[kernel.nearest](some.places()))
    chosen = np.clip(chosen, 0, SAMPLED_PLACES - 1)
    return scale if np.array_equal(chosen, np.arange(len(chosen)) // scale) else None


def _along(node: OnnxNode, x: Expr, axis: int, grid: ResizeGrid, kernel: ResizeKernel) -> Expr:
    """x resampled along one axis."""
    if (times := repeats(grid, kernel)) is not None:
        return op.repeat(x, repeats=times, axis=axis)
    if (sizes := grid.sizes) is not None:
        matrix = weights(grid, kernel)
        plain = sizes[0] == sizes[1] and np.array_equal(matrix, np.eye(sizes[0]))
        return x if plain else _by_matrix(x, axis, matrix)
    at, last = grid.places(), amount(grid.before) - ONE
    if kernel.mode == "nearest":
        chosen = to(NEAREST[kernel.nearest](at), i64)
        return op.take(x, clamped(chosen, ZERO, last), axis=axis)
    if kernel.is_smooth:  # how many places are under a weight is a size, too
        reach = _reach(grid, kernel)
        count = node.measured((reach + ONE) * const(2, i64), f"taps {axis}")
        step = op.expand_dims(places(count), (0,)) - reach
        place, weight = _tap(grid, kernel, op.expand_dims(at, (1,)), step)
        weight = _normalised(weight, op.sum(weight, axis=(1,), keepdims=True))
        taken = op.take(x, clamped(place, ZERO, last), axis=axis)
        form = tuple(s if axis <= o <= axis + 1 else index(1) for o, s in enumerate(shape(taken)))
        return op.sum(taken * op.reshape(to(weight, dtype(x)), form), axis=(axis + 1,))
    taps = [_tap(grid, kernel, at, const(step, i64)) for step in _steps(kernel)]
    if kernel.exclude:
        total = reduce(op.add, [weight for _, weight in taps])
        taps = [(place, _normalised(weight, total)) for place, weight in taps]
    return reduce(op.add, [
        op.take(x, clamped(place, ZERO, last), axis=axis)
        * along(to(weight, dtype(x)), axis, rank(x))
        for place, weight in taps
    ])  # fmt: skip


def _growth(of: tuple[int, ResizeGrid]) -> tuple[bool, int]:
    """The order of axes: shrinking ones first, rows before elements; then growing ones, elements
    before rows."""
    axis, grid = of
    factor = settled(grid.scale)
    grows = isinstance(factor, Const) and factor.numpy().item() > 1
    return grows, -axis if grows else axis


def _resampled(
    node: OnnxNode, grids: dict[int, ResizeGrid], kernel: ResizeKernel, outside: float
) -> Expr:
    """The input resampled along the axes of the grids."""
    x = node.x()
    for before, after in [grid.sizes for grid in grids.values() if grid.sizes is not None]:
        if before * after > MOST_WEIGHTS:
            found = f"{before} to {after}"
            node.unsupported("An axis is too long to resample.", str(MOST_WEIGHTS), found)
        if before == 0 and after:
            node.malformed("An empty axis cannot be resized.", "1 or more", "0")
    of, exact = dtype(x), kernel.mode == "nearest"
    if not exact and not of.is_float:
        message = "Integers are resized to their nearest only: the standard says no rounding."
        node.unsupported(message, "nearest", str(of))
    # An axis without elements has nothing near any place: it is resized to none.
    late = [each for each in grids.values() if each.given and each.sizes is None]
    asked = [normal_dim(each.after * each.before - each.after) for each in late]
    least = tuple([scalar for scalar in asked if not is_size(scalar)])
    x = op.match_shape(x, shape(x), least=least) if least else x
    whole = x if exact else in_f32(x)
    for axis, grid in sorted(grids.items(), key=_growth):
        whole = _along(node, whole, axis, grid, kernel)
    whole = to(whole, of)
    for axis, grid in grids.items():
        if grid.mode == "tf_crop_and_resize":
            at, last = grid.places(), to(amount(grid.before), f64) - WHOLE
            missed = op.logical_or(at < NOTHING, at > last)
            missed = missed if grid.sizes is None else const(_tables(missed)[0])
            if not isinstance(missed, Const) or missed.numpy().any():
                mask = along(missed, axis, rank(whole))
                whole = op.where(mask, like(outside, whole), whole)
    return whole


def _kernel(node: OnnxNode) -> ResizeKernel:
    mode = node.text("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear", "trilinear", "cubic"):
        node.malformed("There is no such mode.", "nearest, linear or cubic", repr(mode))
    return ResizeKernel("linear" if mode.endswith("linear") else mode)


def _grids(  # noqa: PLR0917  # every way to say where the places lie
    node: OnnxNode, axes: tuple[int, ...], scales: Sequence[Expr] | None,
    sizes: Sequence[Piece] | None, mode: str, region: Sequence[Expr] | None,
) -> dict[int, ResizeGrid]:  # fmt: skip
    """The grids of the axes that are resampled."""
    given, count = node.shape(), len(axes)
    if len(scales if scales is not None else sizes or ()) != count:
        node.malformed("There must be a scale or a size for each axis.", str(count), "others")
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    factors = [] if scales is None else [*scales]
    for axis, size in zip(axes, sizes or (), strict=False) if scales is None else ():
        own = op.maximum(amount(given[axis]), ONE)
        factors.append(settled(to(amount(size), f64) / to(own, f64)))
    numbers = [each.numpy().item() for each in factors if isinstance(each, Const)]
    if any(not math.isfinite(each) or each < 0 for each in numbers):
        node.malformed("A scale is no positive number.", "above 0", str(numbers))
    stretched = scales is None and policy == "stretch"
    if scales is None and not stretched and factors:
        if policy not in ("not_larger", "not_smaller"):
            node.malformed("There is no such policy.", "not_larger, not_smaller", repr(policy))
        join = op.minimum if policy == "not_larger" else op.maximum
        factors = [settled(reduce(join, factors))] * count
    grids: dict[int, ResizeGrid] = {}
    for at, axis in enumerate(axes):
        before, factor = given[axis], factors[at]
        plain = factor.numpy().item() if isinstance(factor, Const) else None
        if stretched:
            assert sizes is not None
            after = size_from(node, sizes[at], axis)
        elif scales is not None and plain is not None and plain.is_integer() and plain >= 1:
            after = normal_dim(before * int(plain))
        else:
            wide = to(amount(before), f64) * factor
            rounded = to(op.floor(wide if scales is not None else wide + HALF), i64)
            fits = op.logical_and(factor > NOTHING, factor < number(math.inf))
            if plain is not None and (plain > 0 or known(before) is not None):
                fits = const(True)  # a size of 0 has a factor of 0
            after = node.measured(lawful(rounded, fits, "scale"), axis)
        if (long := known(after)) is not None and long > LONGEST:
            node.unsupported("A result is too long to be resampled.", str(LONGEST), str(long))
        stays = same_dim(before, after) and (known(before) is None or plain == 1)
        if stays and mode != "tf_crop_and_resize":
            continue
        factor = settled(op.where(op.equal(factor, NOTHING), WHOLE, factor))
        ends = (NOTHING, WHOLE) if region is None else (region[at], region[at + count])
        grids[axis] = ResizeGrid(before, after, factor, mode, *ends, stretched)
    sizes_ = [known(grids[at].after if at in grids else size) for at, size in enumerate(given)]
    whole = math.prod(1 if each is None else each for each in sizes_)
    if whole * node.type().dtype.bytes > MAX_TENSOR_BYTES:  # before there are tables for every axis
        message = "The result is too large to be held in memory."
        node.unsupported(message, f"at most {MAX_TENSOR_BYTES} bytes", f"{whole} elements")
    return grids


_MODES: Final = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_crop_and_resize",
)  # fmt: skip


def _resize(node: OnnxNode) -> Expr:
    kernel, axes = _kernel(node), tuple(range(node.rank()))
    if node.opset < 11:
        return _scaled(node)
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    nearest = node.text("nearest_mode", "round_prefer_floor")
    if mode not in _MODES or nearest not in NEAREST:
        node.unsupported("There is no such way to resize.", ", ".join(_MODES), f"{mode}, {nearest}")
    given = node.integers("axes")
    axes = axes if given is None else axes_in(node, given, node.rank())
    kernel = attrs.evolve(
        kernel,
        antialias=node.flag("antialias"),
        nearest=nearest,
        cubic=node.real("cubic_coeff_a", -0.75),
        exclude=node.flag("exclude_outside"),
    )
    roi, scales, sizes = (node.value(at) for at in (1, 2, 3))
    region = None
    if mode == "tf_crop_and_resize":
        if roi is None:
            node.malformed("tf_crop_and_resize needs a region.", "roi", "none")
        region = _elements(roi)
        if len(region) != 2 * len(axes):
            node.malformed("The region does not fit.", str(2 * len(axes)), str(len(region)))
    factors = None
    if scales is not None and known(product(scales.type.shape)) != 0:
        factors = _elements(scales, len(axes))
    if factors is None and sizes is None:
        node.malformed("Resize has scales or sizes.", "one of them", "none")
    wanted = None if factors is not None else pieces(node, 3)
    grids = _grids(node, axes, factors, wanted, mode, region)
    return _resampled(node, grids, kernel, node.real("extrapolation_value", 0.0))


def _elements(of: TensorValue, count: int = 0) -> list[Expr]:
    """The elements of a vector, `count` of them if its length is open."""
    if (numbers := of.numbers()) is not None:
        return [number(float(each)) for each in numbers.reshape(-1)]
    length = known(product(of.type.shape))
    return [to(select(of.expr, at), f64) for at in range(count if length is None else length)]


def _scaled(node: OnnxNode) -> Expr:
    """Resize by scales alone, as the first versions do."""
    kernel, axes = attrs.evolve(_kernel(node), nearest="floor"), tuple(range(node.rank()))
    given = node.need(1) if node.proto.op_type == "Resize" or node.opset >= 9 else None
    scales = [number(each) for each in node.reals("scales") or ()]
    scales = scales if given is None else _elements(given, len(axes))
    grids = _grids(node, axes, scales, None, "asymmetric", None)
    return _resampled(node, grids, kernel, 0.0)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Resize":   _resize,
    "Upsample": _scaled,
}
# fmt: on
