"""To stages: an operator's expression goes where it is read, and reductions come first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import plica
from plica.codegen.llvm.processor import find_target
from plica.codegen.lower.decompose import decompose
from plica.codegen.lower.graph_flattening import flatten_graph
from plica.codegen.lower.nest import ROW
from plica.core.diagnostic import CompilerBug
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.graph.expression import Call, Expr, Function, Var, const
from plica.ir.interpret.interpreter import interpret
from plica.ir.loop.scalar import Reduce
from plica.ir.loop.stages import Stages, evaluate_stages, loads, pairs
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, tensor
from plica.pipeline import build, sequenced
from plica.rewrite.fuse import fuse, is_primitive
from plica.rewrite.fuse.to_stages import alone, to_stages
from plica.rewrite.graph.walk import expressions
from plica.rewrite.history import begun
from tests.codegen.native import assert_close
from tests.conftest import Golden
from tests.rewrite.fuse.graph import graphs, module_of, op

FEW = settings(max_examples=max(10, settings().max_examples // 2))

A = Var(Name("a"), tensor((5, 6), "f32"))
B = Var(Name("b"), tensor((6, 8), "f32"))
C = Var(Name("c"), tensor((8,), "f32"))
H = Var(Name("h"), tensor((5, 6), "f16"))
LONG = Var(Name("long"), tensor((6, ROW), "f32"))
TALL = Var(Name("tall"), tensor((32, 40), "f32"))
ROWS = Var(Name("rows"), tensor((16, 40), "f32"))
IMAGE = Var(Name("image"), tensor((1, 2, 6, 7), "f32"))
WEIGHT = Var(Name("weight"), tensor((4, 2, 3, 3), "f32"))
BIAS = Var(Name("bias"), tensor((4, 1, 1), "f32"))
ONE = Var(Name("one"), tensor((1, 6), "f32"))
PARAMS = (A, B, C, H, LONG, TALL, ROWS, IMAGE, WEIGHT, BIAS, ONE)


def whole(body: Expr) -> Function:
    """The one primitive function a body becomes."""
    params = tuple(each for each in PARAMS if each in set(expressions(body)))
    call = fuse(decompose(flatten_graph(module_of(body, *params)))).main_function().body
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


def numbers(seed: int, of: Var) -> Any:
    """An array for a parameter; integers are places."""
    assert isinstance(of.type, TensorType)
    shape = [size.value for size in of.type.shape]  # type: ignore[attr-defined]  # all are numbers
    random = np.random.default_rng(seed)
    if of.type.dtype.is_float:
        return random.standard_normal(shape).astype(of.type.dtype.numpy)
    return random.integers(0, 2, shape).astype(of.type.dtype.numpy)


def assert_means(function: Function) -> Stages:
    """The stages of a function mean what it does."""
    args = [numbers(seed, each) for seed, each in enumerate(function.params)]
    made = to_stages(function)
    found = np.asarray(evaluate_stages(made.stages, [args[read] for read in made.reads]))
    wanted = np.asarray(interpret(module_of(function.body, *function.params), *args))
    about = [each.astype(np.float64) for each in args if each.dtype.kind == "f"]
    assert_close(found, wanted, [*about, wanted])
    return made.stages


@FEW
@given(graphs())
def test_stages_mean_what_the_function_means(of: Any) -> None:
    fused = fuse(decompose(flatten_graph(of)))
    every = expressions(*[value.body for _, value in fused.functions()])
    for each in every:
        if isinstance(each, Function) and is_primitive(each):
            assert_means(each)


@pytest.mark.parametrize("name", CASES)
def test_a_group_is_stages(name: str) -> None:
    body = CASES[name]
    params = tuple(each for each in PARAMS if each in set(expressions(body)))
    fused = fuse(decompose(flatten_graph(module_of(body, *params))))
    for each in expressions(fused.main_function().body):
        if isinstance(each, Function) and is_primitive(each):
            made = assert_means(each)
            assert len(pairs(made)) == 1


@pytest.mark.parametrize("name", CASES)
def test_a_fused_kernel_computes_what_it_means(name: str) -> None:
    body = CASES[name]
    params = tuple(each for each in PARAMS if each in set(expressions(body)))
    of = module_of(body, *params)
    args = [numbers(3 + seed, each) for seed, each in enumerate(params)]
    lowered = sequenced(begun(of))
    # A convolution is not turned as it is stored: its schedule would suffer.
    assert len(lowered.program.kernels) == 1 or name in ("a scalar", "axes that turn")
    found = np.asarray(build(lowered, find_target("cpu"))(*args))
    about = [each.astype(found.dtype) for each in args]
    assert_close(found, np.asarray(interpret(of, *args)), about)


def test_a_reduction_is_computed_once() -> None:
    fold, last = to_stages(whole(CASES["swish"])).stages.stages
    assert isinstance(fold.value, Reduce)  # type: ignore[union-attr]  # stages of elements
    assert len([load for load in loads(last) if load.buffer is fold.outs[0]]) == 1


def test_stages_have_the_inputs_they_read() -> None:
    function, args = alone(op("zeros_like", A))
    found = to_stages(function)
    assert args == (A,)
    assert found.reads == ()
    assert found.stages.inputs == ()


def test_equal_functions_are_the_same_stages() -> None:
    other = Var(Name("other"), A.type)
    one, two = to_stages(alone(A + A)[0]), to_stages(alone(other + other)[0])
    assert one is two
    assert digest(one.stages) == digest(two.stages)
    assert to_stages(alone(A + 1.0 * A)[0]).source == "add"


def test_names_stay_short() -> None:
    body: Expr = A
    for _ in range(9):
        body = op("exp", body)
    assert to_stages(whole(body)).source == "exp + exp + exp + 6 more"


def test_what_fusion_would_not_do_is_a_bug() -> None:
    square = Var(Name("s"), tensor((4, 4), "f32"))
    inner = op("exp", square)
    wrong = Function((), (), (square,), square.type, inner + op("transpose", inner))
    with pytest.raises(CompilerBug, match="two places"):
        to_stages(wrong)
    assert type_of(wrong.body) is square.type


def test_a_row_that_is_moved_is_read_in_several_words() -> None:
    """The only row of a slice is read at 0 and at the axis of it."""
    rows = Var(Name("rows"), tensor((3, 1, 5), "f32"))
    body: Expr = rows
    for _ in range(2):
        body = op("concat", (op("slice", body, (0,), (1,), axes=(0,)) * 0.5, body), axis=0)
    given_ = np.arange(15, dtype=np.float32).reshape(3, 1, 5)
    once = np.concatenate([given_[:1] * 0.5, given_])
    found = plica.compile(module_of(body, rows), cache=False)(given_)
    np.testing.assert_array_equal(found, np.concatenate([once[:1] * 0.5, once]))


# fmt: off
SHOWN: dict[str, Expr] = {
    "conv_bias_relu":  op("nn.relu", op("nn.conv", IMAGE, WEIGHT, padding=1) + BIAS),
    "softmax":         op("nn.softmax", TALL, axis=-1),
    "mean":            op("mean", A, axis=(1,)),
    "matmul_turned":   op("transpose", op("matmul", A, B) + C),
}
# fmt: on


@pytest.mark.parametrize("name", SHOWN)
def test_text(name: str, golden: Golden) -> None:
    function = whole(SHOWN[name])
    assert_means(function)
    golden(f"{to_stages(function).stages}\n", f"stages_{name}")
