"""Well-formedness: each class of broken modules has its own message, and whole ones have none."""

from __future__ import annotations

from typing import Any

import pytest

from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.check import check
from plica.ir.graph.expression import (
    Apply,
    Call,
    Clause,
    Constructor,
    Expr,
    Function,
    If,
    Let,
    Literal,
    Match,
    PAny,
    PTuple,
    PVar,
    Tuple,
    Var,
    const,
)
from plica.ir.graph.module import ConstructorDef, DataDef, Definition, Module, constructors, module
from plica.ir.graph.scope import misuses
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import Kernel, Seq
from plica.ir.loop.tensor import buffer
from plica.ir.op import find
from plica.ir.type.dtype import bool_, f32, i32
from plica.ir.type.infer import infer
from plica.ir.type.term import (
    DataName,
    DataType,
    FuncType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    dim_var,
    tensor,
)
from plica.runtime.error import Place

A = TypeVar(Name("A"))
n = dim_var("n")
F32 = tensor((), f32)
LIST = DataName(Name("List"))
LIST_DEF = DataDef(
    (A,), (ConstructorDef(Name("Nil"), ()), ConstructorDef(Name("Cons"), (A, DataType(LIST, (A,)))))
)
NIL, CONS = constructors(LIST, LIST_DEF)
MAIN = Var(Name("main"), None)
x, y = Var(Name("x"), F32), Var(Name("y"), F32)


def op(name: str, *args: object, **attributes: object) -> Expr:
    record = find(name)
    assert record is not None
    return record(*args, **attributes)


def whole(body: Expr, *params: Var, dims: tuple[ScalarVar, ...] = ()) -> Module:
    return module({LIST: LIST_DEF, MAIN: Function(dims, (), params, None, body)}, MAIN)


def broken(of: Any) -> Any:
    """A part of another kind than the field it goes into; terms do not check that."""
    return of


def typed(of: Type) -> Module:
    return whole(x, Var(Name("p"), of), x)


SUM = op("sum", x, axis=None)
assert isinstance(SUM, Apply)

BROKEN: dict[str, tuple[Module, str, str]] = {
    "unbound variable": (whole(y, x), "unbound-name", "Nothing binds y."),
    "unbound dim": (whole(x, Var(Name("p"), tensor(("n",), f32)), x), "unbound-name", "n."),
    "unbound type": (typed(A), "unbound-name", "Nothing binds A."),
    "unbound data": (typed(DataType(DataName(Name("Lst")), ())), "unbound-name", "Lst"),
    "unbound dim of an attribute": (
        whole(op("zeros", (n,), "f32")),
        "unbound-name",
        "Nothing binds n.",
    ),
    "variable outside its let": (
        whole(Tuple((Let(y, x, y), y)), x),
        "unbound-name",
        "Nothing binds y.",
    ),
    "variable outside its clause": (
        whole(Tuple((Match(x, (Clause(PVar(y), y + y),)), y + y)), x),
        "unbound-name",
        "Nothing binds y.",
    ),
    "value that needs itself": (whole(Let(y, y + x, y), x), "unbound-name", "its own value"),
    "value that needs itself, used before": (
        whole(Let(y, x, Tuple((y + x, Let(y, y + x, y)))), x),
        "unbound-name",
        "its own value",
    ),
    "duplicate parameter": (whole(x, x, Var(Name("x"), tensor((), i32))), "duplicate-name", "x"),
    "duplicate dim": (whole(x, x, dims=(n, n)), "duplicate-name", "n"),
    "shadowed dim": (
        whole(Tuple((Function((n,), (), (x,), None, x), x)), x, dims=(n,)),
        "duplicate-name",
        "n",
    ),
    "duplicate name of a pattern": (
        whole(Match(Tuple((x, x)), (Clause(PTuple((PVar(y), PVar(y))), y),)), x),
        "duplicate-name",
        "y",
    ),
    "duplicate constructor": (
        module({LIST: DataDef((), (ConstructorDef(Name("C"), ()),) * 2)}),
        "duplicate-name",
        "C",
    ),
    "unknown operator": (whole(Apply("soft_max", (x,)), x), "unknown-operator", "soft_max"),
    "alias": (whole(Apply("sub", (x, x)), x), "unknown-operator", "subtract"),
    "operator arity": (whole(Apply("add", (x,)), x), "wrong-arity", "add"),
    "unknown attribute": (
        whole(Apply("add", (x, x), (("axis", 1),)), x),
        "unknown-attribute",
        "axis",
    ),
    "missing attribute": (whole(Apply("sum", (x,)), x), "bad-attribute", "misses"),
    "unsorted attributes": (
        whole(Apply("sum", (x,), tuple(reversed(SUM.attrs))), x),
        "bad-attribute",
        "sorted",
    ),
    "attribute that is refused": (
        whole(Apply("sum", (x,), tuple((k, "no") for k, _ in SUM.attrs)), x),
        "bad-attribute",
        "sum",
    ),
    "attribute out of canonical form": (
        whole(Apply("sum", (x,), tuple((k, 0.0 if k == "axis" else v) for k, v in SUM.attrs)), x),
        "bad-attribute",
        "sum",
    ),
    "constructor number": (
        whole(Call(Constructor(LIST, 2, Name("C"), NIL.type), ())),
        "bad-pattern",
        "no number 2",
    ),
    "constructor type": (
        whole(Call(Constructor(LIST, 0, Name("Nil"), CONS.type), ())),
        "type-conflict",
        "Nil",
    ),
    "type arguments": (typed(DataType(LIST, ())), "wrong-arity", "List"),
    "shape used as type": (typed(TupleType((broken(n),))), "type-conflict", "ScalarVar"),
    "type used as shape": (typed(FuncType((), (), (), broken(f32))), "type-conflict", "DType"),
    "negative dim": (typed(tensor((-1,), f32)), "shape-conflict", "-1"),
    "dim of another dtype": (
        typed(TensorType((ScalarVar(Name("n"), i32),), f32)),
        "dtype-conflict",
        "i64",
    ),
    "pattern used as expression": (whole(Tuple((broken(PAny()),))), "type-conflict", "PAny"),
    "main": (module({LIST: LIST_DEF}, MAIN), "unbound-name", "main"),
    "main that is data": (module({MAIN: broken(LIST_DEF)}, MAIN), "type-conflict", "main"),
    "kernel inputs": (
        module({MAIN: Kernel((), (buffer("b", (1,), f32),), 2, Seq(()))}),
        "wrong-arity",
        "kernel",
    ),
    "kernel buffer": (
        module({MAIN: Kernel((), (buffer("b", (n,), f32),), 1, Seq(()))}),
        "unbound-name",
        "n",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_broken_class_has_its_message(case: str) -> None:
    of, code, message = BROKEN[case]
    found = check(of)
    assert found, case
    assert found[0].code == code, found[0]
    assert message in found[0].message, found[0]
    assert found[0].place is not None


def test_what_is_broken_in_several_ways_is_reported_at_once() -> None:
    of = whole(Tuple((y, Apply("ad", (x,)), Apply("add", (x,)))), x)
    assert sorted(each.code for each in check(of)) == [
        "unbound-name",
        "unknown-operator",
        "wrong-arity",
    ]


def test_an_unknown_operator_is_met_with_a_suggestion() -> None:
    (error,) = check(whole(Apply("subtrac", (x, x)), x))
    assert error.suggestion == "Did you mean 'subtract'?"


def test_whole_modules_pass() -> None:
    f, g, p = Var(Name("f"), None), Var(Name("g"), None), Var(Name("p"), tensor((n,), f32))
    recursive = Function((), (), (x,), F32, Call(f, (x,)))
    inner = Function((), (), (y,), None, y + x)
    parts: dict[Any, Definition] = {
        LIST: LIST_DEF,
        g: Function(
            (n,), (), (p,), None, Let(f, recursive, Tuple((p, Call(f, (const(1.0, f32),)))))
        ),
        MAIN: Function((), (), (x,), None, Call(inner, (If(const(True), x, x + 1),))),
    }
    of = module(parts, MAIN)
    assert check(of) == ()
    assert check(infer(of)) == ()


def test_places_are_used() -> None:
    use = Tuple((y,))
    places: dict[Term, Place] = {use: Place("m.py", 2, 7)}
    (error,) = check(whole(use, x), places)
    assert error.place == Place("m.py", 2, 7)


def test_a_shared_term_may_stand_in_two_scopes() -> None:
    z = Var(Name("z"), None)
    shared = Let(z, const(1.0, f32), z + z)  # closed: wherever it stands, it is in order
    a, b = Var(Name("a"), None), Var(Name("b"), None)
    body = Tuple((Let(a, shared, a + shared), Let(b, shared, b + shared)))
    assert check(whole(body)) == ()


def test_a_shared_term_in_a_scope_that_lacks_its_variable() -> None:
    z = Var(Name("z"), F32)
    shared = Let(y, z, y + z)  # z is free in it
    body = Tuple((Let(z, x, shared), shared))
    assert [each.kind for each in misuses(body, {x})] == ["unbound"]


def test_a_chain_whose_last_line_uses_every_variable() -> None:
    names = [Var(Name("v", i), F32) for i in range(5_000)]
    body: Expr = Tuple(tuple(names))
    for each in reversed(names):
        body = Let(each, x, body)
    assert check(whole(body, x)) == ()


def test_kinds_are_checked_before_types() -> None:
    of = typed(TupleType((broken(bool_),)))
    assert [each.code for each in check(of)] == ["type-conflict"]
    assert isinstance(Literal(1), Expr)
