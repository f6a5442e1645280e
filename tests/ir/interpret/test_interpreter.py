"""The meaning of the graph language: laziness, closures, recursion, data, sharing, and limits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import EvaluationError
from plica.core.name import Name
from plica.ir.graph.expression import Call, Expr, Function, If, Let, Tuple, Var, const
from plica.ir.graph.module import Defined, Definition, Module, module
from plica.ir.interpret import evaluate
from plica.ir.interpret.interpreter import RunLimits, interpret
from plica.ir.interpret.value import DataValue, build, conforms
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.statement import For, Kernel, Seq, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.op import find
from plica.ir.text.script import from_text
from plica.ir.type.dtype import f32
from plica.ir.type.size import solve
from plica.ir.type.term import FuncType, TensorType, TupleType, Type, dim_var, tensor
from plica.runtime.error import PlicaError
from tests.same_value import same_value
from tests.strategies import inputs_for, modules

SCALAR = tensor((), "f32")


def var(name: str, of: Type | None = SCALAR) -> Var:
    return Var(Name(name), of)


def main_of(*params: Var, body: Expr, **more: Any) -> Module:
    main = var("main", None)
    table: dict[Defined, Definition] = {main: Function((), (), params, None, body)}
    table |= {var(name, None): each for name, each in more.items()}
    return module(table, main)


# --- recursion and depth ---------------------------------------------------------------------

SUM_TO = """
@plica.function
def sum_to(n: i64) -> i64:
    def f(k: i64) -> i64:
        if k == 0:
            return 0
        else:
            return k + f(k - 1)
    return f(n)
"""


@pytest.mark.parametrize("n", [0, 1, 10, 10_000])
def test_a_let_bound_function_may_call_itself(n: int) -> None:
    assert interpret(from_text(SUM_TO), n) == n * (n + 1) // 2


@pytest.mark.slow
def test_recursion_may_be_a_hundred_thousand_deep() -> None:
    assert interpret(from_text(SUM_TO), 100_000) == 5_000_050_000


def test_a_recursion_limit_is_an_error_and_not_a_crash() -> None:
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(SUM_TO), 100, limits=RunLimits(depth=50))
    assert caught.value.code == "recursion-limit"
    assert interpret(from_text(SUM_TO), 100, limits=RunLimits(depth=150)) == 5050


LOOP = """
@plica.function
def loop(n: i64, total: i64) -> i64:
    if n == 0:
        return total
    else:
        more = total + n
        return loop(n - 1, more)
"""


def test_a_tail_call_does_not_grow_the_stack() -> None:
    assert interpret(from_text(LOOP), 5_000, 0, limits=RunLimits(depth=1)) == 12_502_500


def test_an_endless_loop_ends_in_an_error() -> None:
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(LOOP), -1, 0, limits=RunLimits(calls=1000))
    assert caught.value.code == "recursion-limit"


@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_functions_may_call_one_another(n: int) -> None:
    both = from_text("""
@plica.function
def is_odd(n: i64) -> bool:
    if n == 0:
        return False
    else:
        return is_even(n - 1)

@plica.function
def is_even(n: i64) -> bool:
    if n == 0:
        return True
    else:
        return is_odd(n - 1)
""")
    assert interpret(both, n) == (n % 2 == 0)


# --- sharing and depth of terms --------------------------------------------------------------


def test_a_chain_of_4_000_lets() -> None:
    names = [var("x"), *(Var(Name("v", i), None) for i in range(4_000))]
    body: Expr = names[-1]
    for before, here in reversed(list(pairwise(names))):
        body = Let(here, before + 1.0, body)
    assert interpret(main_of(names[0], body=body), 1.0) == 4_001


def test_a_chain_of_lets_of_two_names() -> None:
    x, y = var("x"), var("y")
    body: Expr = x
    for i in range(2_000):
        one, other = (x, y) if i % 2 == 0 else (y, x)
        body = Let(one, other + 1.0, body)
    assert interpret(main_of(x, y, body=body), 1.0, 1.0) == 2_001


def test_a_shared_node_is_evaluated_once() -> None:
    doubled: Expr = var("x")
    for _ in range(60):
        doubled = doubled + doubled
    assert interpret(main_of(var("x"), body=doubled), 1.0) == np.float32(2.0**60)


def test_sharing_through_branches_is_evaluated_once() -> None:
    x = var("x")
    shared: Expr = x
    for i in range(60):
        choice = If(x < float(i + 2), Let(Var(Name("y", i), None), shared, shared), const(0, "f32"))
        shared = choice + If(x < 0.0, const(0, "f32"), shared)
    assert interpret(main_of(x, body=shared), 1.0) == np.float32(2.0**60)


def test_5_000_nested_branches() -> None:
    x = var("x")
    body: Expr = x
    for i in range(5_000):
        body = If(x < float(i), const(-1.0, "f32"), body + 1.0)
    assert interpret(main_of(x, body=body), 1e5) == 105_000


def test_one_term_under_two_bindings_of_its_variable() -> None:
    x = var("x")
    both = Tuple((Let(x, const(1, "f32"), x + 1.0), Let(x, const(2, "f32"), x + 1.0), x + 1.0))
    assert interpret(main_of(x, body=both), 5.0) == (2, 3, 6)


# --- laziness --------------------------------------------------------------------------------

FAILING = """
@plica.data(forall="A")
class Option:
    Nothing: ()
    Some: (A,)

@plica.function(forall="A")
def get(x: Option[A]) -> A:
    match partial(x):
        case Some(value):
            return value

@plica.function
def main(c: bool, x: f32) -> f32:
    if c:
        return get(Nothing[f32]())
    else:
        return x
"""


def test_the_branch_not_taken_is_not_evaluated() -> None:
    assert interpret(from_text(FAILING), False, 2.5) == 2.5


def test_a_partial_match_that_fails_is_an_error() -> None:
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(FAILING), True, 2.5)
    assert caught.value.code == "match-failure"
    assert caught.value.diagnostics[0].expected == "Some(value)"
    assert caught.value.diagnostics[0].found == "Nothing()"


def test_an_error_of_an_operator_names_it() -> None:
    x, i = var("x", tensor((3,), "f32")), var("i", tensor((), "i64"))
    take = find("take")
    assert take is not None
    with pytest.raises(EvaluationError) as caught:
        interpret(main_of(x, i, body=take(x, i, axis=0)), np.zeros(3, np.float32), 7)
    assert caught.value.code == "index-out-of-bounds"
    assert caught.value.diagnostics[0].place is not None


# --- functions as values ---------------------------------------------------------------------


def test_a_closure_keeps_the_value_of_a_loop_variable() -> None:
    kept = from_text("""
@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])

@plica.function
def adders(n: i64) -> List[Fn[(i64,), i64]]:
    if n == 0:
        return Nil[Fn[(i64,), i64]]()
    else:
        def add_n(x: i64) -> i64:
            return x + n
        return Cons(add_n, adders(n - 1))

@plica.function
def apply(fs: List[Fn[(i64,), i64]], x: i64) -> List[i64]:
    match fs:
        case Nil():
            return Nil[i64]()
        case Cons(f, rest):
            return Cons(f(x), apply(rest, x))

@plica.function
def main(n: i64, x: i64) -> List[i64]:
    return apply(adders(n), x)
""")
    value = interpret(kept, 3, 10)
    found = []
    while value.fields:
        found.append(int(value.fields[0]))
        value = value.fields[1]
    assert found == [13, 12, 11]


@given(st.sampled_from(["x + 1.0", "x * x", "-x"]), st.sampled_from(["x - 2.0", "3.0 * x"]))
def test_a_composed_function_is_one_after_the_other(f: str, g: str) -> None:
    text = f"""
@plica.function
def compose(f: Fn[(f32,), f32], g: Fn[(f32,), f32]) -> Fn[(f32,), f32]:
    return lambda x: f(g(x))

@plica.function
def main(x: f32) -> tuple[f32, f32]:
    def f(x: f32) -> f32:
        return {f}
    def g(x: f32) -> f32:
        return {g}
    return (compose(f, g)(x), f(g(x)))
"""
    left, right = interpret(from_text(text), 1.75)
    assert same_value(left, right)


def test_a_function_that_is_returned_can_be_called() -> None:
    curried = from_text("""
@plica.function
def add(x: f32) -> Fn[(f32,), f32]:
    def inner(y: f32) -> f32:
        return x + y
    return inner
""")
    assert interpret(curried, 1.5)(2.0) == 3.5


def test_a_recursive_closure_can_be_returned_and_called() -> None:
    made = from_text("""
@plica.function
def make(step: i64) -> Fn[(i64,), i64]:
    def count(n: i64) -> i64:
        if n <= 0:
            return 0
        else:
            return 1 + count(n - step)
    return count
""")
    assert interpret(made, 2)(9) == 5


APPLY = """
@plica.function
def apply(f: Fn[(f32,), f32], x: f32) -> f32:
    return f(f(x))
"""


def test_a_function_of_python_can_be_an_input() -> None:
    assert interpret(from_text(APPLY), lambda x: x * x, 3.0) == 81


def test_a_function_of_python_must_return_what_its_type_says() -> None:
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(APPLY), np.float64, 3.0)
    assert caught.value.code == "type-conflict"


def test_a_constructor_is_a_function() -> None:
    mapped = from_text("""
@plica.data
class Box:
    Full: (f32,)

@plica.function
def apply(f: Fn[(f32,), Box], x: f32) -> Box:
    return f(x)

@plica.function
def main(x: f32) -> Box:
    return apply(Full, x)
""")
    value = interpret(mapped, 2.0)
    assert isinstance(value, DataValue)
    assert str(value.name) == "Full"
    assert value.fields[0] == 2.0


def test_one_function_at_two_types() -> None:
    twice = from_text("""
@plica.function(forall="A")
def pair(x: A) -> tuple[A, A]:
    return (x, x)

@plica.function
def main(x: f32, y: Tensor[(2,), i32]) -> tuple[
    tuple[f32, f32], tuple[Tensor[(2,), i32], Tensor[(2,), i32]]
]:
    return (pair(x), pair(y))
""")
    x, y = np.array(1, np.float32), np.array([1, 2], np.int32)
    assert same_value(interpret(twice, x, y), ((x, x), (y, y)))


# --- patterns --------------------------------------------------------------------------------

NESTED = """
@plica.data
class Tree:
    Leaf: (i64,)
    Node: (Tree, Tree)

@plica.function
def which(t: Tree) -> i64:
    match t:
        case Node(Node(Leaf(a), Node(b, Leaf(c))), Leaf(d)):
            return 1000 + a + c + d
        case Node(Node(_, Leaf(a)), Node(Leaf(b), _)):
            return 2000 + a * b
        case Node(Leaf(a), Leaf(b)):
            return 3000 + a - b
        case Node(x, Leaf(a)):
            return 4000 + a
        case Node(_, _):
            return 5000
        case Leaf(a):
            return a
"""

SHAPES = st.recursive(
    st.integers(0, 9), lambda inner: st.tuples(inner, inner), max_leaves=8
)  # an integer is a leaf, a pair a node


def which(t: Any) -> int:
    match t:
        case (((int(a)), (_, int(c))), int(d)):
            return 1000 + a + c + d
        case ((_, int(a)), (int(b), _)):
            return 2000 + a * b
        case (int(a), int(b)):
            return 3000 + a - b
        case (_, int(a)):
            return 4000 + a
        case (_, _):
            return 5000
        case _:
            return int(t)


def tree(of: Module, shape: Any) -> DataValue:
    if isinstance(shape, int):
        return build(of, "Leaf", shape)
    return build(of, "Node", tree(of, shape[0]), tree(of, shape[1]))


@given(SHAPES)
def test_nested_patterns_choose_as_python_does(shape: Any) -> None:
    nested = from_text(NESTED)
    assert interpret(nested, tree(nested, shape)) == which(shape)


# --- dims ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 5])
def test_dims_have_values_in_attributes(n: int) -> None:
    flat = from_text("""
@plica.function
def flat(x: Tensor[("n", 4), f32]) -> Tensor[("n*4",), f32]:
    return op.reshape(x, ("n*4",))

@plica.function
def main(a: Tensor[("m", 4), f32]) -> Tensor[("m*8",), f32]:
    b = flat(a)
    return op.concat((b, flat(op.concat((a,), axis=0))), axis=0)
""")
    x = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
    assert same_value(interpret(flat, x), np.concatenate((x.ravel(), x.ravel())))


def test_dims_of_closures_are_those_of_their_scope() -> None:
    scoped = from_text("""
@plica.function
def main(x: Tensor[("n",), f32], y: Tensor[("m",), f32]) -> Tensor[("n", "m"), f32]:
    def spread(z: Tensor[("m",), f32]) -> Tensor[("n", "m"), f32]:
        return op.broadcast_to(z, ("n", "m"))
    return spread(y)
""")
    y = np.array([1, 2], np.float32)
    result = interpret(scoped, np.zeros(3, np.float32), y)
    assert same_value(result, np.broadcast_to(y, (3, 2)).copy())


def test_dims_that_only_data_holds_are_found_from_types() -> None:
    listed = from_text("""
@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])

@plica.function
def total(xs: List[Tensor[("n",), f32]]) -> Tensor[("n",), f32]:
    match xs:
        case Nil():
            return op.zeros(("n",), dtype=f32)
        case Cons(x, rest):
            return x + total(rest)

@plica.function
def main(x: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    return total(Cons(x, Cons(x, Nil[Tensor[("n",), f32]]())))
""")
    x = np.array([1, 2, 3], np.float32)
    assert same_value(interpret(listed, x), x + x)


# --- externs and kernels ---------------------------------------------------------------------

EXTERN = """
f = plica.extern("outside", Fn[(Tensor[("n",), f32],), Tensor[("n",), f32]])

@plica.function
def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    return f(x) + x
"""


def test_an_extern_is_a_function_of_python() -> None:
    x = np.array([1, 2, 3], np.float32)
    assert same_value(interpret(from_text(EXTERN), x, externs={"outside": np.square}), x * x + x)


def test_an_extern_cannot_change_what_it_is_given() -> None:
    def spoil(x: Any) -> Any:
        x[0] = 7
        return x

    with pytest.raises(ValueError, match="read-only"):
        interpret(from_text(EXTERN), np.zeros(3, np.float32), externs={"outside": spoil})


def test_an_extern_that_is_not_given() -> None:
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(EXTERN), np.zeros(3, np.float32))
    assert caught.value.code == "unbound-name"


@pytest.mark.parametrize("wrong", [np.zeros(2, np.float32), np.zeros(3), "text", None])
def test_an_extern_that_returns_something_else(wrong: Any) -> None:
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(EXTERN), np.zeros(3, np.float32), externs={"outside": lambda x: wrong})
    assert caught.value.code == "type-conflict"


def kernel_module(outputs: int) -> Module:
    n, i = dim_var("n"), axis("i")
    x, y, z = (buffer(name, (n,), f32) for name in "xyz")
    stores = (Store(y, (i,), x[i] * 2), Store(z, (i,), x[i] + 1))[:outputs]
    params = (x, y, z)[: outputs + 1]
    kernel = Kernel((n,), params, 1, For(i, n, "parallel", Seq(stores)))
    data = var("x", tensor((3,), "f32"))
    vector = tensor((n,), "f32")
    ret: Type = vector
    if outputs > 1:
        ret = TupleType((vector, vector))
    double = var("double", FuncType((n,), (), (vector,), ret))
    main = var("main", None)
    body = Call(double, (data + 1.0,))
    return module({double: kernel, main: Function((), (), (data,), None, body)}, main)


def test_a_kernel_is_called_as_a_function() -> None:
    x = np.array([1, 2, 3], np.float32)
    assert same_value(interpret(kernel_module(1), x), (x + 1) * 2)


def test_a_kernel_with_two_outputs_gives_a_tuple() -> None:
    x = np.array([1, 2, 3], np.float32)
    assert same_value(interpret(kernel_module(2), x), ((x + 1) * 2, x + 2))


# --- results ---------------------------------------------------------------------------------


def test_results_belong_to_the_caller() -> None:
    x = np.zeros(2, np.float32)
    param = var("x", tensor((2,), "f32"))
    same = main_of(param, body=Tuple((param, const([1.0], "f32"))))
    left, right = interpret(same, x)
    left[0], right[0] = 1, 2
    assert x[0] == 0
    assert interpret(same, x)[1][0] == 1


def test_composite_operators_are_interpreted_through_their_decomposition() -> None:
    x = var("x", tensor((2, 3), "f32"))
    softmax = find("nn.softmax")
    assert softmax is not None
    assert softmax.decompose is not None
    given_ = np.array([[1, 2, 3], [0, 0, 0]], np.float32)
    found = interpret(main_of(x, body=softmax(x, axis=-1)), given_)
    expected = np.exp(given_) / np.exp(given_).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_operator_with_several_results() -> None:
    x = var("x", tensor((4,), "i64"))
    split = find("split")
    assert split is not None
    parts = interpret(main_of(x, body=split(x, 2)), np.arange(4))
    assert same_value(parts, (np.array([0, 1]), np.array([2, 3])))


@given(st.data())
def test_well_typed_modules_evaluate_to_values_of_their_type(data: st.DataObject) -> None:
    of = data.draw(modules())
    inputs = data.draw(inputs_for(of))
    main = of.main_function()
    assert main.ret is not None
    found: list[tuple[Scalar, int]] = []
    for param, value in zip(main.params, inputs, strict=True):
        if isinstance(param.type, TensorType):
            found.extend(zip(param.type.shape, np.shape(value), strict=True))
    try:
        result = interpret(of, *inputs)
    except EvaluationError as error:
        assert error.code == "match-failure"  # noqa: PT017  # a partial match may fail
        return
    assert conforms(result, main.ret, solve(found), of)


@pytest.mark.parametrize("shape", [(1 << 40,), (10**7, 10**6, 10**6)])
def test_a_tensor_no_memory_can_hold_is_refused(shape: tuple[int, ...]) -> None:
    zeros, total = find("zeros"), find("sum")
    assert zeros is not None
    assert total is not None
    huge = zeros(shape=shape, dtype="f32")
    for body in (huge, total(huge)):
        with pytest.raises(EvaluationError) as caught:
            interpret(main_of(body=body))
        assert caught.value.code == "too-large"


def test_a_result_that_this_machine_has_no_memory_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def allocate(*_: object) -> NoReturn:
        raise MemoryError("Unable to allocate 256 GiB")

    monkeypatch.setattr(evaluate, "play", allocate)
    negative = find("negative")
    assert negative is not None
    x = Var(Name("x"), tensor((3,), "f32"))
    with pytest.raises(EvaluationError, match="256 GiB") as caught:
        interpret(main_of(x, body=negative(negative(x) + x)), np.zeros(3, np.float32))
    assert caught.value.code == "no-memory"
    assert caught.value.diagnostics[0].place is not None


def test_nothing_runs_without_a_main() -> None:
    with pytest.raises(PlicaError) as caught:
        interpret(from_text(""))
    assert caught.value.code == "no-main"


def test_what_an_operator_refuses_when_it_runs_names_it_once() -> None:
    text = (
        '@plica.function\ndef main(x: Tensor[("n", "c", "h", "w"), f32], '
        'k: Tensor[(4, "c", "k", "k"), f32]):\n    return op.nn.conv(x, k)\n'
    )
    arrays = np.zeros((1, 1, 2, 2), np.float32), np.zeros((4, 1, 3, 3), np.float32)
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(text), *arrays)
    assert str(caught.value).count("nn.conv") == 1
