"""Cases of neural operators: windows that fit, weights that agree."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
from hypothesis import assume

from tests.ir.reference.case import FLOATS, NUMBERS, Case, Draw, array, axis_in, case, one, shapes

# --- linear --------------------------------------------------------------------------------------


@case("matmul")
def _matmul(draw: Draw, _: str) -> Case:
    found = draw(
        hnp.mutually_broadcastable_shapes(
            signature="(m?,n),(n,p?)->(m?,p?)", max_dims=2, min_side=0, max_side=3
        )
    )
    dtype = draw(st.sampled_from(NUMBERS))
    return Case(tuple(draw(array(dtype, each)) for each in found.input_shapes), {})


@case("nn.dense")
def _dense(draw: Draw, _: str) -> Case:
    *lead, k = draw(shapes(1))
    dtype = draw(st.sampled_from(NUMBERS))
    weight = draw(array(dtype, (draw(st.integers(0, 3)), k)))
    return Case((draw(array(dtype, (*lead, k))), weight), {})


@case("nn.batch_matmul")
def _batch_matmul(draw: Draw, _: str) -> Case:
    b, m, k, n = (draw(st.integers(0, 3)) for _ in range(4))
    left, right = draw(st.sampled_from([(b, b), (1, b), (b, 1)]))
    flags = {name: draw(st.booleans()) for name in ("transpose_x", "transpose_y")}
    x = (left, k, m) if flags["transpose_x"] else (left, m, k)
    y = (right, n, k) if flags["transpose_y"] else (right, k, n)
    dtype = draw(st.sampled_from(NUMBERS))
    return Case((draw(array(dtype, x)), draw(array(dtype, y))), flags)


@case("einsum")
def _einsum(draw: Draw, _: str) -> Case:
    equation = draw(
        st.sampled_from(
            ["ij,jk->ik", "ij->ji", "ij->", "bij,bjk->bik", "i,j->ij", "ii->i", "ii", "ij,ij->i",
             "abc,cd,d->ab", "ij,jk", "i->i", "ijk->kj"]
        )
    )  # fmt: skip
    sizes = {letter: draw(st.integers(0, 3)) for letter in "abcdijk"}
    dtype = draw(st.sampled_from(NUMBERS))
    parts = equation.partition("->")[0].split(",")
    args = tuple(draw(array(dtype, [sizes[c] for c in part])) for part in parts)
    return Case(args, {"equation": equation})


# --- windows -------------------------------------------------------------------------------------


def per_axis(draw: Draw, rank: int, low: int, high: int) -> Any:
    """One number for all axes, or one for each."""
    numbers = st.integers(low, high)
    return draw(st.one_of(numbers, st.tuples(*[numbers] * rank)))


def padding(draw: Draw, rank: int, high: int) -> Any:
    """One number, one for each axis, or pairs."""
    numbers = st.integers(0, high)
    pairs = st.tuples(*[st.tuples(numbers, numbers)] * rank)
    return draw(st.one_of(numbers, st.tuples(*[numbers] * rank), pairs))


def spread(value: Any, rank: int) -> tuple[Any, ...]:
    """One value for each axis."""
    return value if isinstance(value, tuple) else (value,) * rank


@case("nn.conv")
def _conv(draw: Draw, _: str) -> Case:
    rank = draw(st.integers(1, 3))
    groups, own, out = (draw(st.integers(1, 2)) for _ in range(3))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    attrs = {
        "strides": per_axis(draw, rank, 1, 2),
        "padding": padding(draw, rank, 2),
        "dilation": per_axis(draw, rank, 1, 2),
        "groups": groups,
    }
    reach = [d * (k - 1) + 1 for d, k in zip(spread(attrs["dilation"], rank), kernel, strict=True)]
    size = tuple(draw(st.integers(least, least + 2)) for least in reach)
    dtype = draw(st.sampled_from(NUMBERS))
    x = draw(array(dtype, (draw(st.integers(0, 2)), groups * own, *size)))
    return Case((x, draw(array(dtype, (groups * out, own, *kernel)))), attrs)


@case("nn.conv_transpose")
def _conv_transpose(draw: Draw, _: str) -> Case:
    rank = draw(st.integers(1, 2))
    groups, own, out = (draw(st.integers(1, 2)) for _ in range(3))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    attrs = {
        "strides": per_axis(draw, rank, 1, 3),
        "padding": padding(draw, rank, 1),
        "dilation": per_axis(draw, rank, 1, 2),
        "groups": groups,
        "output_padding": per_axis(draw, rank, 0, 1),
    }
    size = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    columns = zip(
        size,
        kernel,
        spread(attrs["strides"], rank),
        spread(attrs["dilation"], rank),
        spread(attrs["padding"], rank),
        strict=True,
    )
    for n, k, s, d, p in columns:
        assume((n - 1) * s + d * (k - 1) + 1 >= (sum(p) if isinstance(p, tuple) else 2 * p))
    dtype = draw(st.sampled_from(NUMBERS))
    x = draw(array(dtype, (draw(st.integers(0, 2)), groups * own, *size)))
    return Case((x, draw(array(dtype, (groups * own, out, *kernel)))), attrs)


@case("nn.max_pool", "nn.avg_pool")
def _pool(draw: Draw, name: str) -> Case:
    rank = draw(st.integers(1, 3))
    kernel = per_axis(draw, rank, 1, 3)
    least = min(spread(kernel, rank))
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "strides": draw(st.one_of(st.none(), st.just(per_axis(draw, rank, 1, 3)))),
        "padding": padding(draw, rank, least - 1),
        "ceil_mode": draw(st.booleans()),
    }
    reach = list(spread(kernel, rank))
    if name == "nn.max_pool":
        attrs["dilation"] = per_axis(draw, rank, 1, 2)
        dilation = spread(attrs["dilation"], rank)
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, reach, strict=True)]
    else:
        attrs["count_include_pad"] = draw(st.booleans())
    steps = spread(kernel if attrs["strides"] is None else attrs["strides"], rank)
    hangs = attrs["ceil_mode"] and set(spread(attrs.get("dilation", 1), rank)) == {1}
    least_sizes = [
        max(1, each + 1 - step) if hangs else each for each, step in zip(reach, steps, strict=True)
    ]
    size = tuple(draw(st.integers(each, each + 3)) for each in least_sizes)
    lead = tuple(draw(st.integers(0, 2)) for _ in range(2))
    dtypes = NUMBERS if name == "nn.max_pool" else FLOATS
    return Case((one(draw, dtypes, (*lead, *size)),), attrs)


@case("nn.adaptive_max_pool", "nn.adaptive_avg_pool")
def _adaptive(draw: Draw, name: str) -> Case:
    rank = draw(st.integers(1, 2))
    size = tuple(draw(st.integers(1, 7)) for _ in range(rank))
    dtypes = NUMBERS if name == "nn.adaptive_max_pool" else FLOATS
    x = one(draw, dtypes, (draw(st.integers(0, 2)), 1, *size))
    return Case((x,), {"output_size": per_axis(draw, rank, 1, 5)})


@case("nn.global_max_pool", "nn.global_avg_pool")
def _global(draw: Draw, name: str) -> Case:
    dtypes = NUMBERS if name == "nn.global_max_pool" else FLOATS
    return Case((one(draw, dtypes, draw(shapes(3, 4, side=1))),), {})


# --- norms ---------------------------------------------------------------------------------------


@case("nn.softmax", "nn.log_softmax")
def _softmax(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    return Case((one(draw, FLOATS, shape),), {"axis": axis_in(draw, len(shape))})


@case("nn.batch_norm")
def _batch_norm(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 4))
    dtype = draw(st.sampled_from(FLOATS))
    at = axis_in(draw, len(shape))
    x, *rest = (draw(array(dtype, each, finite=True)) for each in (shape, *[(shape[at],)] * 4))
    return Case((x, *rest[:3], abs(rest[3])), {"axis": at, "epsilon": 1e-3})


@case("nn.layer_norm", "nn.rms_norm")
def _tail(draw: Draw, name: str) -> Case:
    shape = draw(shapes(1, 3, side=1))
    at = axis_in(draw, len(shape))
    dtype = draw(st.sampled_from(FLOATS))
    own = shape[at % len(shape) :]
    count = 2 if name == "nn.layer_norm" else 1
    args = [draw(array(dtype, each, finite=True)) for each in (shape, *[own] * count)]
    return Case(tuple(args), {"axis": at, "epsilon": 1e-2})


@case("nn.instance_norm", "nn.group_norm")
def _groups(draw: Draw, name: str) -> Case:
    groups = draw(st.integers(1, 3))
    channels = groups * draw(st.integers(1, 2))
    shape = (draw(st.integers(0, 2)), channels, *draw(shapes(1, 2, side=1)))
    dtype = draw(st.sampled_from(FLOATS))
    each = [draw(array(dtype, s, finite=True)) for s in (shape, (channels,), (channels,))]
    attrs: dict[str, Any] = {"epsilon": 1e-2}
    if name == "nn.group_norm":
        attrs["groups"] = groups
    return Case(tuple(each), attrs)


@case("nn.l2_normalize")
def _l2(draw: Draw, _: str) -> Case:
    shape = draw(shapes(1, 3))
    x = one(draw, FLOATS, shape, finite=True)
    return Case((x,), {"axis": (axis_in(draw, len(shape)),), "epsilon": 1e-4})


@case("nn.lrn")
def _lrn(draw: Draw, _: str) -> Case:
    x = one(draw, FLOATS, draw(shapes(2)), finite=True)
    attrs = {"size": draw(st.integers(1, 5)), "alpha": 0.5, "beta": 0.75, "bias": 2.0}
    return Case((x,), attrs)


# --- Winograd ------------------------------------------------------------------------------------


WIDE = tuple(each for each in FLOATS if each.bits >= 32)


@case("dft")
def _dft(draw: Draw, _: str) -> Case:
    there = draw(st.integers(1, 6))
    length = draw(st.sampled_from((None, there + 3)))
    shape = (*draw(shapes(0, 1)), draw(st.integers(1, 2)), there, draw(st.sampled_from((0, 1, 17))))
    return Case(
        (draw(array(draw(st.sampled_from(WIDE)), shape, finite=True)),),
        {
            "length": length,
            "bins": draw(st.sampled_from((None, (length or there) // 2 + 1))),
            "parts": draw(st.integers(1, 2)),
            "inverse": draw(st.booleans()),
        },
    )


@case("nn.winograd_weight")
def _winograd_weight(draw: Draw, _: str) -> Case:
    dtype = draw(st.sampled_from(WIDE))
    shape = (draw(st.integers(0, 3)), draw(st.integers(0, 3)), 3, 3)
    return Case((draw(array(dtype, shape, finite=True)),), {"tile": draw(st.sampled_from((2, 4)))})


@case("nn.conv_winograd")
def _conv_winograd(draw: Draw, _: str) -> Case:
    dtype = draw(st.sampled_from(WIDE))
    tile = draw(st.sampled_from((2, 4)))
    channels, outputs = (draw(st.integers(1, 2)) for _ in range(2))
    size = tuple(draw(st.integers(3, 5)) for _ in range(2))
    x = draw(array(dtype, (draw(st.integers(0, 2)), channels, *size), finite=True))
    weight = draw(array(dtype, ((tile + 2) ** 2, channels, outputs), finite=True))
    return Case((x, weight), {"tile": tile, "padding": padding(draw, 2, 2)})
