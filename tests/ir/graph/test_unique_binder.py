"""Renaming apart: alpha-equal, idempotent, one binder for each variable."""

from __future__ import annotations

from hypothesis import given

from plica.core.binding import free_vars, variables_of
from plica.core.digest import alpha_equal
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.expression import (
    Call,
    Clause,
    Expr,
    Function,
    Let,
    Match,
    PTuple,
    PVar,
    Tuple,
    Var,
    const,
)
from plica.ir.graph.module import Module
from plica.ir.graph.unique_binder import rename_apart
from plica.ir.type.term import TupleType, tensor
from tests.strategies import modules

SCALAR = tensor((), "f32")
x, y, z = (Var(Name(name), SCALAR) for name in "xyz")
p, q = (Var(Name(name), TupleType((SCALAR, SCALAR))) for name in "pq")


def binders(term: Term) -> list[Term]:
    found: list[Term] = []
    for node in post_order(term):
        match node:
            case Let(var, _, _):
                found.append(var)
            case Function():
                found.extend(node.params)
            case Match(_, clauses, _):
                both = [var for clause in clauses for var in variables_of(clause.pattern)]
                found.extend(dict.fromkeys(both))
    return found


@given(modules())
def test_the_laws(of: Module) -> None:
    for _, function in of.functions():
        apart = rename_apart(function)
        assert alpha_equal(apart, function)
        assert rename_apart(apart) is apart
        assert len(set(binders(apart))) == len(binders(apart))


def test_a_term_that_is_apart_is_left_alone() -> None:
    term = Let(x, const(1, "f32"), Let(y, x + 1.0, x * y))
    assert rename_apart(term) is term


def test_two_matches_that_share_a_clause() -> None:
    clause = Clause(PTuple((PVar(x), PVar(y))), x - y)
    both = Tuple((Match(p, (clause,)), Match(q, (clause,))))
    apart = rename_apart(both)
    assert alpha_equal(apart, both)
    assert len(set(binders(apart))) == 4


def test_clauses_of_one_match_may_share_variables() -> None:
    one, two = Clause(PTuple((PVar(x), PVar(y))), x), Clause(PTuple((PVar(y), PVar(x))), x)
    match = Match(p, (one, two))
    assert rename_apart(match) is match


def test_a_clause_that_does_not_shadow_sees_the_outer_variable() -> None:
    inner = Match(q, (Clause(PTuple((PVar(x), PVar(y))), x), Clause(PVar(y), x)))
    term = Match(p, (Clause(PTuple((PVar(x), PVar(z))), inner),))
    apart = rename_apart(term)
    assert alpha_equal(apart, term)
    assert free_vars(apart) == free_vars(term)


def test_a_bound_variable_that_is_also_free() -> None:
    term = Tuple((x, Let(x, const(1, "f32"), x)))
    apart = rename_apart(term)
    assert isinstance(apart, Tuple)
    inner = apart.items[1]
    assert isinstance(inner, Let)
    assert inner.var is not x
    assert apart.items[0] is x


def test_a_global_name_counts_as_free() -> None:
    term = Let(x, const(1, "f32"), x)
    assert rename_apart(term, {x}) is not term
    assert rename_apart(term, ()) is term


def test_a_function_inside_shadows() -> None:
    inner = Function((), (), (x,), SCALAR, x + 1.0)
    term = Function((), (), (x,), None, Call(inner, (x,)))
    apart = rename_apart(term)
    assert alpha_equal(apart, term)
    assert len(set(binders(apart))) == 2


def test_doubling_under_one_name_stays_linear() -> None:
    term: Expr = x
    for _ in range(60):
        term = Let(x, term, x + x)
    apart = rename_apart(Function((), (), (x,), None, term))
    assert len(set(binders(apart))) == 61
    assert len(post_order(apart)) < 1000


def test_a_binder_that_becomes_two_binds_two_variables() -> None:
    inner = Let(y, x + 1.0, Let(z, y * y, z - y))
    both = Tuple((Let(x, const(1, "f32"), inner), Let(x, const(2, "f32"), inner)))
    apart = rename_apart(both)
    assert alpha_equal(apart, both)
    assert rename_apart(apart) is apart
    assert len(set(binders(apart))) == len(binders(apart)) == 6


def test_a_binder_under_one_of_two_keeps_its_variable() -> None:
    once = Let(x, const(1, "f32"), Let(y, x + 1.0, y))
    apart = rename_apart(Tuple((once, Let(x, const(2, "f32"), x))))
    assert isinstance(apart, Tuple)
    assert apart.items[0] is once
