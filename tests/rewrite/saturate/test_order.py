"""Order dependence is found where it is, and nowhere in packs whose rules only shrink."""

from __future__ import annotations

import pytest

from plica.ir.loop.scalar import FloorDiv, Lit, Max
from plica.ir.type.dtype import i64
from plica.rewrite import Rule, match, pack, rule
from plica.rewrite.packs.algebra import ALGEBRA
from plica.rewrite.saturate.order import instances, order_dependent
from tests.rewrite.index_terms import RULES, x, y

HALVES = (rule("double", x * 2, x + x), rule("halve", FloorDiv(x * 2, Lit(2, i64)), x))


def test_a_rule_that_hides_another_is_listed() -> None:
    (found,) = order_dependent(pack("halves", HALVES, version="1"))
    assert (found.hiding, found.hidden) == (("double",), ("halve",))
    (same,) = order_dependent(pack("turned", HALVES[::-1], version="1"))
    assert (same.hiding, same.hidden) == (("double",), ("halve",))


def test_rules_that_only_shrink_do_not_depend_on_order() -> None:
    shrinking = (*RULES, rule("max-same", Max(x, x), x))
    assert order_dependent(pack("shrinking", shrinking, version="1")) == ()


@pytest.mark.parametrize("each", [*RULES, *list(ALGEBRA)[:8]], ids=lambda each: each.name)
def test_instances_match(each: Rule) -> None:
    for term in instances(each, 2, 0):
        assert match(each.left, term) is not None


def test_the_same_seed_gives_the_same_terms() -> None:
    grow = rule("grow", x + y, y + x)
    assert list(instances(grow, 3, 1)) == list(instances(grow, 3, 1))
