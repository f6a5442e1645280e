"""Printing: what is printed reads back as the same module, and prints again as the same bytes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.digest import digest, first_difference
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import (
    Apply,
    Call,
    Clause,
    Const,
    Expr,
    Function,
    If,
    Let,
    Literal,
    Match,
    PAny,
    Project,
    PTuple,
    PVar,
    Tuple,
    Var,
    const,
)  # fmt: skip
from plica.ir.graph.module import Defined, Definition, Extern, Module, module
from plica.ir.loop.scalar import Buffer, Lit, ScalarVar, index
from plica.ir.loop.statement import Kernel, Seq, Store
from plica.ir.op import find
from plica.ir.text.script import from_text, read_text
from plica.ir.text.show import show_expr, show_module, show_type
from plica.ir.text.show.layout import StatementSpot, meet
from plica.ir.text.show.module import distinct
from plica.ir.text.show.name import IdentifierSupply, spelling
from plica.ir.text.word import WORDS, is_reserved
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import DType, bf16, bool_, f16, f32, f64, i8, u64
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import FuncType, TensorType, TupleType, Type, tensor
from tests.conftest import Golden
from tests.strategies import (
    constants,
    dtypes,
    modules,
    names,
    small_shapes,
    static_modules,
    surface,
    types,
)  # fmt: skip

SCALAR = tensor((), f32)
X, C = Var(Name("x"), SCALAR), Var(Name("c"), tensor((), bool_))


def module_of(body: Expr, params: Sequence[Var] = (X, C), ret: Type | None = SCALAR) -> Module:
    """A module with one function."""
    kinds = tuple(param.type for param in params if param.type is not None)
    main = Var(Name("main"), None if ret is None else FuncType((), (), kinds, ret))
    return module({main: Function((), (), tuple(params), ret, body)}, main)


def round_trip(of: Module) -> str:
    """The text of a module, which reads back as it."""
    source = show_module(of)
    back = from_text(source.text, constants=source.constants)
    if digest(back) != digest(of):
        pytest.fail(f"{first_difference(of, back)} differs in\n{source.text}")
    assert show_module(back) == source
    return source.text


def body_of(text: str) -> str:
    """The lines of the last function, without their indentation."""
    lines = text.rstrip().split("\n")
    start = max(i for i, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(line[4:] for line in lines[start + 1 :])


# --- the law ---------------------------------------------------------------------------------


@given(modules())
def test_modules_read_back(of: Module) -> None:
    round_trip(of)


@given(static_modules())
def test_static_modules_read_back(of: Module) -> None:
    round_trip(of)


@given(st.data())
def test_what_is_left_to_inference_is_printed_as_such(data: st.DataObject) -> None:
    written = data.draw(surface(data.draw(modules())))
    source = show_module(written)
    read, places = read_text(source.text, "f.py", source.constants)
    assert digest(infer(read, places)) == digest(infer(written))


@given(st.data())
def test_constants_are_exact(data: st.DataObject) -> None:
    of = data.draw(constants(data.draw(dtypes()), data.draw(small_shapes())))
    text = round_trip(module_of(of, (), type_of(of)))
    assert len(text) < 400 + 2 * len(of.data)


@given(types())
def test_types_print_without_context(of: Type) -> None:
    assert show_type(of) == str(of)


# --- golden text -----------------------------------------------------------------------------


EVERYTHING = '''
@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])

probe = plica.extern("probe", Fn[(Tensor[("n",), f32], f32), Tensor[("n",), f32]])

@plica.function(forall="A B")
def map(f: Fn[(A,), B], xs: List[A]) -> List[B]:
    match xs:
        case Nil():
            return Nil()
        case Cons(h, t):
            return Cons(f(h), map(f, t))

@plica.function(attrs={"inline": True, "note": "a\\nb"})
def rec(n: i64) -> i64:
    def go(k: i64, acc: i64) -> i64:
        if k <= 0:
            return acc
        return go(k - 1, acc + k)
    return go(n, 0)

@plica.function
def shapes(x: Tensor[("n", "m"), f32], y: Tensor[("2*n+1",), f32]) -> tuple[
    Tensor[("n*m",), f32], Tensor[("2*n+1",), f32]
]:
    return op.reshape(x, ("n*m",)), y

@plica.function
def head(xs: List[f32]) -> f32:
    match partial(xs):
        case Cons(h, _):
            return h

@plica.function
def main(x: Tensor[("n",), f32], c: bool, t: tuple[f32, tuple[()]]) -> tuple[
    Tensor[("n",), f32], List[Tensor[("n",), f32]]
]:
    """A docstring."""
    k = 3.0
    f = lambda z: z * k
    y = x + 1.5 if c else x - f32(0.1)
    if c:
        a = nn.relu(y)
        w = a + a
    else:
        w = probe(y, t[0])
    match (c, w):
        case (p, q):
            r = op.exp(q)
    a, b = (r, r * r)
    def g(u: Tensor[("n",), f32], v: Tensor[("k",), f32]) -> Tensor[("n",), f32]:
        return u + r + op.sum(v)
    z = g(a, b)
    z = g(z, b)
    z += const([1.0], f32)
    s = op.tanh(z) * op.tanh(z)
    xs = Cons(-z ** 2.0, Cons((x - s) - (s - x), Nil()))
    return f(z), map(lambda e: e + 1, xs)
'''


def test_everything(golden: Golden) -> None:
    golden(round_trip(from_text(EVERYTHING)))


def test_reserved_names_share(golden: Golden) -> None:
    inner = Apply("exp", (X,))
    twice = Apply("add", (inner, inner))
    y = Var(Name("y"), SCALAR)
    body = Let(y, Apply("multiply", (twice, twice)), If(C, Apply("add", (y, inner)), twice))
    golden(round_trip(module_of(body)))


def test_regions(golden: Golden) -> None:
    """A let inside an expression, and blocks nested deeper than Python can read."""
    y = Var(Name("y"), SCALAR)
    body: Expr = Apply("add", (Let(y, Apply("exp", (X,)), Apply("add", (y, y))), X))
    for depth in range(25):
        body = If(C, body, Apply("add", (X, const(float(depth), f32))))
    golden(round_trip(module_of(body)))


# --- names -----------------------------------------------------------------------------------


def test_two_variables_of_one_name_stay_distinct() -> None:
    a, b = Var(Name("x"), SCALAR), Var(Name("x"), tensor((2,), f32))
    text = round_trip(module_of(Apply("add", (a, b)), (a, b), tensor((2,), f32)))
    assert "def main(x: Tensor[(), f32], x_1: Tensor[(2,), f32])" in text


@pytest.mark.parametrize("hint", ["lambda", "_", "_3", "op", "main", "f32", "a b", "", "ﬁ", "None"])
def test_awkward_hints(hint: str) -> None:
    x = Var(Name(hint), SCALAR)
    y = Var(Name("y"), SCALAR)
    round_trip(module_of(Let(y, Apply("exp", (x,)), Apply("add", (x, y))), (x,)))


@given(st.lists(names(), max_size=20))
def test_a_supply_gives_each_identifier_once_and_keeps_what_it_gave(given_: list[Name]) -> None:
    supply = IdentifierSupply(WORDS)
    drawn = [supply.draw(name) for name in given_]
    assert len(set(drawn)) == len(drawn)
    assert all(text.isidentifier() and text not in WORDS for text in drawn)
    assert not any(is_reserved(text) for text in drawn)
    again = IdentifierSupply(WORDS)
    assert [again.draw(Name(text)) for text in reversed(drawn)] == drawn[::-1]


@given(names())
def test_spelling_is_idempotent(name: Name) -> None:
    assert spelling(Name(spelling(name))) == spelling(name)


def test_a_variable_bound_twice_gets_two_names() -> None:
    y = Var(Name("y"), SCALAR)
    twice = Apply("add", (y, y))
    first, second = Let(y, Apply("exp", (X,)), twice), Let(y, Apply("log", (X,)), twice)
    round_trip(module_of(Apply("add", (first, second))))
    round_trip(module_of(Let(y, X, Let(y, const(0.0, f32), y))))
    clause = Clause(PTuple((PVar(y), PAny())), Apply("multiply", (y, y)))
    pair = Match(Tuple((X, X)), (clause,))
    round_trip(module_of(Apply("add", (pair, Match(Tuple((X, C)), (clause,))))))
    n = dim_var("n")
    v = Var(Name("v"), TensorType((n,), f32))
    takes = Function((n,), (), (v,), SCALAR, _sum(v))
    other = Function((n,), (), (v,), SCALAR, Apply("negative", (_sum(v),)))
    two = const([1.0, 2.0], f32)
    round_trip(module_of(Apply("add", (Call(takes, (two,)), Call(other, (two,))))))


def _sum(of: Expr) -> Expr:
    operator = find("sum")
    assert operator is not None
    return operator(of)


@given(modules())
def test_distinct_keeps_the_term(of: Module) -> None:
    for _, function in of.functions():
        apart = distinct(function, of.names)
        assert digest(apart) == digest(function)
        assert distinct(apart, of.names) is apart


# --- sharing ---------------------------------------------------------------------------------


def test_what_a_recursive_function_and_its_scope_share() -> None:
    f = Var(Name("f"), FuncType((), (), (SCALAR,), SCALAR))
    n = Var(Name("n"), SCALAR)
    shared: Expr = Call(f, (Apply("exp", (X,)),))
    for _ in range(60):
        shared = Apply("add", (shared, shared))
    function = Function((), (), (n,), SCALAR, If(C, n, Apply("add", (shared, n))))
    text = round_trip(module_of(Let(f, function, Apply("add", (shared, Call(f, (shared,)))))))
    assert text.count("f(op.exp(x))") == 1
    again = Let(f, function, Apply("add", (Call(f, (X,)), Call(function, (X,)))))
    round_trip(module_of(again))


def test_a_shared_function_is_printed_once() -> None:
    n = Var(Name("n"), SCALAR)
    square = Function((), (), (n,), SCALAR, Apply("multiply", (n, n)))
    text = round_trip(
        module_of(Apply("add", (Call(square, (X,)), Call(square, (Call(square, (X,)),)))))
    )
    assert text.count("n * n") == 1
    thunk = Function((), (), (), SCALAR, Apply("exp", (X,)))
    text = round_trip(module_of(Apply("add", (Call(thunk, ()), Apply("exp", (Call(thunk, ()),))))))
    assert text.count("def _") == 1


def test_functions_and_branches_as_values() -> None:
    n, y = Var(Name("n"), SCALAR), Var(Name("y"), SCALAR)
    same = Function((), (), (n,), SCALAR, n)
    other = Function((), (), (y,), SCALAR, Apply("negative", (y,)))
    round_trip(module_of(Call(If(C, same, other), (X,))))
    round_trip(module_of(If(If(C, C, Apply("logical_not", (C,))), X, Apply("negative", (X,)))))
    whole = TupleType((SCALAR, TupleType(())))
    text = round_trip(module_of(Tuple((If(C, X, Let(y, X, y)), Tuple(()))), ret=whole))
    assert "if c:\n        _0 = x\n    else:\n" in text


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), min_size=1, max_size=60), st.data())
def test_meet_is_the_lowest_common_ancestor(
    steps: list[tuple[int, bool]], data: st.DataObject
) -> None:
    spots = [StatementSpot()]
    for up, deep in steps:
        spots.append(StatementSpot(spots[-1] if deep else spots[up % len(spots)]))

    def line(spot: StatementSpot) -> list[StatementSpot]:
        found = [spot]
        while found[-1].up is not found[-1]:
            found.append(found[-1].up)
        return found[::-1]

    a, b = (data.draw(st.sampled_from(spots)) for _ in range(2))
    shared = [x for x, y in zip(line(a), line(b), strict=False) if x is y]
    assert meet(a, b) is meet(b, a) is shared[-1]


# --- what is written, and what is left out ------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (Apply("add", (X, const(1.0, f32))), "x + 1.0"),
        (Apply("add", (const(-1.0, f32), X)), "-1.0 + x"),
        (Apply("power", (const(-1.0, f32), X)), "(-1.0) ** x"),
        (Apply("add", (X, const(0.1, f32))), "x + 0.1"),
        (Apply("add", (X, const(math.inf, f32))), 'x + f32("inf")'),
        (Apply("add", (const(1.0, f32), const(2.0, f32))), "f32(1.0) + f32(2.0)"),
        (Apply("negative", (const(1.0, f32),)), "-f32(1.0)"),
        (Apply("negative", (Apply("power", (X, X)),)), "-x ** x"),
        (Apply("power", (Apply("negative", (X,)), X)), "(-x) ** x"),
        (Apply("power", (X, Apply("negative", (X,)))), "x ** -x"),
        (Apply("power", (Apply("power", (X, X)), X)), "(x ** x) ** x"),
        (Apply("subtract", (X, Apply("subtract", (X, X)))), "x - (x - x)"),
        (Apply("subtract", (Apply("subtract", (X, X)), X)), "x - x - x"),
        (Apply("multiply", (X, Apply("divide", (X, X)))), "x * (x / x)"),
        (Apply("maximum", (X, const(0.0, f32))), "op.maximum(x, 0.0)"),
        (Project(Tuple((X, C)), 0), "(x, c)[0]"),
        (Project(Tuple((X,)), 0), "(x,)[0]"),
    ],
)
def test_expressions(body: Expr, text: str) -> None:
    assert show_expr(body) == text
    assert body_of(round_trip(module_of(body))) == f"return {text}"


def test_an_expression_with_statements() -> None:
    y = Var(Name("y"), SCALAR)
    assert show_expr(Let(y, X, Apply("add", (y, y)))) == "y = x\nreturn y + y"


def test_numbers_left_to_inference() -> None:
    assert show_expr(Apply("add", (X, Literal(1)))) == "x + 1"
    assert show_expr(Apply("negative", (Literal(1.5),))) == "op.negative(1.5)"
    assert show_expr(Literal(math.nan)) == 'float("nan")'


def test_a_let_says_its_type_where_inference_would_find_another() -> None:
    n, m = dim_var("n"), dim_var("m")
    x = Var(Name("x"), TensorType((n,), f32))
    y = Var(Name("y"), TensorType((m,), f32))
    concat = find("concat")
    assert concat is not None
    both = concat((x, y), axis=0)
    here, there = TensorType((n + m,), f32), TensorType((m + n,), f32)
    for of, shown in ((here, "z = "), (there, 'z: Tensor[("m+n",), f32] = ')):
        z = Var(Name("z"), of)
        function = Function((n, m), (), (x, y), of, Let(z, both, z))
        main = Var(Name("main"), FuncType((n, m), (), (x.type, y.type), of))  # type: ignore[arg-type]
        text = show_module(module({main: function}, main)).text
        assert shown in text


def test_dims_in_another_order_are_said() -> None:
    n, m = dim_var("n"), dim_var("m")
    x = Var(Name("x"), TensorType((n, m), f32))
    reshape = find("reshape")
    assert reshape is not None
    body = reshape(x, (m * n,))
    for dims, shown in (((n, m), "@plica.function\n"), ((m, n), '@plica.function(dims="m n")\n')):
        function = Function(dims, (), (x,), type_of(body), body)
        main = Var(Name("main"), FuncType(dims, (), (x.type,), type_of(body)))  # type: ignore[arg-type]
        text = round_trip(module({main: function}, main))
        assert shown in text
        assert 'op.reshape(x, shape=("m*n",))' in text


def test_big_constants_lie_beside_the_text() -> None:
    array = np.arange(4096, dtype=np.float32).reshape(64, 64)
    big, zeros = const(array), const(np.zeros((4096,), np.float32))
    same = const(np.zeros((64, 64), np.float32))
    body = Apply("add", (_sum(Apply("add", (big, same))), _sum(zeros)))
    source = show_module(module_of(body))
    assert len(source.constants) == 3
    assert len(source.text) < 1000
    round_trip(module_of(body))


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64])
def test_floats_are_short_and_exact(dtype: DType) -> None:
    for value in (0.1, 1e-7, 3.14159, 65504.0, -0.0):
        constant = const(value, dtype)
        text = body_of(round_trip(module_of(constant, (), type_of(constant))))
        assert len(text) < 30


def test_bits_that_no_number_has() -> None:
    for data in (b"\x01\x00\xc0\x7f", b"\x00\x00\xc0\xff"):  # nans with a payload and a sign
        text = round_trip(module_of(Const(f32, (), data), ()))
        assert "data(" in text
    round_trip(module_of(Const(bool_, (2,), b"\x01\x02"), (), tensor((2,), bool_)))
    round_trip(module_of(const(2**64 - 1, u64), (), tensor((), u64)))
    round_trip(module_of(const(-128, i8), (), tensor((), i8)))


# --- definitions -----------------------------------------------------------------------------


def test_a_module_without_functions() -> None:
    assert round_trip(module({})) == "# plica 1\nfrom __future__ import annotations\n"


def test_main_that_is_not_the_last_function() -> None:
    of = module_of(X)
    assert round_trip(Module(of.names, of.values, None)).endswith("\n__main__ = None\n")
    kind = FuncType((), (), (SCALAR,), SCALAR)
    outside: dict[Defined, Definition] = {Var(Name("f"), kind): Extern("f", kind)}
    text = show_module(module(outside, Var(Name("f"), kind))).text
    assert text.endswith("\n__main__ = f\n")


def test_kernels_are_kept() -> None:
    n = ScalarVar(Name("n"), Lit(0, dim_var("n").dtype).dtype)
    source, target = (Buffer(Name(hint), (n,), f32) for hint in "ab")
    store = Store(target, (index(0),), source[0])
    kernel = Kernel((n,), (source, target), 1, Seq((store,)))
    of = module({Var(Name("k"), None): kernel})
    text = show_module(of).text
    read, _ = read_text(text, "f.py", {})
    assert read.find("k") is kernel
    assert show_module(read).text == text


# --- depth, sharing, determinism ------------------------------------------------------------------


def let_chain(count: int) -> Expr:
    variables = [Var(Name("v", i), SCALAR) for i in range(count)]
    body: Expr = variables[-1]
    for i in reversed(range(count)):
        body = Let(variables[i], Apply("add", (variables[i - 1] if i else X, X)), body)
    return body


def doubling_chain(count: int) -> Expr:
    term: Expr = X
    for _ in range(count):
        term = Apply("add", (term, term))
    return term


def operator_chain(count: int) -> Expr:
    term: Expr = X
    for _ in range(count):
        term = Apply("add", (term, X))
    return term


def nested_ifs(count: int) -> Expr:
    term: Expr = X
    for i in range(count):
        other = Apply("add", (X, const(float(i), f32)))
        term = If(C, term, other) if i % 3 else If(C, other, term)
    return term


def nested_lambdas(count: int) -> Expr:
    variables = [Var(Name("p", i), SCALAR) for i in range(count)]
    term: Expr = variables[-1]
    for i in reversed(range(count)):
        argument = Apply("exp", (variables[i - 1] if i else X,))
        term = Call(Function((), (), (variables[i],), SCALAR, term), (argument,))
    return term


def nested_matches(count: int) -> Expr:
    variables = [Var(Name("p", i), SCALAR) for i in range(count)]
    term: Expr = variables[-1]
    for i in reversed(range(count)):
        value = Tuple((Apply("exp", (variables[i - 1] if i else X,)), C))
        term = Match(value, (Clause(PTuple((PVar(variables[i]), PAny())), term),))
    return term


def nested_values(count: int) -> Expr:
    """Lets in the values of lets."""
    term: Expr = X
    for i in range(count):
        variable = Var(Name("v", i), SCALAR)
        term = Let(variable, term, Apply("add", (variable, X)))
    return term


@pytest.mark.parametrize(
    ("nested", "count"),
    [
        (let_chain, 2_000),
        (doubling_chain, 60),
        (operator_chain, 2_000),
        (nested_ifs, 1_000),
        (nested_lambdas, 1_000),
        (nested_matches, 1_000),
        (nested_values, 1_000),
        pytest.param(nested_ifs, 5_000, marks=pytest.mark.slow),
        pytest.param(nested_lambdas, 5_000, marks=pytest.mark.slow),
        pytest.param(nested_matches, 5_000, marks=pytest.mark.slow),
        pytest.param(nested_values, 5_000, marks=pytest.mark.slow),
    ],
)
def test_depth(nested: Callable[[int], Expr], count: int) -> None:
    body = nested(count)
    text = round_trip(module_of(body))
    assert len(text) < 200 * len(post_order(body))


def test_the_same_bytes_under_any_hash_seed() -> None:
    program = "import sys, plica; print(plica.from_text(sys.stdin.read()), end='')"
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": path}  # here another
    command = [sys.executable, "-c", program]
    text = subprocess.check_output(command, env=environment, text=True, input=EVERYTHING)
    assert text == str(from_text(EVERYTHING))
