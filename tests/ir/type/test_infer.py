"""Inference: principal types of what is not annotated, and one test for each refusal."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core import alpha_equal, digest
from plica.core.diagnostic import IllTyped
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.check import check
from plica.ir.graph.expression import (
    Apply,
    Call,
    Clause,
    Const,
    Constructor,
    Expr,
    Function,
    If,
    Let,
    Literal,
    Match,
    PAny,
    PConstructor,
    Project,
    PTuple,
    PVar,
    Tuple,
    Var,
    const,
)
from plica.ir.graph.module import (
    ConstructorDef,
    DataDef,
    Defined,
    Definition,
    Extern,
    Module,
    constructors,
    module,
)
from plica.ir.loop.statement import Kernel, Seq
from plica.ir.loop.tensor import buffer
from plica.ir.op import find
from plica.ir.type.dtype import COMPUTED, DType, bool_, f16, f32, f64, i32, i64, u8
from plica.ir.type.infer import infer, infer_expr, is_inferred, kernel_type, same_type, type_of
from plica.ir.type.term import (
    DataName,
    DataType,
    FuncType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    Unknown,
    dim_var,
    tensor,
)
from plica.runtime.error import Place
from tests.strategies import ill_typed, modules, surface

MAIN = Var(Name("main"), None)
A, B = TypeVar(Name("A")), TypeVar(Name("B"))
n, m = dim_var("n"), dim_var("m")
F32, I32, I64, BOOL = (tensor((), each) for each in (f32, i32, i64, bool_))
V4 = tensor((4,), f32)

LIST = DataName(Name("List"))
LIST_OF_A = DataType(LIST, (A,))
LIST_DEF = DataDef(
    (A,), (ConstructorDef(Name("Nil"), ()), ConstructorDef(Name("Cons"), (A, LIST_OF_A)))
)
NIL, CONS = constructors(LIST, LIST_DEF)


def var(name: str, of: Type | None = None, index: int = 0) -> Var:
    return Var(Name(name, index), of)


def fn(params: tuple[Var, ...], body: Expr, ret: Type | None = None) -> Function:
    return Function((), (), params, ret, body)


def op(name: str, *args: object, **attributes: object) -> Expr:
    record = find(name)
    assert record is not None
    return record(*args, **attributes)


def main_of(*params: Var, body: Expr, ret: Type | None = None, dims: object = ()) -> Module:
    assert isinstance(dims, tuple)
    return module({LIST: LIST_DEF, MAIN: Function(dims, (), params, ret, body)}, MAIN)


def inferred(*params: Var, body: Expr, ret: Type | None = None, dims: object = ()) -> Function:
    return infer(main_of(*params, body=body, ret=ret, dims=dims)).main_function()


def refused(*params: Var, body: Expr, ret: Type | None = None, dims: object = ()) -> IllTyped:
    with pytest.raises(IllTyped) as caught:
        infer(main_of(*params, body=body, ret=ret, dims=dims))
    return caught.value


def codes(error: IllTyped) -> list[str]:
    return [each.code for each in error.diagnostics]


def is_complete(of: Module) -> bool:
    """What an inferred module is: nothing is left to be inferred, and every part has its type."""
    for node in post_order(of):
        if isinstance(node, Literal | Unknown):
            return False
        if isinstance(node, Var) and node.type is None:
            return False
        if isinstance(node, Function) and node.ret is None:
            return False
    return True


def cons(*items: Expr) -> Expr:
    result: Expr = Call(NIL, ())
    for each in reversed(items):
        result = Call(CONS, (each, result))
    return result


# --- laws --------------------------------------------------------------------------------------


@given(modules())
def test_a_well_typed_module_is_inferred_to_itself(of: Module) -> None:
    made = infer(of)
    assert digest(made) == digest(of)
    assert is_complete(made)
    assert check(made) == ()


@given(modules().flatmap(lambda of: st.tuples(st.just(of), surface(of))))
def test_what_was_left_out_is_found_again(both: tuple[Module, Module]) -> None:
    whole, erased = both
    made = infer(erased)
    assert digest(made) == digest(whole)
    assert is_complete(made)
    assert infer(made) is made


@given(ill_typed())
def test_a_planted_mistake_is_the_one_error(planted: tuple[Module, str]) -> None:
    of, code = planted
    with pytest.raises(IllTyped) as caught:
        infer(of)
    assert codes(caught.value) == [code], str(caught.value)
    assert all(each.place is not None for each in caught.value.diagnostics)


@given(modules())
def test_the_type_of_a_node_is_found_locally(of: Module) -> None:
    """Forget all types; each node finds its own again from those of its parts."""
    nodes = [node for node in post_order(infer(of)) if isinstance(node, Expr)]
    was = [type_of(node) for node in nodes]
    for node in nodes:
        forget(node)
    for node, before in zip(nodes, was, strict=True):
        assert same_type(type_of(node), before)


def forget(node: Expr) -> None:
    slots: Any = Expr.__dict__
    for each in ("_type", "_settled"):
        if hasattr(node, each):
            slots[each].__delete__(node)


# --- numbers -----------------------------------------------------------------------------------


@given(st.sampled_from(COMPUTED))
def test_a_number_takes_the_dtype_of_its_neighbour(dtype: DType) -> None:
    if dtype is bool_:
        return
    x = var("x", tensor((3,), dtype))
    body = inferred(x, body=x + 1).body
    assert isinstance(body, Apply)
    number = body.args[1]
    assert isinstance(number, Const)
    assert number.dtype is dtype
    assert number.shape == ()
    assert float(number.numpy()) == 1.0


def test_a_float_becomes_f32_and_an_integer_i64_where_nothing_decides() -> None:
    assert inferred(body=Literal(1)).ret is I64
    assert inferred(body=Literal(1.0)).ret is F32
    assert inferred(body=Literal(True)).ret is BOOL
    assert inferred(body=Apply("add", (Literal(1), Literal(2.5)))).ret is F32
    assert inferred(body=Tuple((Literal(1), Literal(0.5)))).ret is TupleType((I64, F32))


def test_a_number_is_decided_by_what_its_variable_meets() -> None:
    x, y = var("x"), var("y", V4)
    body = Let(x, Literal(2), x * y)
    assert inferred(y, body=body).ret is V4


def test_a_number_takes_the_type_of_a_parameter_and_of_the_other_branch() -> None:
    f, x, c = var("f"), var("x", F32), var("c", BOOL)
    body = Let(f, fn((x,), x + 1.0), Call(f, (If(c, Literal(1), Literal(2)),)))
    assert inferred(c, body=body).ret is F32
    y = var("y", I32)
    assert inferred(c, y, body=If(c, Literal(0), y)).ret is I32


def test_only_arguments_of_one_dtype_group_decide() -> None:
    c, x = var("c", tensor((3,), bool_)), var("x", tensor((3,), f64))
    assert inferred(c, x, body=op("where", c, x, 0)).ret is tensor((3,), f64)


def test_one_number_may_have_two_dtypes_at_two_uses() -> None:
    f, g, x, y = var("f"), var("g"), var("x", F32), var("y", I32)
    pair = Tuple((Literal(1),))
    px, py = var("p", TupleType((F32,))), var("q", TupleType((I32,)))
    body = Let(
        f,
        fn((px,), Project(px, 0)),
        Let(g, fn((py,), Project(py, 0)), Tuple((Call(f, (pair,)), Call(g, (pair,))))),
    )
    assert inferred(x, y, body=body).ret is TupleType((F32, I32))


@pytest.mark.parametrize(
    ("dtype", "value"), [(i32, 1.5), (u8, -1), (u8, 300), (bool_, 1), (f16, 1e6), (i64, 2**63)]
)
def test_a_number_that_is_no_value_of_the_dtype(dtype: DType, value: float) -> None:
    x = var("x", tensor((3,), dtype))
    body = op("where", const(True), x, value) if dtype is bool_ else x + value
    assert codes(refused(x, body=body)) == ["dtype-conflict"]


def test_dtypes_are_never_promoted() -> None:
    error = refused(var("x", F32), var("y", I32), body=var("x", F32) + var("y", I32))
    assert codes(error) == ["dtype-conflict"]


# --- dims --------------------------------------------------------------------------------------


def test_symbolic_dims_flow_through_operators() -> None:
    x, y = var("x", tensor((n, 4), f32)), var("y", tensor((m, 4), f32))
    body = op("concat", (x, y), axis=0)
    ret = inferred(x, y, body=body, dims=(n, m)).ret
    assert ret is not None
    assert same_type(ret, tensor((m + n, 4), f32))


def test_equal_dims_in_another_order_agree() -> None:
    x, y = var("x", tensor((n + m,), f32)), var("y", tensor((m + n,), f32))
    assert inferred(x, y, body=x + y, dims=(n, m), ret=tensor((m + n,), f32)).ret is y.type


def test_a_call_finds_the_dims_of_the_callee() -> None:
    double, x, y = var("double"), var("x", tensor((2 * n + 1,), f32)), var("y", tensor((7,), f32))
    callee = Function((n,), (), (x,), tensor((n,), f32), op("zeros", (n,), "f32"))
    of = infer(module({double: callee, MAIN: fn((y,), Call(double, (y,)))}, MAIN))
    assert of.main_function().ret is tensor((3,), f32)
    z = var("z", tensor((8,), f32))
    with pytest.raises(IllTyped) as caught:
        infer(module({double: callee, MAIN: fn((z,), Call(double, (z,)))}, MAIN))
    assert codes(caught.value) == ["shape-conflict"]


def test_a_dim_that_two_arguments_decide_together() -> None:
    f, x, y = var("f"), var("x", tensor((n * m,), f32)), var("y", tensor((n,), f32))
    callee = Function((n, m), (), (x, y), tensor((m,), f32), op("zeros", (m,), "f32"))
    a, b = var("a", tensor((12,), f32)), var("b", tensor((4,), f32))
    of = infer(module({f: callee, MAIN: fn((a, b), Call(f, (a, b)))}, MAIN))
    assert of.main_function().ret is tensor((3,), f32)


def test_a_rigid_dim_is_no_number() -> None:
    x, y = var("x", tensor((n,), f32)), var("y", tensor((3,), f32))
    error = refused(x, y, body=If(Literal(True), x, y), dims=(n,))
    assert codes(error) == ["shape-conflict"]
    assert "n may be any size" in str(error)


def test_two_symbolic_dims_do_not_broadcast() -> None:
    x, y = var("x", tensor((n,), f32)), var("y", tensor((m,), f32))
    assert codes(refused(x, y, body=x + y, dims=(n, m))) == ["shape-conflict"]


def test_a_size_nothing_decides() -> None:
    f = var("f")
    of = Extern("f", FuncType((n, m), (), (tensor((n,), f32),), tensor((m,), f32)))
    x = var("x", V4)
    with pytest.raises(IllTyped) as caught:
        infer(module({f: of, MAIN: fn((x,), Call(f, (x,)))}, MAIN))
    assert codes(caught.value) == ["cannot-infer"]


# --- functions ---------------------------------------------------------------------------------


def test_a_lambda_gets_its_types_from_its_use() -> None:
    f, x, y = var("f"), var("x"), var("y", V4)
    found = inferred(y, body=Let(f, fn((x,), x * 2 + 1), Call(f, (y,))))
    assert found.ret is V4
    assert isinstance(found.body, Let)
    assert found.body.var.type is FuncType((), (), (V4,), V4)


def test_one_lambda_at_two_types() -> None:
    x, y, z = var("x"), var("y", F32), var("z", I32)
    twice = fn((x,), x + 1)
    found = inferred(y, z, body=Tuple((Call(twice, (y,)), Call(twice, (z,)))))
    assert found.ret is TupleType((F32, I32))


def test_a_let_bound_lambda_has_one_type() -> None:
    f, x, y, z = var("f"), var("x"), var("y", F32), var("z", I32)
    error = refused(y, z, body=Let(f, fn((x,), x), Tuple((Call(f, (y,)), Call(f, (z,))))))
    assert codes(error) == ["dtype-conflict"]


def test_a_let_bound_polymorphic_function_has_many() -> None:
    f, x, y, z = var("f"), var("x", A), var("y", F32), var("z", I32)
    same = Function((), (A,), (x,), None, x)
    found = inferred(y, z, body=Let(f, same, Tuple((Call(f, (y,)), Call(f, (z,))))))
    assert found.ret is TupleType((F32, I32))
    calls = [node for node in post_order(found) if isinstance(node, Call)]
    assert {each.types for each in calls} == {(F32,), (I32,)}


def test_higher_order_functions() -> None:
    compose, f, g, x, y = var("compose"), var("f"), var("g"), var("x"), var("y", V4)
    body = fn((f, g), fn((x,), Call(f, (Call(g, (x,)),))))
    relu = fn((x,), op("nn.relu", x))
    found = inferred(y, body=Let(compose, body, Call(Call(compose, (relu, fn((x,), x + 1))), (y,))))
    assert found.ret is V4


def test_recursion_of_a_let_bound_function() -> None:
    f, k = var("f"), var("k", I64)
    body = If(op("equal", k, 0), Literal(0), k + Call(f, (k - 1,)))
    found = inferred(body=Let(f, fn((k,), body), Call(f, (Literal(10),))))
    assert found.ret is I64


def test_recursion_without_annotations() -> None:
    f, k = var("f"), var("k")
    body = If(op("equal", k, 0), Literal(0), k + Call(f, (k - 1,)))
    found = inferred(body=Let(f, fn((k,), body), Call(f, (Literal(10),))))
    assert found.ret is I64


def test_mutual_recursion_of_globals_without_return_types() -> None:
    even, odd, k = var("even"), var("odd"), var("k", I64)
    yes, no = const(True), const(False)
    of = infer(
        module(
            {
                even: fn((k,), If(op("equal", k, 0), yes, Call(odd, (k - 1,)))),
                odd: fn((k,), If(op("equal", k, 0), no, Call(even, (k - 1,)))),
                MAIN: fn((k,), Call(even, (k,))),
            },
            MAIN,
        )
    )
    assert of.main_function().ret is BOOL
    assert is_complete(of)


def test_polymorphic_recursion_finds_its_return_type() -> None:
    length, xs = var("length"), var("xs", LIST_OF_A)
    x, rest = var("x"), var("rest")
    body = Match(
        xs,
        (
            Clause(PConstructor(NIL, ()), Literal(0)),
            Clause(
                PConstructor(CONS, (PVar(x), PVar(rest))), Call(length, (rest,)) + const(1, i64)
            ),
        ),
    )
    ys = var("ys", DataType(LIST, (V4,)))
    of = infer(
        module(
            {
                LIST: LIST_DEF,
                length: Function((), (A,), (xs,), None, body),
                MAIN: fn((ys,), Call(length, (ys,))),
            },
            MAIN,
        )
    )
    assert of.main_function().ret is I64
    assert is_complete(of)


def test_a_polymorphic_function_is_passed_at_one_of_its_types() -> None:
    apply, f, x, same = var("apply"), var("f", FuncType((), (), (A,), B)), var("x", A), var("same")
    y = var("y", V4)
    of = infer(
        module(
            {
                apply: Function((), (A, B), (f, x), B, Call(f, (x,))),
                same: Function((), (A,), (x,), A, x),
                MAIN: fn((y,), Call(apply, (same, y))),
            },
            MAIN,
        )
    )
    body = of.main_function().body
    assert isinstance(body, Call)
    assert body.types == (V4, V4)
    assert type_of(body) is V4


def test_a_dim_does_not_leave_its_function() -> None:
    f, g, y = var("f"), var("g"), var("y")
    x, z = var("x", tensor((n,), f32)), var("z", FuncType((), (), (tensor((n,), f32),), F32))
    inner = Function((n,), (), (x, z), None, Tuple((Call(z, (y,)), x)))
    error = refused(body=fn((y,), Let(g, inner, Tuple((g, y)))))
    assert codes(error) == ["type-conflict"]
    assert "outside of its function" in str(error)
    assert f.type is None


def test_type_arguments_may_be_given() -> None:
    found = inferred(body=Call(NIL, (), (V4,)))
    assert found.ret is DataType(LIST, (V4,))


# --- data --------------------------------------------------------------------------------------


def test_an_empty_list_at_two_types() -> None:
    x, y = var("x", F32), var("y", BOOL)
    found = inferred(x, y, body=Tuple((cons(x), cons(y), cons(Literal(1), Literal(2)))))
    kinds = (DataType(LIST, (each,)) for each in (F32, BOOL, I64))
    assert found.ret is TupleType(tuple(kinds))


def test_patterns_give_types() -> None:
    xs, x, y = var("xs", DataType(LIST, (V4,))), var("x"), var("y")
    body = Match(
        Tuple((xs, Literal(1))),
        (
            Clause(PTuple((PConstructor(CONS, (PVar(x), PAny())), PVar(y))), x * 2),
            Clause(PAny(), const(np.zeros(4, np.float32))),
        ),
    )
    found = inferred(xs, body=body)
    assert found.ret is V4


def test_one_name_in_two_clauses_has_two_types() -> None:
    either = DataName(Name("Either"))
    both = DataDef((), (ConstructorDef(Name("L"), (F32,)), ConstructorDef(Name("R"), (I32,))))
    left, right = constructors(either, both)
    x, e = var("x"), var("e", DataType(either, ()))
    body = Match(
        e,
        (
            Clause(PConstructor(left, (PVar(x),)), op("cast", x, "f64")),
            Clause(PConstructor(right, (PVar(x),)), op("cast", x, "f64")),
        ),
    )
    of = infer(module({either: both, MAIN: fn((e,), body)}, MAIN))
    assert of.main_function().ret is tensor((), f64)
    assert is_complete(of)


# --- modules -----------------------------------------------------------------------------------


def test_kernels_and_externs_are_called_like_functions() -> None:
    kernel, outside = var("kernel"), var("outside")
    x = buffer("x", (n,), f32)
    loop = Kernel((n,), (x, buffer("y", (n, 2), f32)), 1, Seq(()))
    y = var("y", V4)
    made = infer(
        module(
            {
                kernel: loop,
                outside: Extern("outside", FuncType((), (), (tensor((4, 2), f32),), V4)),
                MAIN: fn((y,), Call(outside, (Call(kernel, (y,)),))),
            },
            MAIN,
        )
    )
    assert made.main_function().ret is V4
    assert kernel_type(loop).ret is tensor((n, 2), f32)


def test_inference_is_idempotent_and_remembers() -> None:
    x = var("x", V4)
    of = main_of(x, body=x + 1)
    once = infer(of)
    assert infer(once) is once
    assert is_inferred(once)
    assert is_complete(once)
    again = Module(once.names, once.values, once.main)
    assert again is once


def test_what_was_inferred_is_kept() -> None:
    x, y = var("x", V4), var("y", V4)
    inner = infer(main_of(x, body=op("exp", x + 1))).main_function()
    outer = infer(main_of(y, body=Call(inner, (y,)))).main_function().body
    assert isinstance(outer, Call)
    assert outer.callee is inner


def test_functions_in_another_order_have_the_same_types() -> None:
    f, g, h, x = var("f"), var("g"), var("h"), var("x", V4)
    table: dict[Defined, Definition] = {
        f: fn((x,), Call(g, (x,))),
        g: fn((x,), Call(h, (x,))),
        h: fn((x,), x + 1),
        MAIN: fn((x,), Call(f, (x,))),
    }
    assert infer(module(table, MAIN)) is infer(module(dict(reversed(table.items())), MAIN))


def test_two_variables_of_one_name_stay_two() -> None:
    outer, inner = var("x", F32), var("x")
    body = Let(inner, outer * 2, inner + outer)
    found = inferred(outer, body=body)
    assert isinstance(found.body, Let)
    assert found.body.var is not outer
    assert isinstance(found.body.body, Apply)
    assert found.body.body.args == (found.body.var, outer)


def test_a_variable_bound_twice() -> None:
    x, y, z = var("x"), var("y", F32), var("z", I32)
    body = Tuple((Let(x, y, x + 1), Let(x, z, x + 1)))
    assert inferred(y, z, body=body).ret is TupleType((F32, I32))


def test_names_do_not_change_the_result() -> None:
    def made(name: str) -> Module:
        f, x, y = var(f"{name}f"), var(f"{name}x"), var(f"{name}y", V4)
        return main_of(y, body=Let(f, fn((x,), x + 1), Call(f, (y,))))

    assert digest(infer(made("a"))) == digest(infer(made("b")))


# --- refusals ----------------------------------------------------------------------------------

CASES: dict[str, tuple[tuple[Var, ...], Expr, str]] = {
    "condition": ((var("x", F32),), If(var("x", F32), Literal(1), Literal(2)), "dtype-conflict"),
    "condition of rank 1": (
        (var("x", tensor((2,), bool_)),),
        If(var("x", tensor((2,), bool_)), Literal(1), Literal(2)),
        "shape-conflict",
    ),
    "branches": (
        (var("x", F32), var("c", BOOL)),
        If(var("c", BOOL), var("x", F32), Tuple(())),
        "type-conflict",
    ),
    "projection": ((var("x", F32),), Project(Tuple((var("x", F32),)), 1), "index-out-of-bounds"),
    "projection of a tensor": ((var("x", F32),), Project(var("x", F32), 0), "type-conflict"),
    "call of a tensor": ((var("x", F32),), Call(var("x", F32), ()), "type-conflict"),
    "arity": ((), Call(fn((var("x", F32),), var("x", F32)), ()), "wrong-arity"),
    "type arity": ((), Call(NIL, (), (F32, F32)), "wrong-arity"),
    "argument": (
        (var("x", I32),),
        Call(fn((var("y", F32),), var("y", F32)), (var("x", I32),)),
        "dtype-conflict",
    ),
    "unused parameter": ((var("x"),), Literal(1), "cannot-infer"),
    "undecided element": ((), Call(NIL, ()), "cannot-infer"),
    "infinite type": ((), fn((var("f"),), Call(var("f"), (var("f"),))), "type-conflict"),
    "constructor arity": ((), Call(CONS, (Literal(1),)), "wrong-arity"),
    "constructor argument": ((), cons(Literal(1), Literal(True)), "dtype-conflict"),
    "pattern arity": (
        (),
        Match(cons(Literal(1)), (Clause(PConstructor(CONS, (PAny(),)), Literal(1)),), False),
        "bad-pattern",
    ),
    "pattern of another type": (
        (var("x", F32),),
        Match(var("x", F32), (Clause(PConstructor(NIL, ()), Literal(1)),), False),
        "bad-pattern",
    ),
    "tuple pattern": (
        (),
        Match(Tuple((Literal(1),)), (Clause(PTuple(()), Literal(1)),), False),
        "bad-pattern",
    ),
    "no clauses": ((var("x", F32),), Match(var("x", F32), ()), "cannot-infer"),
    "missing clause": (
        (),
        Match(cons(Literal(1)), (Clause(PConstructor(NIL, ()), Literal(1)),)),
        "non-exhaustive-match",
    ),
    "redundant clause": (
        (),
        Match(cons(Literal(1)), (Clause(PAny(), Literal(1)), Clause(PAny(), Literal(2)))),
        "redundant-clause",
    ),
    "shapes": (
        (var("x", V4), var("y", tensor((3,), f32))),
        var("x", V4) + var("y", tensor((3,), f32)),
        "shape-conflict",
    ),
    "rank": (
        (var("x", V4), var("c", BOOL)),
        If(var("c", BOOL), var("x", V4), const(1.0, f32)),
        "shape-conflict",
    ),
    "let annotation": (
        (var("x", V4),),
        Let(var("y", F32), var("x", V4), var("y", F32)),
        "shape-conflict",
    ),
    "tensor expected": ((), Apply("exp", (Tuple(()),)), "type-conflict"),
    "unknown operator": ((), Apply("ad", (Literal(1), Literal(2))), "unknown-operator"),
    "unbound variable": ((), var("y", F32), "unbound-name"),
    "unbound untyped variable": ((), var("y") + 1, "unbound-name"),
    "value that needs itself": ((), Let(var("x"), var("x") + 1, var("x")), "unbound-name"),
    "duplicate parameter": ((var("x", F32), var("x", I32)), Literal(1), "duplicate-name"),
    "a polymorphic function where one type is asked for": (
        (var("c", BOOL),),
        If(
            var("c", BOOL),
            Function((), (A,), (var("x", A),), A, var("x", A)),
            fn((var("x", F32),), var("x", F32)),
        ),
        "type-conflict",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refusals(case: str) -> None:
    params, body, code = CASES[case]
    error = refused(*params, body=body)
    assert codes(error) == [code], str(error)
    assert error.diagnostics[0].place is not None


def test_a_return_type_that_is_not_returned() -> None:
    x = var("x", V4)
    assert codes(refused(x, body=x, ret=F32)) == ["shape-conflict"]


def test_a_name_with_another_type_than_its_definition() -> None:
    named = var("main", FuncType((), (), (F32,), I32))
    with pytest.raises(IllTyped) as caught:
        infer(module({named: fn((var("x", F32),), var("x", F32))}, named))
    assert codes(caught.value) == ["dtype-conflict"]


def test_independent_errors_are_reported_together_and_do_not_cascade() -> None:
    x, y, c, t = var("x", F32), var("y", I32), var("c", BOOL), var("t")
    wrong = Let(t, x + y, Tuple((op("exp", t * t + 1), Project(Tuple((x,)), 3), If(x, c, c))))
    assert codes(refused(x, y, c, body=wrong)) == [
        "dtype-conflict",
        "index-out-of-bounds",
        "dtype-conflict",
    ]


def test_errors_of_different_functions_are_reported_together() -> None:
    f, g, x = var("f"), var("g"), var("x", F32)
    bad = fn((x,), Project(x, 0))
    with pytest.raises(IllTyped) as caught:
        infer(module({f: bad, g: fn((x,), Call(x, ())), MAIN: fn((x,), Call(f, (x,)))}, MAIN))
    assert codes(caught.value) == ["type-conflict", "type-conflict"]
    nodes = {each.place.node for each in caught.value.diagnostics if each.place is not None}
    assert nodes == {"f", "g"}


def test_callers_of_a_wrong_function_are_held_to_its_parameters() -> None:
    f, x, y = var("f"), var("x", tensor((n,), f32)), var("y", V4)
    table: dict[Defined, Definition] = {
        f: Function((n,), (), (x,), None, Project(x, 0)),
        MAIN: fn((y,), Tuple((Call(f, ()), Call(f, (y,)), Call(f, (Tuple(()),))))),
    }
    with pytest.raises(IllTyped) as caught:
        infer(module(table, MAIN))
    assert codes(caught.value) == ["type-conflict", "wrong-arity", "type-conflict"]


def test_places_name_both_sites() -> None:
    c, x = var("c", BOOL), var("x", V4)
    then, orelse = op("exp", x), op("sum", x)
    body = If(c, then, orelse)
    places: dict[Term, Place] = {
        body: Place("m.py", 3, 5),
        then: Place("m.py", 3, 5),
        orelse: Place("m.py", 3, 20),
    }
    with pytest.raises(IllTyped) as caught:
        infer(main_of(c, x, body=body), places)
    (error,) = caught.value.diagnostics
    assert error.place == Place("m.py", 3, 20)
    assert "m.py:3:5" in error.message


def test_a_parameter_used_in_two_ways_names_both_places() -> None:
    p, x, y = var("p"), var("x", F32), var("y", I32)
    first, second = Call(fn((x,), x), (p,)), Call(fn((y,), y), (p,))
    places: dict[Term, Place] = {first: Place("m.py", 1, 1), second: Place("m.py", 2, 1)}
    with pytest.raises(IllTyped) as caught:
        infer(main_of(p, body=Tuple((first, second))), places)
    (error,) = caught.value.diagnostics
    assert error.place == Place("m.py", 2, 1)
    assert "m.py:1:1" in error.message


# --- size --------------------------------------------------------------------------------------


def chain(length: int) -> Module:
    x = var("x", V4)
    names = [x, *(var("v", None, i) for i in range(length))]
    body: Expr = names[-1]
    for before, name in zip(reversed(names[:-1]), reversed(names[1:]), strict=True):
        body = Let(name, before + 1, body)
    return main_of(x, body=body)


def test_a_let_chain_2_000_deep() -> None:
    of = infer(chain(2_000))
    assert of.main_function().ret is V4
    assert infer(Module(of.names, of.values, of.main)) is of


@pytest.mark.parametrize("annotation", [V4, None])
def test_a_doubling_chain(annotation: Type | None) -> None:
    x, y = var("x", annotation), var("y", V4)
    body: Expr = x
    for _ in range(60):
        body = body + body
    assert inferred(y, body=Call(fn((x,), body), (y,))).ret is V4


def test_a_doubled_tuple_of_numbers() -> None:
    body: Expr = Literal(1)
    for _ in range(60):
        body = Tuple((body, body))
    ret = inferred(body=body).ret
    assert isinstance(ret, TupleType)
    assert ret.items[0] is ret.items[1]


def test_a_doubled_lambda_is_refused_or_inferred_but_never_unfolded() -> None:
    x, y = var("x"), var("y", V4)
    body: Expr = fn((x,), x)
    for _ in range(60):
        body = fn((x,), Call(body, (Call(body, (x,)),)))
    assert inferred(y, body=Call(body, (y,))).ret is V4


def test_functions_nested_1_500_deep() -> None:
    x = var("x", V4)
    names = [var("y", None, i) for i in range(1_500)]
    body: Expr = x
    for each in names:
        body = fn((each,), body)
    for _ in names:
        body = Call(body, (x,))
    assert inferred(x, body=body).ret is V4


def test_a_list_of_2_000_numbers() -> None:
    found = inferred(body=cons(*(Literal(i) for i in range(2_000))))
    assert found.ret is DataType(LIST, (I64,))


def test_a_let_chain_whose_last_line_uses_all() -> None:
    x = var("x", F32)
    names = [var("v", None, i) for i in range(3_000)]
    body: Expr = Tuple(tuple(names))
    for each in reversed(names):
        body = Let(each, x * 2, body)
    ret = inferred(x, body=body).ret
    assert isinstance(ret, TupleType)
    assert len(ret.items) == 3_000


# --- type_of -----------------------------------------------------------------------------------


def test_type_of_is_local_and_agrees_with_inference() -> None:
    x = var("x", tensor((n, 4), f32))
    body = inferred(x, body=op("sum", x * 2 + 1, axis=1), dims=(n,)).body
    for node in post_order(body):
        if isinstance(node, Expr):
            twin = type_of(node)
            assert isinstance(twin, TensorType)
    assert type_of(body + body) is type_of(body)


def test_type_of_terms_that_were_not_inferred() -> None:
    x = var("x", tensor((3,), f64))
    assert type_of(1 / (1 + op("exp", -x))) is tensor((3,), f64)
    assert type_of(Literal(1)) is I64
    assert type_of(Tuple((x, Literal(0.5)))) is TupleType((tensor((3,), f64), F32))
    assert type_of(fn((x,), x + 1)) is FuncType((), (), (x.type,), x.type)  # type: ignore[arg-type]  # x has one


def test_type_of_refuses() -> None:
    x = var("x", F32)
    for wrong in (var("y"), x + var("y", I32), Call(x, ()), Apply("nothing", (x,))):
        with pytest.raises(IllTyped):
            type_of(wrong)


def test_type_of_a_million_uses() -> None:
    x = var("x", F32)
    body: Expr = x
    for _ in range(2_000):
        body = body + x
        assert type_of(body) is F32


def test_infer_expr() -> None:
    x = var("x", tensor((3,), f64))
    made = infer_expr(1 / (1 + op("exp", -x)))
    assert not any(isinstance(node, Literal) for node in post_order(made))
    assert infer_expr(made) is made
    assert alpha_equal(made, made)


@pytest.mark.usefixtures("young")
def test_types_are_not_kept_alive_by_modules_that_are_gone() -> None:
    of = infer(chain(10))
    watch = weakref.ref(of)
    del of
    gc.collect()
    assert watch() is None


def test_constructors_are_functions() -> None:
    f = var("f")
    found = inferred(body=Let(f, CONS, Call(f, (Literal(1.5), Call(NIL, ())))))
    assert found.ret is DataType(LIST, (F32,))
    assert isinstance(CONS, Constructor)
