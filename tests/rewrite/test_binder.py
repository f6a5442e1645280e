"""Rules that move holes between scopes: nothing is captured, nothing escapes, and all is tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import plica
from plica import op
from plica.core.binding import free_vars
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.graph.expression import (
    Call,
    Clause,
    Function,
    If,
    Let,
    Match,
    PAny,
    Project,
    PTuple,
    PVar,
    Tuple,
    Var,
)
from plica.ir.graph.module import module
from plica.ir.type.term import tensor
from plica.rewrite import either, hole, holes, rewrite, rule
from plica.rewrite.check.verdict import Refuted, Tested, Untested
from plica.rewrite.make import tabled

w, x, y, z, v, u = holes("w x y z v u")
p, q, r = (Var(Name(name), tensor((2,), "f32")) for name in "pqr")
HOIST = rule("hoist", Tuple((Let(w, x, y), z)), Let(w, x, Tuple((y, z))))
DROP = rule("drop", Let(w, x, y), y)


def meaning(body: Any) -> Any:
    """What an expression over p, q and r gives for fixed values of them."""
    main = Var(Name("main"), None)
    whole = module({main: Function((), (), (p, q, r), None, body)}, main)
    return plica.interpret(whole, *(np.array([n, n + 0.5], np.float32) for n in (1, 3, 7)))


def same(a: Any, b: Any) -> bool:
    return all(map(np.array_equal, a, b)) if isinstance(a, tuple) else np.array_equal(a, b)


def test_what_comes_under_a_binder_is_not_captured() -> None:
    term = Tuple((Let(q, op.exp(p), q + q), q))
    after = HOIST.at(term)
    assert isinstance(after, Let)
    assert q in free_vars(after)
    assert after.var is not q
    assert same(meaning(term), meaning(after))


def test_without_a_namesake_the_name_stays() -> None:
    after = HOIST.at(Tuple((Let(q, op.exp(p), q + q), p)))
    assert isinstance(after, Let)
    assert after.var is q


def test_a_new_name_is_not_taken_by_anything_else() -> None:
    other = Var(Name("q", 1), q.type)
    after = HOIST.at(Tuple((Let(q, op.exp(p), q + other), q)))
    assert isinstance(after, Let)
    assert after.var.name == Name("q", 2)
    assert {q, other, p} <= free_vars(after)


def test_two_binders_of_one_variable_are_told_apart() -> None:
    both = rule("both", Tuple((Let(w, x, y), Let(v, z, u))), Let(w, x, Let(v, z, Tuple((y, u)))))
    term = Tuple((Let(q, op.exp(p), q + q), Let(q, -p, q * r)))
    after = both.at(term)
    assert after is not None
    assert same(meaning(term), meaning(after))


def test_a_variable_that_the_rule_itself_binds_captures_nothing() -> None:
    own = Var(Name("q"), q.type)
    a, b = (hole(name, dtypes="f32", shape=(2,)) for name in "ab")
    named = rule("named", op.exp(a) + b, Let(own, op.exp(a), own + b))
    assert own is q
    after = named.at(op.exp(p) + q)
    assert isinstance(after, Let)
    assert after.var is not q
    assert same(meaning(op.exp(p) + q), meaning(after))


def test_what_leaves_the_scope_of_a_variable_must_not_speak_of_it() -> None:
    assert DROP.at(Let(q, op.exp(p), q + q)) is None
    assert DROP.at(Let(q, op.exp(p), r + r)) is r + r


def test_a_hole_inside_and_outside_a_binder_is_filled_by_what_is_the_same_in_both() -> None:
    twice = rule("twice", Tuple((Let(w, x, y), y)), Tuple((y, y)))
    assert twice.at(Tuple((Let(q, op.exp(p), q), q))) is None
    assert twice.at(Tuple((Let(q, op.exp(p), r), r))) is Tuple((r, r))


def test_a_binder_inside_one_of_the_same_variable_is_left_alone() -> None:
    swap = rule("swap", Let(w, x, Let(v, y, z)), Let(v, y, Let(w, x, z)))
    assert swap.at(Let(q, op.exp(p), Let(q, -p, q))) is None
    assert swap.at(Let(q, op.exp(p), Let(r, -q, r))) is None  # what q is would be unknown
    assert swap.at(Let(q, op.exp(p), Let(r, -p, r + q))) is not None


def test_alternatives_with_and_without_a_binder() -> None:
    plain = rule("plain", op.exp(either(Let(w, x, y), y)), op.exp(y * 1))
    assert plain.at(op.exp(Let(q, p, q))) is not None  # the second alternative
    kept = rule("kept", op.exp(either(Let(w, x, y), op.tanh(Let(w, x, y)))), Let(w, x, op.exp(y)))
    after = kept.at(op.exp(Let(q, p, q + q)))
    assert after is not None
    assert same(meaning(op.exp(Let(q, p, q + q))), meaning(after))


def test_a_whole_program_keeps_its_meaning() -> None:
    term = Tuple((Tuple((Let(q, op.exp(p), q + q), q)), Let(p, q, p * r)))
    after, _ = rewrite(term, [HOIST, DROP])
    assert digest(after) != digest(term)
    before, now = meaning(term), meaning(after)
    assert same(before[0], now[0])
    assert same(before[1], now[1])


# fmt: off
RIGHT: tuple[tuple[str, Any, Any], ...] = (
    ("hoist-tuple",    Tuple((Let(w, x, y), z)),                                          Let(w, x, Tuple((y, z)))),
    ("hoist-sum",      Let(w, x, y) + z,                                                  Let(w, x, y + z)),
    ("hoist-exp",      op.exp(Let(w, x, y)),                                              Let(w, x, op.exp(y))),
    ("inline-exp",     op.exp(Let(w, x, op.exp(w))),                                      op.exp(op.exp(x))),
    ("drop-unused",    Let(w, x, y),                                                      y),
    ("beta",           Call(Function((), (), (w,), None, op.exp(w)), (x,)),               op.exp(x)),
    ("to-let",         Call(Function((), (), (w,), None, y), (x,)),                       Let(w, x, y)),
    ("match-anything", Match(x, (Clause(PVar(w), op.exp(w)),)),                           op.exp(x)),
    ("match-pair",     Match(x, (Clause(PTuple((PAny(), PVar(w))), op.exp(w)),)),         op.exp(Project(x, 1))),
    ("named-let",      Let(q, x, op.exp(q)),                                              op.exp(x)),
    ("if-same",        If(x, y, y),                                                       y),
    ("if-not",         If(op.logical_not(x), y, z),                                       If(x, z, y)),
)
WRONG: tuple[tuple[str, Any, Any], ...] = (
    ("captures",       Tuple((Let(w, x, y), z)),                                          lambda m: Let(m.w, m.x, Tuple((m.y, m.z)))),
    ("escapes",        Let(w, x, y),                                                      lambda m: m.y),
    ("forgets",        op.exp(Let(w, x, op.exp(w))),                                      op.exp(x)),
    ("body-dropped",   Let(w, x, op.exp(w)),                                              x),
    ("beta-wrong",     Call(Function((), (), (w,), None, op.exp(w)), (x,)),               op.log(x)),
    ("other-item",     Match(x, (Clause(PTuple((PAny(), PVar(w))), w),)),                 Project(x, 0)),
    ("if-swapped",     If(op.logical_not(x), y, z),                                       If(x, y, z)),
)
# fmt: on
# ruff: noqa: E501


@pytest.mark.parametrize("row", RIGHT, ids=lambda row: row[0])
def test_a_right_rule_of_binders_is_really_tested(row: tuple[str, Any, Any]) -> None:
    verdict = plica.check(rule(*row), examples=12)
    assert isinstance(verdict, Tested), verdict
    assert verdict.cases >= 5


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row[0])
def test_a_wrong_rule_of_binders_is_refuted(row: tuple[str, Any, Any]) -> None:
    verdict = plica.check(tabled(*row), examples=150)
    assert isinstance(verdict, Refuted), verdict


REFUSED: tuple[tuple[str, Callable[[], object], str], ...] = (
    ("used outside", lambda: rule("r", Let(w, x, w + y), w + y), "outside of what binds"),
    ("not a variable", lambda: rule("r", op.exp(x) + y, Let(x, y, op.exp(x))), "no variables"),
)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_what_cannot_be_in_scope_is_refused(row: tuple[str, Callable[[], object], str]) -> None:
    with pytest.raises(plica.PlicaError, match=row[2]):
        row[1]()


def test_a_pattern_that_has_no_instance_is_untested() -> None:
    odd = rule("odd", Tuple((Let(w, x, y), w)), Tuple((y, x)))
    assert isinstance(plica.check(odd, examples=5), Untested)
