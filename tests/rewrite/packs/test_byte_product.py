"""Products of restored bytes are those of integers: they mean the same, others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import add, cast, multiply, subtract
from plica.ir.op.linear import dense, matmul
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import DType, bf16, f16, f32, i8, i32, u8
from plica.ir.type.term import tensor
from plica.rewrite import approx, reassociates, rewrite
from plica.rewrite.packs.byte_middle import Array
from plica.rewrite.packs.byte_product import (
    BYTE_PRODUCTS,
    FEW_ROWS,
    MAX_TERMS,
    MIN_TERMS,
    few_bits_for,
)
from plica.rewrite.packs.byte_window import BYTE_WINDOWS, byte_channels_for, byte_windows_for
from tests.schedule.default.test_grouped import whole

FEW = settings(max_examples=max(4, settings().max_examples // 8), deadline=None)


def product(
    data: tuple[int, int],
    weight: Any,
    scales: tuple[Any, Any],
    zeros: tuple[Any, Any],
    make: Callable[[Expr, Expr], Expr] = matmul,
) -> Module:
    q = Var(Name("q"), tensor(data, "u8"))
    w = const(np.asarray(weight, np.int8), i8)
    sides = []
    for side, scale, zero in zip((q, w), scales, zeros, strict=True):
        moved = cast(side, f32)
        if zero is not None:
            moved = cast(subtract(cast(side, i32), const(np.asarray(zero, np.int32), i32)), f32)
        sides.append(multiply(moved, const(np.asarray(scale, np.float32), f32)))
    return whole([q], make(*sides))


def steps(of: Module) -> tuple[Module, list[str]]:
    after, derivation = rewrite(of, BYTE_PRODUCTS, reassociates)
    assert isinstance(after, Module)
    return after, [each.rule.name for each in derivation.steps]


@FEW
@given(st.data())
def test_the_product_means_the_same(data: st.DataObject) -> None:
    rows, depth, columns = (data.draw(st.integers(low, 40)) for low in (1, MIN_TERMS, 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    turned = data.draw(st.booleans())
    shapes = [(), (columns, 1)] if turned else [(), (columns,), (1, columns)]
    shape = data.draw(st.sampled_from(shapes))
    zero = data.draw(st.sampled_from([None, 0, 128, 255]))
    by: Any = data.draw(st.sampled_from([None, 0, -3, 100, "each"]))
    if by == "each":
        by = rng.integers(-128, 128, (columns, 1) if turned else (columns,))
    weight = rng.integers(-120, 121, (columns, depth) if turned else (depth, columns))
    scales, make = (0.05, rng.random(shape) + 0.1), dense if turned else matmul
    before = product((rows, depth), weight, scales, (zero, by), make)
    after, names = steps(before)
    assert 1 <= len(names) <= 2  # the second one moves what is no byte
    x = rng.integers(0, 256, (rows, depth)).astype(u8.numpy)
    wanted, found = plica.interpret(before, x), plica.interpret(after, x)
    scale = np.abs(wanted).max() + 1.0
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * scale)


LOWS = st.sampled_from([0, -255, 1000, None])


def lows(one: int | None, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The least number of each sum: one, or one for each, of which one is no signed byte's."""
    found = rng.integers(-255, 1, shape) if one is None else np.full(shape, one)
    found.flat[0] = -255 if one is None else one
    return found


@FEW
@given(st.data())
def test_bytes_of_the_other_sign_are_moved(data: st.DataObject) -> None:
    rows, depth, columns = (data.draw(st.integers(low, 40)) for low in (1, MIN_TERMS, 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    batch = data.draw(st.sampled_from([(), (2,), (2, 1)]))
    low = lows(data.draw(LOWS), rng, (*batch, 1, columns))
    weight = rng.integers(low, low + 255, (*batch, depth, columns), endpoint=True)
    weight.flat[0], weight.flat[-1] = low.flat[0], low.flat[-1] + 255
    weight = weight.astype(np.int32)
    q, z = Var(Name("q"), tensor((rows, depth), "u8")), Var(Name("z"), tensor((), "u8"))
    side = cast(q, i32)
    if data.draw(st.booleans()):
        side = subtract(side, cast(z, i32))
    before = whole([q, z], matmul(side, const(weight)))
    after, names = steps(before)
    assert len(names) == 1
    drawn = rng.integers(0, 256, (rows, depth))
    of_x = np.where(rng.random((rows, depth)) < 0.2, 255, drawn).astype(np.uint8)
    wanted = plica.interpret(before, of_x, np.uint8(255))
    for found in (plica.interpret(after, of_x, np.uint8(255)),
                  plica.compile(before, cache=False)(of_x, np.uint8(255))):  # fmt: skip
        np.testing.assert_array_equal(found, wanted)


@FEW
@given(st.data())
def test_windows_of_the_other_sign_are_moved(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    channels, outputs = data.draw(st.integers(8, 11)), data.draw(st.integers(1, 6))
    kernel = tuple(data.draw(st.integers(2, 3)) for _ in range(rank))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    low = lows(data.draw(LOWS), rng, (outputs, 1, *[1] * rank))
    weight = rng.integers(low, low + 255, (outputs, channels, *kernel), endpoint=True)
    weight.flat[0], weight.flat[-1] = low.flat[0], low.flat[-1] + 255
    attrs = {name: data.draw(st.integers(1, 2)) for name in ("padding", "strides", "dilation")}
    sizes = (2, channels, *[6] * rank)
    q, z = Var(Name("q"), tensor(sizes, "i8")), Var(Name("z"), tensor((), "i8"))
    side = cast(q, i32)
    if data.draw(st.booleans()):
        side = subtract(side, cast(z, i32))
    before = whole([q, z], conv(side, const(weight.astype(np.int32)), **attrs))
    after, names = steps(before)
    assert len(names) == 1
    of_q, of_z = rng.integers(-128, 128, sizes).astype(np.int8), np.int8(-128)
    wanted = plica.interpret(before, of_q, of_z)
    for found in (plica.interpret(after, of_q, of_z),
                  plica.compile(before, cache=False)(of_q, of_z)):  # fmt: skip
        np.testing.assert_array_equal(found, wanted)


@FEW
@given(st.data())
def test_the_window_means_the_same(data: st.DataObject) -> None:
    channels, outputs, size = (data.draw(st.integers(low, 7)) for low in (4, 1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    kernel = data.draw(st.sampled_from([(2, 3), (3, 3)]))
    weight = rng.integers(-120, 121, (outputs, channels, *kernel)).astype(np.int8)
    one = data.draw(st.booleans())
    scale = rng.random(() if one else (outputs, 1, 1, 1)) + 0.1
    zero, by = data.draw(st.sampled_from([0, 128, 255])), data.draw(st.booleans())
    x = Var(Name("x"), tensor((2, channels, size, size), "u8"))
    moved = cast(subtract(cast(x, i32), const(np.int32(zero))), f32)
    attrs = {"padding": data.draw(st.integers(0, 1)), "strides": data.draw(st.integers(1, 2))}
    points = rng.choice([0, 1, 127], scale.shape) if by else None
    before = whole(
        [x],
        conv(multiply(moved, const(np.float32(0.05))), restored(weight, scale, points), **attrs),
    )
    after, names = steps(before)
    assert 1 <= len(names) <= 2
    given_ = rng.integers(0, 256, (2, channels, size, size)).astype(np.uint8)
    wanted = plica.interpret(before, given_)
    near = 1e-5 * (np.abs(wanted).max() + 1.0)
    for found in (plica.interpret(after, given_), plica.compile(before, cache=False)(given_)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=near)


@pytest.mark.parametrize("least", [-(1 << 31), (1 << 31) - 256])
def test_numbers_at_the_ends_of_words(least: int) -> None:
    """What is taken away is reckoned modulo 2**32; numbers that are far apart stay."""
    x = Var(Name("x"), tensor((2, 20), "u8"))
    far = np.array([[-(1 << 31)] * 10 + [(1 << 31) - 1] * 10], np.int32).T
    before = whole([x], matmul(cast(x, i32), const(far)))
    assert steps(before) == (before, [])
    near = (least + np.arange(20, dtype=np.int64) * 13).astype(np.int32)[:, None]
    before = whole([x], matmul(cast(x, i32), const(near)))
    after, names = steps(before)
    assert len(names) == 1
    of_x = np.arange(40, dtype=np.uint8).reshape(2, 20)
    np.testing.assert_array_equal(plica.interpret(after, of_x), plica.interpret(before, of_x))


def test_native_code_means_the_same() -> None:
    rng = np.random.default_rng(0)
    before = product((3, 37), rng.integers(-127, 128, (37, 21)), (0.05, 0.02), (128, 0))
    x = rng.integers(0, 256, (3, 37)).astype(u8.numpy)
    found = plica.compile(before, cache=False, threads=1)(x)
    np.testing.assert_allclose(found, plica.interpret(before, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("scales", "zeros", "depth"),
    [
        ((0.5, np.full((20, 1), 0.5)), (128, 0), 20),
        ((np.full((3, 1), 0.5), 0.5), (128, 0), 20),
        ((np.inf, 0.5), (128, 0), 20),
        ((1e-30, 0.5), (128, 0), 20),
        ((0.5, 0.5), (1 << 20, 0), 20),
        ((0.5, 0.5), (128, 20 * np.arange(20)[:, None]), 20),
        ((0.5, 0.5), (128, 100), MAX_TERMS * 3 // 4),
        ((0.5, 0.5), (128, 0), MIN_TERMS - 1),
    ],
    ids=["rows", "lines", "infinite", "tiny", "far", "no bytes", "deep", "shallow"],
)
def test_other_products_stay(scales: tuple[Any, Any], zeros: tuple[Any, Any], depth: int) -> None:
    before = product((3, depth), np.full((depth, 4), -100), scales, zeros)
    assert steps(before) == (before, [])


# --- weights of few bits --------------------------------------------------------------------------


def restored(weight: Array, scale: Array, zero: Array | None, rounds: DType = f32) -> Expr:
    """Numbers less their zero points, in a scale; each step `rounds` to a dtype."""
    numbers = const(weight)
    moved = cast(numbers, f32)
    if rounds is not f32:
        less = const(np.zeros((1, 1), np.float32) if zero is None else -zero.astype(np.float32))
        moved = cast(cast(add(cast(cast(numbers, rounds), f32), less), rounds), f32)
    elif zero is not None:
        moved = cast(subtract(cast(numbers, i32), const(zero.astype(np.int32))), f32)
    return multiply(moved, const(scale.astype(np.float32)))


@FEW
@given(st.data())
def test_weights_of_few_bits_mean_the_same(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, FEW_ROWS)), data.draw(st.integers(1, 40))
    parts, block = data.draw(st.integers(1, 3)), data.draw(st.sampled_from((16, 32, 48)))
    low, high = data.draw(st.sampled_from([(0, 3), (-8, 7), (0, 15), (-128, 127), (-3, 12)]))
    turned, rng = data.draw(st.booleans()), np.random.default_rng(data.draw(st.integers(0, 99)))
    shape = (columns, parts * block)
    weight = rng.integers(low, high, shape, endpoint=True).astype(np.int8)
    groups = data.draw(st.sampled_from([(1, 1), (columns, 1), (columns, parts)]))
    if block == 48:
        groups = (columns, 1)
    scale: Array = rng.random(groups) + 0.1
    zero: Array = rng.integers(low, high, groups)
    if groups[1] > 1:
        scale, zero = np.repeat(scale, block, axis=1), np.repeat(zero, block, axis=1)
    if turned:
        weight, scale, zero = weight.T.copy(), scale.T.copy(), zero.T.copy()
    dtype = data.draw(st.sampled_from((f32, f16, bf16)))
    scale = scale.astype(dtype.numpy).astype(np.float32)
    rounds = data.draw(st.sampled_from((f32, dtype)))
    whole_of = restored(weight, scale, zero if data.draw(st.booleans()) else None, rounds)
    if dtype is not f32:
        whole_of = cast(whole_of, dtype)
    x = Var(Name("x"), tensor((rows, parts * block), dtype.name))
    before = whole([x], (matmul if turned else dense)(x, whole_of))
    after, derivation = rewrite(before, few_bits_for(0, FEW_ROWS, (dtype,)), approx(1e-4))
    assert isinstance(after, Module)
    assert len(derivation.steps) == 1
    given_ = rng.standard_normal((rows, parts * block)).astype(dtype.numpy)
    wanted, found = (plica.interpret(each, given_).astype(np.float64) for each in (before, after))
    close = {f32: 1e-5, f16: 1e-3, bf16: 1e-2}[dtype]
    np.testing.assert_allclose(found, wanted, rtol=close, atol=close * (np.abs(wanted).max() + 1.0))


@pytest.mark.parametrize(
    ("rows", "depth", "scale", "cache"),
    [
        (FEW_ROWS + 1, 32, np.ones((4, 1)), 0),
        (1, 30, np.ones((4, 1)), 0),
        (1, 32, np.arange(32.0).reshape(1, 32), 0),
        (1, 32, np.full((4, 1), np.inf), 0),
        (1, 32, np.ones((4, 1)), 512),
    ],
    ids=["rows", "no words", "columns", "infinite", "near"],
)
def test_other_weights_are_restored(rows: int, depth: int, scale: Array, cache: int) -> None:
    x = Var(Name("x"), tensor((rows, depth), "f32"))
    weight = np.full((4, depth), 3, np.int8)
    before = whole([x], dense(x, restored(weight, scale, None)))
    assert rewrite(before, few_bits_for(cache), approx(1e-4))[0] is before


@pytest.mark.parametrize("scale", [1 / 3, 0.5], ids=["scale", "rounded on the way"])
def test_weights_that_are_rounded_otherwise_are_restored(scale: float) -> None:
    x = Var(Name("x"), tensor((1, 32), "f16"))
    whole_of = restored(np.full((4, 32), 3, np.int8), np.full((4, 1), scale), None)
    if scale == 0.5:
        whole_of = cast(whole_of, bf16)
    before = whole([x], dense(x, cast(whole_of, f16)))
    assert rewrite(before, few_bits_for(0, FEW_ROWS, (f16,)), approx(1e-4))[0] is before


ZEROS = st.sampled_from([True, False, 7, 127])


def window_of_bytes(
    sizes: tuple[Any, ...], weight: Array, zero: bool | int, dtype: str, **window: Any
) -> Module:
    """A convolution of bytes less a zero point that is given, or known."""
    q, z = Var(Name("q"), tensor(sizes, dtype)), Var(Name("z"), tensor((), dtype))
    data = subtract(cast(q, i32), cast(z, i32)) if zero is True else cast(q, i32)
    if not isinstance(zero, bool):
        data = add(data, const(-zero, i32))
    main, dims = (
        Var(Name("main"), None),
        tuple([each for each in sizes if not isinstance(each, int)]),
    )
    body = conv(data, const(weight.astype(np.int32), i32), **window)
    return module({main: Function(dims, (), (q, z), None, body)}, main)


@FEW
@given(st.data())
def test_windows_of_open_images_are_rows(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rank = data.draw(st.integers(1, 2))
    kernel = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    pads = tuple((data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in kernel)
    low: Any = data.draw(st.sampled_from([-128, -200, 0, None]))  # all but the first are moved
    if low is None:
        low = rng.integers(-255, 1, (MIN_TERMS, 1, *[1] * rank))
    weight = rng.integers(low, low + 256, (MIN_TERMS, MIN_TERMS, *kernel))
    sizes = tuple(data.draw(st.integers(5, 9)) for _ in range(rank))
    dtype, zero = data.draw(st.sampled_from(["u8", "i8"])), data.draw(ZEROS)
    window = {
        "strides": tuple(data.draw(st.integers(1, 2)) for _ in kernel),
        "padding": pads,
        "dilation": tuple(data.draw(st.integers(1, 2)) for _ in kernel),
    }
    dims = (dim_var("h"), dim_var("w"))[:rank]
    batch = data.draw(st.integers(1, 2))
    before = window_of_bytes((batch, MIN_TERMS, *dims), weight, zero, dtype, **window)
    after, derivation = rewrite(before, BYTE_WINDOWS, reassociates)
    assert derivation.steps[0].rule.name.startswith("byte-window-rows")
    assert isinstance(after, Module)
    bounds = (0, 256) if dtype == "u8" else (-128, 128)
    held = rng.integers(*bounds, (batch, MIN_TERMS, *sizes))
    x: Array = held.astype(np.uint8 if dtype == "u8" else np.int8)
    point = x.dtype.type(rng.integers(*bounds))
    np.testing.assert_array_equal(
        plica.interpret(after, x, point), plica.interpret(before, x, point)
    )


@pytest.mark.parametrize("change", ["known sizes", "few channels", "wide numbers", "far zero"])
def test_other_windows_stay(change: str) -> None:
    sizes: tuple[Any, ...] = (1, 16, 8, dim_var("w"))
    weight = np.ones((16, 16, 3, 3))
    if change == "known sizes":
        sizes = (1, 16, 8, 8)
    elif change == "few channels":
        sizes, weight = (1, 1, 8, dim_var("w")), np.ones((16, 1, 3, 3))
    elif change == "wide numbers":
        weight[0, 0, 0, 0] = 300
    zero = -1 if change == "far zero" else True  # around an image of u8 there is no -1
    _, derivation = rewrite(window_of_bytes(sizes, weight, zero, "u8"), BYTE_WINDOWS)
    in_floats = ["byte-window-apart"] if change == "few channels" else []
    assert [step.rule.name for step in derivation.steps] == in_floats


@FEW
@given(st.data())
def test_windows_of_few_terms_are_exact_in_floats(data: st.DataObject) -> None:
    channels, size = data.draw(st.integers(2, 9)), data.draw(st.integers(4, 9))
    given_zero = data.draw(st.sampled_from([None, 0, 255, "given"]))
    wide = data.draw(st.sampled_from([1, 3, 4]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weight = rng.choice(np.array([-128, -3, 0, 127], np.int32), (channels, 1, wide, wide))
    q, z = Var(Name("q"), tensor((1, channels, size, size), "u8")), Var(Name("z"), tensor((), "u8"))
    inside: Expr = cast(q, i32)
    if given_zero is not None:
        zero = cast(z, i32) if given_zero == "given" else const(int(given_zero), i32)
        inside = subtract(inside, zero)
    sums = conv(inside, const(weight, i32), strides=data.draw(st.integers(1, 2)),
                padding=data.draw(st.integers(0, 1)), groups=channels)  # fmt: skip
    params = [q, z] if given_zero == "given" else [q]
    floats = data.draw(st.booleans())
    before = whole(params, cast(sums, f32) if floats else sums)
    after, derivation = rewrite(before, BYTE_WINDOWS)
    assert isinstance(after, Module)
    names = [step.rule.name.split("-")[2] for step in derivation.steps]
    assert names == ["apart", "float"][: 1 + floats]
    values = [rng.choice(np.array([0, 1, 255], np.uint8), (1, channels, size, size))]
    values += [np.array(255, np.uint8)] * (len(params) - 1)
    np.testing.assert_array_equal(plica.interpret(after, *values), plica.interpret(before, *values))


def test_windows_of_many_terms_stay_integers() -> None:
    q = Var(Name("q"), tensor((1, 64, 9, 9), "u8"))
    sums = conv(cast(q, i32), const(np.full((2, 32, 5, 5), 127, np.int32), i32), groups=2)
    after, derivation = rewrite(whole([q], cast(sums, f32)), BYTE_WINDOWS)
    assert isinstance(after, Module)
    assert not derivation.steps


@FEW
@given(st.data())
def test_several_taps_over_one_channel_become_channels(data: st.DataObject) -> None:
    rank, dtype = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([u8, i8]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    taps = ((9,), (3, 4), (2, 3, 2))[rank - 1]
    sizes = (2, 1, *[int(rng.integers(9, 13)) for _ in range(rank)])
    weight = rng.choice(np.array([-128, -3, 0, 127], np.int32), (9, 1, *taps))
    q, z = Var(Name("q"), tensor(sizes, str(dtype))), Var(Name("z"), tensor((), str(dtype)))
    low, high = map(int, dtype.bounds)
    kind = data.draw(st.sampled_from([None, low, high, "given"]))
    inside: Expr = cast(q, i32)
    if kind is not None:
        inside = subtract(inside, cast(z, i32) if kind == "given" else const(int(kind), i32))
    drawn = {"strides": (1, 2), "padding": (0, 1), "dilation": (1, 1 + (rank > 1))}
    attrs = {name: data.draw(st.integers(*ends)) for name, ends in drawn.items()}
    params = [q, z] if kind == "given" else [q]
    before = whole(params, conv(inside, const(weight, i32), **attrs))
    after, derivation = rewrite(before, BYTE_WINDOWS)
    assert isinstance(after, Module)
    assert "concat" in str(after)
    assert len(derivation.steps) == 1
    values = [rng.choice(np.array([low, 1, high]), sizes).astype(dtype.numpy)]
    values += [np.array(high, dtype.numpy)] * (len(params) - 1)
    wanted = plica.interpret(before, *values)
    np.testing.assert_array_equal(plica.interpret(after, *values), wanted)
    np.testing.assert_array_equal(plica.compile(before, cache=False)(*values), wanted)


@pytest.mark.parametrize(
    ("weight", "exact"), [(128, True), (129, False), (-128, True), (-129, False)]
)
def test_windows_over_one_channel_are_floats_as_far_as_those_are_exact(
    weight: int, exact: bool
) -> None:
    """512 terms of 128 and one of 256 more, times 255, are less than 2**24; of 129 they are not."""
    of = np.full((1, 1, 8, 8, 8), weight, np.int32)
    of[0, 0, 0, 0, 0] += 256 * np.sign(weight)
    q = Var(Name("q"), tensor((1, 1, 9, 9, 9), "u8"))
    before = whole([q], conv(cast(q, i32), const(of, i32)))
    after, derivation = rewrite(before, BYTE_WINDOWS)
    assert isinstance(after, Module)
    assert bool(derivation.steps) is exact
    x = np.full((1, 1, 9, 9, 9), 255, np.uint8)
    np.testing.assert_array_equal(plica.interpret(after, x), plica.interpret(before, x))
    np.testing.assert_array_equal(plica.compile(after)(x), plica.interpret(before, x))


@pytest.mark.parametrize(("channels", "taps"), [(32, 3), (24, 3), (32, 6)])
def test_windows_that_dot_products_take_stay_integers(channels: int, taps: int) -> None:
    """Those of channels that fill no vectors, and of many terms, are floats all the same."""
    q = Var(Name("q"), tensor((1, channels, 9, 9), "u8"))
    weight = const(np.full((channels, 1, taps, taps), 127, np.int32), i32)
    before = whole([q], cast(conv(cast(q, i32), weight, groups=channels), f32))
    after, derivation = rewrite(before, byte_windows_for(16))
    assert isinstance(after, Module)
    assert bool(derivation.steps) is ((channels, taps) != (32, 3))
    assert rewrite(before, BYTE_WINDOWS)[1].steps


@FEW
@given(st.data())
def test_windows_of_restored_bytes_over_one_channel_are_integers(data: st.DataObject) -> None:
    channels = data.draw(st.sampled_from((16, 32)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weight = rng.integers(-128, 128, (channels, 1, 3, 3)).astype(np.int8)
    scales = (rng.random((channels, 1, 1, 1)) * 0.01 + 1e-4).astype(np.float32)
    zero = data.draw(st.integers(0, 255))
    q = Var(Name("q"), tensor((1, channels, 7, 7), "u8"))
    left = cast(subtract(cast(q, i32), const(zero, i32)), f32) * const(0.02, f32)
    right = cast(const(weight), f32) * const(scales, f32)
    before = whole([q], conv(left, right, padding=1, groups=channels))
    after, derivation = rewrite(before, byte_channels_for(16), reassociates)
    assert isinstance(after, Module)
    assert [step.rule.name for step in derivation.steps] == ["byte-channel-of-bytes"]
    x = rng.integers(0, 256, (1, channels, 7, 7)).astype(np.uint8)
    np.testing.assert_allclose(
        plica.interpret(after, x), plica.interpret(before, x), rtol=1e-5, atol=1e-4
    )
    assert not rewrite(before, byte_channels_for(64), reassociates)[1].steps
