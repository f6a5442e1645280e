"""What a rule is tried on: examples and instances of its writer, and what is said where none is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import plica
from plica import op
from plica.core.diagnostic import RuleRefused
from plica.ir.graph.expression import Apply, Expr
from plica.ir.type.term import tensor
from plica.op import nn
from plica.rewrite import holes, rule
from plica.rewrite.check.verdict import Refuted, Tested, Untested
from plica.rewrite.match import PatternMatch

x, s, e, s2, e2 = holes("x s e s2 e2")
LEFT = op.concat((op.slice(x, s, e), op.slice(x, s2, e2)), 0)


def meet(m: PatternMatch) -> Expr | None:
    """Two slices that meet are what they were cut from."""
    n = m.shape(x)
    first, second = (m.value(s), m.value(e)), (m.value(s2), m.value(e2))
    fit = len(n) == 1 and n[0] > 2 and first == ((0,), (2,)) and second == ((2,), n)
    return m.x if fit else None


def turned(m: PatternMatch) -> Expr | None:
    """A mistake: the parts may come in any order."""
    ends = sorted([(m.value(s), m.value(e)), (m.value(s2), m.value(e2))])
    n = m.shape(x)
    return m.x if len(n) == 1 and n[0] > 2 and ends == [((0,), (2,)), ((2,), n)] else None


def fill(choose: Callable[[Sequence[Any]], Any]) -> dict[str, Any]:
    n = choose((4, 3, 6))
    return {"x": tensor((n,), choose(("f32", "i64"))), "s": (0,), "e": (2,), "s2": (2,), "e2": (n,)}


CUT = plica.from_text("""
@plica.function
def main(v: Tensor[(5,), f32]):
    return op.concat((op.slice(v, (0,), (2,)), op.slice(v, (2,), (5,))), 0) + 1.0
""")


def test_attributes_that_depend_on_each_other_are_told() -> None:
    alone = plica.check(rule("meet", LEFT, meet), examples=6)
    assert isinstance(alone, Untested)
    assert "instances made, all declined by the right side; the nearest, " in alone.why
    assert isinstance(plica.check(rule("meet", LEFT, meet, instances=fill), examples=6), Tested)
    assert isinstance(plica.check(rule("meet", LEFT, meet, examples=[CUT]), examples=6), Tested)
    both = rule("meet", LEFT, meet, examples=[CUT], instances=fill)
    assert isinstance(plica.check(both, examples=6), Tested)


def test_a_mistake_is_found_among_told_instances() -> None:
    def either(choose: Callable[[Sequence[Any]], Any]) -> dict[str, Any]:
        given = fill(choose)
        if choose((False, True)):
            given |= {"s": given["s2"], "e": given["e2"], "s2": (0,), "e2": (2,)}
        return given

    verdict = plica.check(rule("turned", LEFT, turned, instances=either), examples=40)
    assert isinstance(verdict, Refuted)


def test_a_whole_term_may_be_told() -> None:
    whole = CUT.main_function().body
    assert isinstance(whole, Apply)
    made = rule("meet", LEFT, meet, instances=lambda choose: whole.args[0])
    assert isinstance(plica.check(made, examples=10), Tested)


def test_what_is_no_example_and_what_fills_no_hole_is_refused() -> None:
    with pytest.raises(RuleRefused, match="must be a module, a function or an expression"):
        rule("meet", LEFT, meet, examples=[7])  # type: ignore[list-item]  # the point
    with pytest.raises(RuleRefused, match="must be a function"):
        rule("meet", LEFT, meet, instances={"x": 1})  # type: ignore[arg-type]  # the point
    with pytest.raises(RuleRefused, match="do not fill its holes"):
        rule("meet", LEFT, meet, instances=lambda choose: {"q": 1})


def test_the_guard_is_named_where_it_declines_everything() -> None:
    never = rule("never", nn.relu(nn.relu(x)), nn.relu(x), when=lambda m: False)
    verdict = plica.check(never, examples=5)
    assert isinstance(verdict, Untested)
    assert "all declined by the guard" in verdict.why
    assert "fits, but the guard declines: x = the variable x" in verdict.why


def test_where_no_instance_is_made_that_is_said() -> None:
    made = rule("none", nn.relu(nn.relu(x)), nn.relu(x), instances=lambda choose: None)  # type: ignore[arg-type,return-value]  # nothing at all
    verdict = plica.check(made, examples=5)
    assert isinstance(verdict, Untested)
    assert "no well-typed instance was found in" in verdict.why
