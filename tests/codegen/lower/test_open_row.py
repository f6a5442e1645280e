"""Rows of open length, windows of images of any size, and sizes that kernels are told."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import plica
from plica import op
from plica.codegen.lower.candidate import Candidate
from plica.codegen.lower.nest import nest_along_rows
from plica.codegen.lower.passes import lower
from plica.codegen.lower.processor import by_default
from plica.core.name import Name
from plica.ir.contract import approx
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Intrinsic, Lit, Max
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica.op import nn
from plica.runtime.error import InputError, PlicaError
from plica.schedule.default.machine import Machine
from plica.schedule.form import Facts


def of(shape: tuple[int | str, ...], body: Callable[[Expr], Expr]) -> Module:
    x, main = Var(Name("x"), tensor(shape, "f32")), Var(Name("main"), None)
    dims = tuple([dim_var(each) for each in shape if isinstance(each, str)])
    return module({main: Function(dims, (), (x,), None, body(x))}, main)


TURNED: dict[str, tuple[tuple[int | str, ...], Callable[[Expr], Expr], Callable[[Any], Any]]] = {
    "matrix": (("n", 24), lambda x: op.transpose(x, (1, 0)), lambda x: x.T),
    "both open": (("n", "m"), lambda x: op.transpose(x, (1, 0)) * 2.0, lambda x: x.T * 2),
    "heads": (("m", 3, "n", 5), lambda x: op.transpose(x, (0, 1, 3, 2)),
              lambda x: x.transpose(0, 1, 3, 2)),
    "sum": (("n", 7), lambda x: op.transpose(x, (1, 0)) + op.iota(("n",), dtype="f32"),
            lambda x: x.T + np.arange(len(x), dtype=np.float32)),
}  # fmt: skip


@pytest.mark.parametrize("case", TURNED)
def test_columns_of_open_length_are_written_in_strips(case: str) -> None:
    shape, body, expected = TURNED[case]
    exe = plica.compile(of(shape, body), cache=False, threads=1)
    for n, m in ((0, 1), (1, 3), (15, 2), (16, 0), (33, 1), (100, 17)):
        sizes = {"n": n, "m": m}
        whole = [sizes[each] if isinstance(each, str) else each for each in shape]
        x = np.random.default_rng(n).random(whole, np.float32)
        np.testing.assert_array_equal(exe(x), expected(x))


# fmt: off
ROWS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Any], Any]]] = {
    "sum":     (lambda x: op.sum(x, axis=(1,)), lambda x: x.sum(1)),
    "max":     (lambda x: op.max(x, axis=(1,)), lambda x: x.max(1)),
    "mean":    (lambda x: nn.relu(op.mean(x * x, axis=(1,))), lambda x: (x * x).mean(1)),
    "softmax": (lambda x: nn.softmax(x, axis=-1),
                lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
}
# fmt: on


@lru_cache(maxsize=8)
def compiled(case: str) -> Any:
    return plica.compile(of(("n", "m"), ROWS[case][0]), cache=False, threads=1)


@pytest.mark.parametrize("case", ROWS)
@given(st.integers(0, 3), st.sampled_from((1, 2, 15, 16, 17, 63, 64, 65, 127, 1023, 1025, 2049)))
@example(1, 1)
@example(2, 1100)
@settings(max_examples=8, deadline=None)
def test_rows_of_every_length_are_reduced(case: str, n: int, m: int) -> None:
    x = np.random.default_rng(m).normal(size=(n, m)).astype(np.float32)
    wanted = ROWS[case][1](x.astype(np.float64))
    np.testing.assert_allclose(compiled(case)(x), wanted, rtol=2e-6, atol=1e-5)


def test_an_open_axis_that_is_empty_has_an_empty_softmax() -> None:
    assert compiled("softmax")(np.zeros((2, 0), np.float32)).shape == (2, 0)


# --- rows of known length, where code is wanted soon ----------------------------------------------

# fmt: off
MEANS: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda x, w: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "squares": lambda x, w: np.maximum((x * x).sum(1), 0),
    "columns": lambda x, w: x.max(0),
    "product": lambda x, w: np.maximum(x @ w, 0),
    "both":    lambda x, w: np.tanh(x) * 2,
}
# fmt: on

REDUCED = ("softmax", "squares")
"""The cases that reduce rows."""


def case_of(case: str, rows: int, wide: int, out: int) -> Stages:
    """The stages of a case, which reads a tensor and a second one."""
    x, w = placeholder("x", (rows, wide), f32), placeholder("w", (wide, out), f32)
    match case:
        case "softmax":
            top = stage("m", (rows, 1), lambda i, j: reduce("max", (wide,), lambda k: x[i, k]))
            away = stage("e", (rows, wide), lambda i, j: Intrinsic("exp", (x[i, j] - top[i, 0],)))
            all_ = stage("s", (rows, 1), lambda i, j: reduce("sum", (wide,), lambda k: away[i, k]))
            last = stage("y", (rows, wide), lambda i, j: away[i, j] / all_[i, 0])
            return stages((x,), (top, away, all_, last))
        case "squares":
            fold = stage(
                "s", (rows,), lambda i: reduce("sum", (wide,), lambda k: x[i, k] * x[i, k])
            )
            return stages((x,), (fold, stage("y", (rows,), lambda i: Max(fold[i], Lit(0, f32)))))
        case "columns":
            whole = lambda j: reduce("max", (rows,), lambda k: x[k, j])  # noqa: E731
            return stages((x,), (stage("y", (wide,), whole),))
        case "product":
            term = lambda i, j: reduce("sum", (wide,), lambda k: x[i, k] * w[k, j])  # noqa: E731
            fold = stage("s", (rows, out), term)
            last = stage("y", (rows, out), lambda i, j: Max(fold[i, j], Lit(0, f32)))
            return stages((x, w), (fold, last))
        case "turned":
            return stages((x,), (stage("y", (wide, rows), lambda i, j: x[j, i]),))
    return stages((x,), (stage("y", (rows, wide), lambda i, j: Intrinsic("tanh", (x[i, j],)) * 2),))


def on(vector: int, cache: int = 1 << 19) -> Machine:
    """A machine whose code is wanted soon."""
    return Machine(vector, 32, (1 << 10, cache), soon=True)


def soon(case: str, rows: int, wide: int, out: int, machine: Machine) -> Kernel | None:
    """The loops along rows of a case, None where there are none."""
    return nest_along_rows(case_of(case, rows, wide, out), True, machine)


def scheduled(case: str, rows: int, wide: int, machine: Machine) -> Candidate | None:
    """What the templates make of a case along rows."""
    facts = Facts((False,), contract=approx(1e-4))
    return by_default(case_of(case, rows, wide, 1), facts, machine)


@pytest.mark.parametrize("case", MEANS)
@given(
    st.integers(1, 9),
    st.sampled_from((1, 3, 4, 5, 16, 17, 64, 65)),
    st.sampled_from((4, 7, 16, 31, 64)),
    st.builds(on, st.sampled_from((128, 256, 512)), st.sampled_from((1 << 10, 1 << 19))),
)
@example(4, 64, 16, on(128))
@example(5, 65, 31, on(512))
@example(1, 1030, 4, on(256))
@example(1, 64, 31, on(128, 1 << 10))  # what one row reads is far
@settings(max_examples=12, deadline=None)
def test_rows_of_known_length_are_what_they_mean(
    case: str, rows: int, wide: int, out: int, machine: Machine
) -> None:
    made = soon(case, rows, wide, out, machine)
    if made is None and case in REDUCED and (found := scheduled(case, rows, wide, machine)):
        made = lower(found.kernel)
    if made is None:
        return
    values = np.random.default_rng(wide)
    x, w = values.normal(size=(rows, wide)), values.normal(size=(wide, out))
    (result,) = run_kernel(made, [x.astype(np.float32), w.astype(np.float32)][: made.inputs])
    np.testing.assert_allclose(result, MEANS[case](x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", REDUCED)
def test_reductions_along_rows_have_a_trace_also_where_code_is_wanted_soon(case: str) -> None:
    assert soon(case, 8, 64, 64, on(256)) is None
    found = scheduled(case, 8, 64, on(256))
    assert found is not None
    assert found.template == "rows"


@pytest.mark.parametrize("case", [each for each in MEANS if each not in REDUCED])
def test_loops_along_rows_serve_what_is_long_enough(case: str) -> None:
    assert soon(case, 8, 64, 64, on(256)) is not None


def test_loops_along_rows_leave_what_they_are_slow_for() -> None:
    assert soon("both", 1, 3, 4, on(256)) is None  # no vector is full
    assert soon("product", 8, 64, 4, on(256)) is None
    assert soon("product", 8, 2048, 512, on(256)) is None  # what all rows read is far
    assert soon("product", 1, 2048, 512, on(256)) is not None  # and is read once
    assert soon("turned", 64, 32, 1, on(256)) is None


# --- windows --------------------------------------------------------------------------------------

WEIGHT = np.random.default_rng(3).normal(size=(6, 1, 5, 5)).astype(np.float32)

# fmt: off
WINDOWS: dict[str, Callable[[Expr], Expr]] = {
    "depthwise": lambda x: nn.conv(x, const(WEIGHT), padding=2, groups=6),
    "half":      lambda x: nn.relu(nn.conv(x, const(WEIGHT), padding=2, strides=2, groups=6)),
    "apart":     lambda x: nn.conv(x, const(WEIGHT[:, :, :3, :3]), padding=2, dilation=2, groups=6),
    "pool":      lambda x: nn.max_pool(x, (3, 3), strides=2, padding=1),
}
# fmt: on


@lru_cache(maxsize=8)
def windows(case: str) -> tuple[Module, Any]:
    made = of(("n", 6, "h", "w"), WINDOWS[case])
    return made, plica.compile(made, contract="exact", cache=False, threads=2)


@pytest.mark.parametrize("case", WINDOWS)
@given(st.integers(0, 2), st.integers(1, 20), st.sampled_from((1, 2, 7, 15, 16, 17, 33)))
@example(1, 1, 1)
@example(2, 13, 33)
@settings(max_examples=max(2, settings().max_examples // 10), deadline=None)
def test_windows_of_every_size_are_those_of_the_interpreter(
    case: str, n: int, high: int, wide: int
) -> None:
    made, exe = windows(case)
    x = np.random.default_rng(wide).normal(size=(n, 6, high, wide)).astype(np.float32)
    try:
        found = exe(x)
    except InputError:
        with pytest.raises(PlicaError):
            plica.interpret(made, x)
        return
    np.testing.assert_array_equal(found, plica.interpret(made, x))


# --- sizes ----------------------------------------------------------------------------------------


def test_layers_that_differ_in_their_sizes_alone_are_one_kernel() -> None:
    weight = const(np.random.default_rng(4).normal(size=(16, 16, 3, 3)).astype(np.float32) / 9)

    def deep(x: Expr) -> Expr:
        for _ in range(3):
            x = nn.conv(x, weight, padding=1, strides=2)
        return x

    made = of(("n", 16, "h", "w"), deep)
    exe = plica.compile(made, cache=False, threads=1)
    assert exe.source("llvm").count("define internal void @nn_conv") == 1
    x = np.random.default_rng(5).normal(size=(2, 16, 21, 37)).astype(np.float32)
    np.testing.assert_allclose(exe(x), plica.interpret(made, x), rtol=1e-4, atol=1e-5)
