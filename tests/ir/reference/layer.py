"""Cases and meanings of losses, sampled convolutions, sparse weights and blocks of the batch."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np

from plica.ir.type.dtype import DTYPES, bf16, f16, f32, u8
from tests.ir.reference.case import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    Array,
    Case,
    Draw,
    array,
    case,
    one,
    shapes,
)
from tests.ir.reference.case_neural import padding, per_axis, spread
from tests.ir.reference.meaning import REFERENCE, nn, wide

# --- losses --------------------------------------------------------------------------------------


@case("nn.nll_loss", "nn.cross_entropy")
def _loss(draw: Draw, name: str) -> Case:
    n, c, *rest = draw(shapes(2, 4, side=1))
    dtype = draw(st.sampled_from(FLOATS))
    x = draw(array(dtype, (n, c, *rest), finite=True))
    weight = np.abs(draw(array(dtype, (c,), finite=True)).astype(np.float64)) + 0.5
    attrs = {
        "reduction": draw(st.sampled_from(["mean", "sum", "none"])),
        "ignore_index": draw(st.integers(-1, c - 1)),
    }
    if name == "nn.cross_entropy" and draw(st.booleans()):
        target = np.abs(draw(array(dtype, x.shape, finite=True)))
    else:
        low = min(attrs["ignore_index"], 0)
        numbers = st.integers(low, c - 1).filter(lambda at: at >= 0 or at == attrs["ignore_index"])
        count = n * math.prod(rest)
        drawn = draw(st.lists(numbers, min_size=count, max_size=count))
        target = np.array(drawn, draw(st.sampled_from([np.int32, np.int64]))).reshape(n, *rest)
    return Case((x, target, weight.astype(dtype.numpy)), attrs)


@nn("nn.nll_loss")
def nll_loss(x: Array, target: Array, weight: Array, reduction: str, ignore_index: int) -> Any:
    losses, weights = np.zeros(target.shape), np.zeros(target.shape)
    for at in np.ndindex(*target.shape):
        if target[at] != ignore_index:
            weights[at] = weight[target[at]]
            losses[at] = -x[(at[0], target[at], *at[1:])] * weights[at]
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / weights.sum()


@nn("nn.cross_entropy")
def _entropy(x: Array, target: Array, weight: Array, reduction: str, ignore_index: int) -> Any:
    logs = x - np.max(x, 1, keepdims=True)
    logs = logs - np.log(np.sum(np.exp(logs), 1, keepdims=True))
    if target.dtype.kind != "f":
        return nll_loss(logs, target, weight, reduction, ignore_index)
    parts = logs * target * weight.reshape(1, -1, *(1,) * (x.ndim - 2))
    losses = -parts.sum(1)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.mean()


# --- sampled convolutions ------------------------------------------------------------------------


@case("nn.deformable_conv2d")
def _deformed(draw: Draw, _: str) -> Case:
    split, groups, own, out, n = (draw(st.integers(1, 2)) for _ in range(5))
    channels = split * groups * own
    kernel = tuple(draw(st.integers(1, 2)) for _ in range(2))
    attrs = {
        "strides": per_axis(draw, 2, 1, 2),
        "padding": padding(draw, 2, 1),
        "dilation": per_axis(draw, 2, 1, 2),
        "groups": split,
    }
    reach = [d * (k - 1) + 1 for d, k in zip(spread(attrs["dilation"], 2), kernel, strict=True)]
    size = tuple(draw(st.integers(least, least + 2)) for least in reach)
    sides = [s if isinstance(s, tuple) else (s, s) for s in spread(attrs["padding"], 2)]
    spots = [
        (whole + sum(side) - far) // stride + 1
        for whole, side, far, stride in zip(
            size, sides, reach, spread(attrs["strides"], 2), strict=True
        )
    ]
    taps = groups * kernel[0] * kernel[1]
    dtype = draw(st.sampled_from(FLOATS))
    forms = [
        (n, channels, *size), (n, 2 * taps, *spots), (n, taps, *spots),
        (split * out, channels // split, *kernel),
    ]  # fmt: skip
    return Case(tuple(draw(array(dtype, form, finite=True)) for form in forms), attrs)


def _sample(image: Array, y: float, x: float) -> float:
    """Between pixels; there are zeros outside."""
    total = 0.0
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                total += image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


@nn("nn.deformable_conv2d")
def _deformable(
    x: Array, offset: Array, mask: Array, weight: Array, *,
    strides: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Any:  # fmt: skip
    (high, broad), taps = weight.shape[2:], weight.shape[2] * weight.shape[3]
    own = offset.shape[1] // (2 * taps)
    step, far = spread(strides, 2), spread(dilation, 2)
    before = [side[0] if isinstance(side, tuple) else side for side in spread(padding, 2)]
    found = np.zeros((x.shape[0], weight.shape[0], *offset.shape[2:]))
    for n, o, i, j in np.ndindex(*found.shape):
        group = o // (weight.shape[0] // groups)
        for c, a, b in np.ndindex(weight.shape[1], high, broad):
            channel = group * weight.shape[1] + c
            tap = channel // (x.shape[1] // own) * taps + a * broad + b
            y = i * step[0] - before[0] + a * far[0] + offset[n, 2 * tap, i, j]
            z = j * step[1] - before[1] + b * far[1] + offset[n, 2 * tap + 1, i, j]
            value = _sample(x[n, channel], y, z) * mask[n, tap, i, j]
            found[n, o, i, j] += value * weight[o, c, a, b]
    return found


@case("nn.correlation")
def _displaced(draw: Draw, _: str) -> Case:
    kernel, most = draw(st.sampled_from([1, 3])), draw(st.integers(0, 2))
    attrs = {
        "kernel": kernel, "max_displacement": most, "stride": draw(st.integers(1, 2)),
        "displacement_stride": draw(st.integers(1, 2)), "padding": draw(st.integers(0, 2)),
        "multiply": draw(st.booleans()),
    }  # fmt: skip
    least = max(1, 2 * (most + kernel // 2 - attrs["padding"]) + 1)
    size = [draw(st.integers(least, least + 2)) for _ in range(2)]
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *size)
    dtype = draw(st.sampled_from(FLOATS))
    return Case(tuple(draw(array(dtype, shape, finite=True)) for _ in range(2)), attrs)


@nn("nn.correlation")
def _correlation(
    x: Array, y: Array, *, kernel: int = 1, max_displacement: int = 1, stride: int = 1,
    displacement_stride: int = 1, padding: int = 0, multiply: bool = True,
) -> Any:  # fmt: skip
    sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    a, b = np.pad(x, sides), np.pad(y, sides)
    reach = max_displacement // displacement_stride
    border = max_displacement + kernel // 2
    moves = [step * displacement_stride for step in range(-reach, reach + 1)]
    rows, columns = (-(-(size - 2 * border) // stride) for size in a.shape[2:])
    found = np.zeros((x.shape[0], len(moves) ** 2, rows, columns))
    for i, j in np.ndindex(rows, columns):
        top, left = i * stride + max_displacement, j * stride + max_displacement
        mine = a[:, :, top : top + kernel, left : left + kernel]
        for at, (down, right) in enumerate((p, q) for p in moves for q in moves):
            other = b[:, :, top + down :, left + right :][:, :, :kernel, :kernel]
            away = mine * other if multiply else np.abs(mine - other)
            found[:, at, i, j] = away.mean((1, 2, 3))
    return found


# --- regions -------------------------------------------------------------------------------------


@case("nn.roi_align")
def _regions(draw: Draw, _: str) -> Case:
    shape, boxes = draw(shapes(4, 4, side=1)), draw(st.integers(0, 2))
    dtype = draw(st.sampled_from([each for each in FLOATS if each.bits > 16]))
    attrs = {
        "size": tuple(draw(st.integers(1, 2)) for _ in range(2)),
        "scale": draw(st.sampled_from([1.0, 0.5])),
        "samples": (samples := draw(st.integers(0, 2))),
        "half_pixel": draw(st.booleans()),
        "mode": draw(st.sampled_from(["avg", "max"])) if samples else "avg",
    }
    corners = st.sampled_from([-2.5, -1.1, 0.0, 0.3, 0.7, 1.2, 1.9, 2.6, 3.3, 5.7])
    rois = np.array([[draw(corners) for _ in range(4)] for _ in range(boxes)], dtype.numpy)
    batch = np.array([draw(st.integers(0, shape[0] - 1)) for _ in range(boxes)], np.int32)
    x = draw(array(dtype, shape, finite=True))
    return Case((x, rois.reshape(boxes, 4), batch), attrs)


def _near(image: Array, y: float, x: float) -> list[float]:
    """What the four pixels around a place count; none do a pixel or more outside."""
    rows, columns = image.shape
    if not (-1 <= y <= rows and -1 <= x <= columns):
        return [0.0] * 4
    y, x = min(max(y, 0.0), rows - 1.0), min(max(x, 0.0), columns - 1.0)
    return [
        image[min(math.floor(y) + a, rows - 1), min(math.floor(x) + b, columns - 1)]
        * (y % 1 if a else 1 - y % 1)
        * (x % 1 if b else 1 - x % 1)
        for a in (0, 1)
        for b in (0, 1)
    ]


def _aligned(
    x: Array, rois: Array, batch: Array, *, size: Any, scale: float, samples: int,
    half_pixel: bool, mode: str,
) -> Any:  # fmt: skip
    found = np.zeros((len(rois), x.shape[1], *size))
    shift, few = (0.5 if half_pixel else 0.0), (-np.inf if half_pixel else 1.0)
    for r, c, i, j in np.ndindex(*found.shape):
        left, top, right, bottom = (float(each) * scale - shift for each in rois[r])
        step = max(bottom - top, few) / size[0], max(right - left, few) / size[1]
        down, right_ = (samples or math.ceil(each) for each in step)
        values = [
            _near(
                x[batch[r], c],
                top + (i + (a + 0.5) / down) * step[0],
                left + (j + (b + 0.5) / right_) * step[1],
            )
            for a in range(down)
            for b in range(right_)
        ] or [[0.0] * 4]
        sums = [sum(each) for each in values]
        found[r, c, i, j] = np.mean(sums) if mode == "avg" else np.max(values)
    return found


nn("nn.roi_align")(_aligned)

# --- numbers of few bits -------------------------------------------------------------------------


@case("nn.bitserial_dense", "nn.bitserial_conv")
def _few_bits(draw: Draw, name: str) -> Case:
    rank = 0 if name == "nn.bitserial_dense" else 2
    dtype = draw(st.sampled_from(INTEGERS))
    channels = draw(st.integers(1, 4))
    x = draw(array(dtype, (draw(st.integers(1, 2)), channels, *(4,) * rank)))
    weight = draw(array(dtype, (draw(st.integers(1, 3)), channels, *(2,) * rank)))
    attrs: dict[str, Any] = {
        "activation_bits": draw(st.integers(1, 4)),
        "weight_bits": draw(st.integers(1, 4)),
        "unipolar": draw(st.booleans()),
    }
    if rank:
        attrs |= {"strides": draw(st.integers(1, 2)), "padding": draw(st.integers(0, 1))}
    return Case((x, weight), attrs)


def _planes(x: Array, bits: int) -> list[Array]:
    return [(x.astype(np.int64) >> bit) & 1 for bit in range(bits)]


def _by_planes(product: Any) -> Any:
    """Planes of bits, combined and counted."""

    def meaning(
        x: Array, weight: Array, activation_bits: int, weight_bits: int, unipolar: bool, **how: Any
    ) -> Any:
        total: Any = 0
        for i, mine in enumerate(_planes(x, activation_bits)):
            for j, other in enumerate(_planes(weight, weight_bits)):
                count = product(mine, other, **how)
                if unipolar:
                    count = count - product(mine, 1 - other, **how)
                total = total + (count << (i + j))
        return total

    return meaning


REFERENCE["nn.bitserial_dense"] = _by_planes(lambda x, w: x @ w.T)
REFERENCE["nn.bitserial_conv"] = _by_planes(
    lambda x, w, **how: np.round(REFERENCE["nn.conv"](x, w, **how)).astype(np.int64)
)


@case("nn.packed_dense")
def _packed(draw: Draw, _: str) -> Case:
    bits, words, groups = draw(st.sampled_from((2, 4, 8))), draw(st.integers(1, 2)), 2
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 2)) * words
    held = draw(st.integers(0, 2**31 - 1))
    random = np.random.default_rng(held)
    words_of = random.integers(-(2**31), 2**31, (rows, columns * groups)).astype(np.int32)
    dtype = draw(st.sampled_from((f32, f32, f16, bf16)))
    x = draw(array(dtype, (draw(st.integers(0, 2)), columns * groups * 32 // bits)))
    scale = draw(array(dtype, (rows, groups)))
    zero = draw(array(draw(st.sampled_from((u8, f32))) if dtype is f32 else u8, (rows, groups)))
    return Case((x, words_of, scale, zero), {"bits": bits})


def _unpacked(x: Array, weight: Array, scale: Array, zero: Array, bits: int) -> Any:
    """Bytes are unpacked to bits, which are numbers again."""
    ordered = np.ascontiguousarray(weight.astype("<i4")).view(np.uint8)
    planes = np.unpackbits(ordered, axis=1, bitorder="little").reshape(len(weight), -1, bits)
    numbers = (planes * 2 ** np.arange(bits)).sum(axis=2).astype(np.float64)
    group = numbers.shape[1] // scale.shape[1]
    points, scales = (np.repeat(each.astype(np.float64), group, axis=1) for each in (zero, scale))
    return x.astype(np.float64) @ ((numbers - points) * scales).T


REFERENCE["nn.packed_dense"] = _unpacked


@case("bit_field")
def _fields(draw: Draw, _: str) -> Case:
    width = draw(st.sampled_from((1, 2, 3, 4, 6, 7, 8, 16, 32)))
    inner = draw(st.integers(1, 8 // width)) if width < 8 else 1
    unit, outer = max(width, 8), draw(st.integers(1, 3))
    start = draw(st.integers(0, 8 - inner * width)) if width < 8 else 0
    at = 8 * draw(st.integers(0, 2)) + start
    room = 8 - start - inner * width if width < 8 and outer > 1 else 0
    step = unit * draw(st.integers(1, 2)) + draw(st.integers(0, room // max(outer - 1, 1)))
    block = (at + (outer - 1) * step + max(inner * width, 8)) // 8 + draw(st.integers(1, 2))
    shape = (*draw(st.sampled_from(((), (2,), (2, 1)))), block * draw(st.integers(0, 2)))
    x = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, shape).astype(np.uint8)
    how = {"block": block, "at": at, "width": width, "signed": draw(st.booleans())}
    return Case(
        (x,), {**how, "extents": (outer, inner), "strides": (step, width if width < 8 else 0)}
    )


def _fields_of(  # noqa: PLR0917  # as the operator has them
    x: Array, block: int, at: int, width: int, extents: Any, strides: Any, signed: bool = False
) -> Any:
    planes = np.unpackbits(x.reshape(*x.shape[:-1], -1, block), axis=-1, bitorder="little")
    found = np.zeros((*planes.shape[:-1], *extents), np.int64)
    for place in np.ndindex(*extents):
        first = at + sum(n * s for n, s in zip(place, strides, strict=True))
        taken = planes[..., first : first + width].astype(np.int64)
        number = (taken << np.arange(width)).sum(axis=-1)
        below = 1 << width if signed or width == 32 else 0
        found[(..., *place)] = np.where(number >> (width - 1) == 1, number - below, number)
    return found.astype(np.int32)


REFERENCE["bit_field"] = _fields_of

# --- sparse weights ------------------------------------------------------------------------------


@case("nn.sparse_dense")
def _sparse(draw: Draw, _: str) -> Case:
    rows, columns, batch = (draw(st.integers(low, 4)) for low in (0, 1, 1))
    dtype = draw(st.sampled_from(NUMBERS))
    counts = [draw(st.integers(0, 3)) for _ in range(rows)]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    places = [draw(st.integers(0, columns - 1)) for _ in range(sum(counts))]
    x, data = draw(array(dtype, (batch, columns))), draw(array(dtype, (sum(counts),)))
    return Case((x, data, np.array(places, np.int64), starts), {})


def _times_sparse(x: Array, data: Array, places: Array, starts: Array) -> Any:
    x, data = wide(x), wide(data)
    found = np.zeros((x.shape[0], len(starts) - 1), x.dtype)
    with np.errstate(all="ignore"):
        for row in range(len(starts) - 1):
            for at in range(starts[row], starts[row + 1]):
                found[:, row] += x[:, places[at]] * data[at]
    return found


REFERENCE["nn.sparse_dense"] = _times_sparse

# --- blocks of the batch -------------------------------------------------------------------------


@case("nn.space_to_batch", "nn.batch_to_space")
def _blocks(draw: Draw, name: str) -> Case:
    blocks = tuple(draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 2))))
    rest, n = draw(shapes(0, 1)), draw(st.integers(1, 2))
    sides, sizes = [], []
    for block in blocks:
        before, after = (draw(st.integers(0, 1)) for _ in range(2))
        sides.append((before, after))
        whole = draw(st.integers(1, 2))
        size = (whole + 1) * block - before - after if name == "nn.space_to_batch" else whole + 1
        if size < 0 or (name == "nn.batch_to_space" and size * block < before + after):
            sides[-1], size = (0, 0), block
        sizes.append(size)
    attrs: dict[str, Any] = {"block": blocks, "sides": tuple(sides)}
    if name == "nn.space_to_batch":
        attrs["value"] = draw(st.integers(0, 1))
    else:
        n *= math.prod(blocks)
    return Case((one(draw, DTYPES, (n, *sizes, *rest)),), attrs)


def _to_batch(x: Array, block: Any, sides: Any, value: Any = 0) -> Any:
    rest = x.ndim - 1 - len(block)
    wider = np.pad(
        x.astype(np.float64), ((0, 0), *sides, *((0, 0),) * rest), constant_values=value
    ).astype(x.dtype)
    parts = [
        wider[(slice(None), *(slice(a, None, b) for a, b in zip(at, block, strict=True)))]
        for at in np.ndindex(*block)
    ]
    return np.concatenate(parts)


def _to_space(x: Array, block: Any, sides: Any) -> Any:
    n = x.shape[0] // math.prod(block)
    sizes = [size * b for size, b in zip(x.shape[1:], block, strict=False)]
    found = np.zeros((n, *sizes, *x.shape[1 + len(block) :]), x.dtype)
    for number, at in enumerate(np.ndindex(*block)):
        where = tuple(slice(a, None, b) for a, b in zip(at, block, strict=True))
        found[(slice(None), *where)] = x[number * n : (number + 1) * n]
    cuts = [slice(a, size - b) for (a, b), size in zip(sides, sizes, strict=True)]
    return found[(slice(None), *cuts)]


REFERENCE.update({"nn.space_to_batch": _to_batch, "nn.batch_to_space": _to_space})
