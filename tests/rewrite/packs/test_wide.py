"""Products of narrow floats made of wide ones: the same bits, and what numpy gives."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import plica
from plica.core.name import Name
from plica.ir.contract import exact
from plica.ir.graph.expression import Const, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op.activation import relu
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import add, cast, multiply
from plica.ir.op.linear import dense
from plica.ir.op.pool import avg_pool, max_pool
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.wide import WIDE, WIDE_SCALE
from tests.ir.reference.neural import _conv as reference

Array = np.ndarray[Any, Any]
EXAMPLES = max(2, settings().max_examples // 8)
NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
STEP = {"f16": 2.0**-10, "bf16": 2.0**-7}


def program(shape: tuple[int, ...], dtype: str, body: Any) -> Module:  # Any: from a variable
    x, main = Var(Name("x"), tensor(shape, dtype)), Var(Name("main"), None)
    return infer(module({main: Function((), (), (x,), None, body(x))}, main))


def numbers(seed: int, dtype: str, *shape: int) -> Array:
    drawn: Array = np.random.default_rng(seed).standard_normal(shape).astype(NUMPY[dtype])
    return drawn


def same_as_defined(of: Module, values: Array) -> Array:
    """What native code gives, which is what the interpreter gives to the bit."""
    got = plica.compile(of, contract="exact", cache=False)(values)
    meant: Any = interpret(of, values)
    assert np.array_equal(np.asarray(got).view(np.uint16), np.asarray(meant).view(np.uint16))
    return np.asarray(got, np.float64)


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(("f16", "bf16")), st.integers(1, 9), st.integers(1, 70), st.integers(0, 99))
def test_two_products_with_a_way_around(dtype: str, rows: int, width: int, seed: int) -> None:
    weight, values = numbers(seed, dtype, width, width), numbers(seed + 1, dtype, rows, width)

    def body(x: Var) -> Any:
        hidden = relu(dense(x, const(weight, dtype)))
        return add(dense(hidden, const(weight, dtype)), hidden)

    got = same_as_defined(program((rows, width), dtype, body), values)
    w = weight.astype(np.float64).T
    hidden = np.maximum(values.astype(np.float64) @ w, 0).astype(NUMPY[dtype]).astype(np.float64)
    want = hidden @ w + hidden
    assert np.abs(got - want).max() <= 3 * STEP[dtype] * (np.abs(want).max() + 1)


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(("f16", "bf16")), st.integers(1, 20), st.integers(3, 12), st.integers(0, 99))
def test_convolutions(dtype: str, channels: int, side: int, seed: int) -> None:
    weight = numbers(seed, dtype, 5, channels, 3, 3)
    values = numbers(seed + 1, dtype, 1, channels, side, side)
    of = program(values.shape, dtype, lambda x: conv(x, const(weight, dtype), padding=1))
    got = same_as_defined(of, values)
    want = reference(values.astype(np.float64), weight.astype(np.float64), padding=1)
    assert np.abs(got - want).max() <= 3 * STEP[dtype] * (np.abs(want).max() + 1)


def test_nothing_narrow_is_multiplied_afterwards() -> None:
    weight = numbers(0, "f16", 4, 4)
    of = program((2, 4), "f16", lambda x: dense(x, const(weight, "f16")))
    made, derivation = rewrite(of, WIDE, exact)
    assert [step.rule.name for step in derivation.steps] == ["wide-nn-dense"]
    assert rewrite(made, WIDE, exact)[0] == made


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_wide_windows_go_axis_by_axis(data: st.DataObject) -> None:
    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(2))

    kernel, shape = sizes(4, 6), (1, 2, *sizes(8, 24))
    options = {"strides": sizes(1, 2), "ceil_mode": data.draw(st.booleans()), "padding": 2}
    x = Var(Name("x"), tensor(shape, "f32"))
    whole = max_pool(x, kernel=kernel, **options)
    apart, steps = rewrite(whole, WIDE)
    if options["strides"] == (1, 1):
        assert [each.rule.name for each in steps.steps] == ["max-pool-by-axes"]
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    values[0, 1, 3, 5] = np.nan
    before, after = (program(shape, "f32", lambda _, b=body: b) for body in (whole, apart))
    np.testing.assert_array_equal(interpret(before, values), interpret(after, values))


@pytest.mark.parametrize(
    ("kernel", "strides", "apart"),
    [((3, 3, 3), 2, 1), ((3, 3), 2, 0), ((5, 5), 2, 1), ((2, 2, 2), 2, 0)],
)
def test_rows_in_strides_are_as_many_vectors(
    kernel: tuple[int, ...], strides: int, apart: int
) -> None:
    x = Var(Name("x"), tensor((1, 2, *[12] * len(kernel)), "f32"))
    _, derivation = rewrite(max_pool(x, kernel=kernel, strides=strides), WIDE)
    assert len(derivation.steps) == apart


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_means_of_wide_windows_go_axis_by_axis(data: st.DataObject) -> None:
    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(2))

    kernel, shape = sizes(4, 6), (1, 2, *sizes(8, 14))
    options = {
        "strides": sizes(1, 2), "padding": 2,
        "ceil_mode": data.draw(st.booleans()), "count_include_pad": data.draw(st.booleans()),
    }  # fmt: skip
    whole = avg_pool(Var(Name("x"), tensor(shape, "f32")), kernel=kernel, **options)
    apart, steps = rewrite(whole, WIDE)
    if options["strides"] == (1, 1):
        assert [each.rule.name for each in steps.steps] == ["avg-pool-by-axes"]
    assert rewrite(whole, WIDE, exact)[0] == whole
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    before, after = (program(shape, "f32", lambda _, b=body: b) for body in (whole, apart))
    wanted = np.asarray(interpret(before, values))
    np.testing.assert_allclose(np.asarray(interpret(after, values)), wanted, rtol=1e-5, atol=1e-6)


def norm(dtype: str, weight: Array, scale: Const, shared: bool) -> Any:
    """A convolution and a norm of f32 behind it, rounded to what it was; one more may read it."""

    def body(x: Var) -> Any:
        made = conv(x, const(weight, dtype), padding=1)
        found = cast(add(multiply(cast(made, dtype=f32), scale), const(0.5, f32)), dtype=dtype)
        return add(found, made) if shared else found

    return body


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(("f16", "bf16")), st.integers(1, 20), st.integers(0, 99))
def test_a_norm_behind_a_convolution_is_in_its_weight(dtype: str, channels: int, seed: int) -> None:
    weight, values = (
        numbers(seed, dtype, 5, channels, 3, 3),
        numbers(seed, dtype, 1, channels, 6, 6),
    )
    scale = np.random.default_rng(seed).uniform(0.1, 2, (5, 1, 1)).astype(np.float32)
    of = program(values.shape, dtype, norm(dtype, weight, const(scale, f32), shared=False))
    done, _ = rewrite(of, WIDE_SCALE)
    assert "f32" in str(done).split("nn.conv(")[1].split("padding")[0]
    want = reference(values.astype(np.float64), weight.astype(np.float64), padding=1) * scale + 0.5
    got = np.asarray(plica.compile(of, cache=False)(values), np.float64)
    assert np.abs(got - want).max() <= STEP[dtype] * (np.abs(want).max() + 1)


def test_what_others_read_is_rounded_and_computed_once() -> None:
    weight = numbers(0, "f16", 5, 2, 3, 3)
    of = program((1, 2, 6, 6), "f16", norm("f16", weight, const(np.float32(2)), shared=True))
    done, _ = rewrite(of, WIDE_SCALE)
    assert done is of
