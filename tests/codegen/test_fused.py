"""Fused kernels: an operator's expression goes where it is read, and reductions come first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.codegen.llvm.processor import find_target
from plica.codegen.lower.fused import alone, fused
from plica.codegen.lower.nest import ROW
from plica.codegen.place import place
from plica.core.diagnostic import CompilerBug
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph import Call, Expr, Function, Var, const
from plica.ir.infer import type_of
from plica.ir.interpret import interpret
from plica.ir.loop import Alloc, Store
from plica.ir.scalar import Load, Reduce
from plica.ir.show import show_kernel
from plica.ir.type import tensor
from plica.pipeline import build, lower, sequenced
from plica.rewrite.fuse import fuse
from plica.rewrite.graph.walk import expressions
from plica.rewrite.history import begun
from tests.codegen.native import assert_close
from tests.conftest import Golden
from tests.rewrite.fuse.graph import module_of, op

A = Var(Name("a"), tensor((5, 6), "f32"))
B = Var(Name("b"), tensor((6, 8), "f32"))
C = Var(Name("c"), tensor((8,), "f32"))
H = Var(Name("h"), tensor((5, 6), "f16"))
LONG = Var(Name("long"), tensor((6, ROW), "f32"))
TALL = Var(Name("tall"), tensor((32, 40), "f32"))
ROWS = Var(Name("rows"), tensor((16, 40), "f32"))
IMAGE = Var(Name("image"), tensor((1, 2, 6, 7), "f32"))
WEIGHT = Var(Name("weight"), tensor((4, 2, 3, 3), "f32"))
ONE = Var(Name("one"), tensor((1, 6), "f32"))
PARAMS = (A, B, C, H, LONG, TALL, ROWS, IMAGE, WEIGHT, ONE)


def whole(body: Expr) -> Function:
    """The one primitive function a body becomes."""
    params = tuple(each for each in PARAMS if each in set(expressions(body)))
    call = fuse(module_of(body, *params)).main_function().body
    assert isinstance(call, Call)
    assert isinstance(call.callee, Function)
    return call.callee


# fmt: off
CASES: dict[str, Expr] = {
    "a bias":               op("nn.relu", op("matmul", A, B) + C),
    "a long row":           op("nn.relu", op("matmul", A, LONG) * 2.0 + 1.0),
    "a long row, turned":   op("transpose", op("matmul", A, LONG) * 2.0),
    "a long row, cast":     op("cast", op("matmul", A, LONG), dtype="f64"),
    "lanes":                op("tanh", op("nn.dense", TALL, ROWS)),
    "lanes, turned":        op("transpose", op("nn.dense", TALL, ROWS)) * 3.0,
    "rows of one":          op("exp", op("matmul", ONE, B)),
    "axes that turn":       op("transpose", op("nn.conv", IMAGE, WEIGHT), (2, 0, 3, 1)) + 1.0,
    "half precision":       op("nn.relu", op("sum", H * H, axis=(1,))) + const(0.5, "f16"),
    "a choice":             op("where", op("greater", C, const(0.0, "f32")), op("matmul", A, B), C),
    "swish":                op("matmul", A, B) * op("sigmoid", op("matmul", A, B)),
    "a scalar":             op("exp", op("mean", A * A)),
    "turned before":        op("exp", op("transpose", A)) + op("transpose", A * 2.0),
    "joined":               op("concat", (A + 1.0, A * 2.0), axis=1) * 3.0,
    "nothing given":        op("zeros", shape=(3,), dtype="f32") + 1.0,
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_a_fused_kernel_computes_what_it_means(name: str) -> None:
    body = CASES[name]
    params = tuple(each for each in PARAMS if each in set(expressions(body)))
    of = module_of(body, *params)
    random = np.random.default_rng(3)
    args: list[Any] = []
    for each in params:
        shape = [size.value for size in each.type.shape]  # type: ignore[union-attr]
        kind = np.float16 if each is H else np.float32
        args.append(random.standard_normal(shape).astype(kind))
    lowered = sequenced(begun(of))
    # A convolution is not turned as it is stored: its schedule would suffer.
    assert len(lowered.program.kernels) == 1 or name in ("a scalar", "axes that turn")
    found = np.asarray(build(lowered, find_target("cpu"))(*args))
    assert_close(
        found, np.asarray(interpret(of, *args)), [each.astype(found.dtype) for each in args]
    )


def test_a_reduction_is_computed_once() -> None:
    kernel = fused(whole(CASES["swish"])).kernel
    stores = [node for node in post_order(kernel.body) if isinstance(node, Store)]
    assert len(stores) == 3  # the accumulator begins, grows, and is used
    assert not any(isinstance(node, Reduce) for node in post_order(kernel.body))


def test_a_long_row_is_accumulated_where_it_ends() -> None:
    plain, turned = (
        fused(whole(CASES[name])).kernel for name in ("a long row", "a long row, cast")
    )
    assert not any(isinstance(node, Alloc) for node in post_order(plain.body))
    assert any(isinstance(node, Alloc) for node in post_order(turned.body))


def test_a_kernel_has_the_parameters_it_reads() -> None:
    shape = op("zeros_like", A)
    function, args = alone(shape)
    found = fused(function)
    assert args == (A,)
    assert found.reads == ()
    assert not any(isinstance(node, Load) for node in post_order(found.kernel.body))


def test_equal_functions_are_one_kernel() -> None:
    other = Var(Name("other"), A.type)
    assert fused(alone(A + A)[0]) is fused(alone(other + other)[0])
    assert fused(alone(A + 1.0 * A)[0]).source == "add"


def test_names_stay_short() -> None:
    body: Expr = A
    for _ in range(9):
        body = op("exp", body)
    assert fused(whole(body)).source == "exp + exp + exp + 6 more"


def test_what_fusion_would_not_do_is_a_bug() -> None:
    square = Var(Name("s"), tensor((4, 4), "f32"))
    inner = op("exp", square)
    wrong = Function((), (), (square,), square.type, inner + op("transpose", inner))
    with pytest.raises(CompilerBug, match="two places"):
        fused(wrong)
    assert type_of(wrong.body) is square.type


def test_text(golden: Golden) -> None:
    golden(show_kernel(fused(whole(CASES["a bias"])).kernel, "bias") + "\n", "fused_bias")
    golden(show_kernel(fused(whole(CASES["lanes, turned"])).kernel, "lanes") + "\n", "fused_lanes")


def test_no_memory_between() -> None:
    of = module_of(CASES["a bias"], A, B, C)
    assert place(lower(of).program).size == 0
