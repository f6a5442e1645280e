"""Every shipped rule has a verdict; wrong rules are refuted with small witnesses."""

from __future__ import annotations

from typing import Any

import pytest

from plica.analysis.index import (
    EMPTY,
    INDEX_RULES,
    ByInstance,
    ForAll,
    InWindow,
    OpenQuestion,
    WrongRule,
    certify,
    prove_rule,
)  # fmt: skip
from plica.analysis.index.rules import (
    ContextualRewrite,
    RuleGuard,
    between,
    given,
    nonzero,
    positive,
)
from plica.analysis.index.verdict import recheck
from plica.core.fold import map_bottom_up, post_order
from plica.ir.loop.scalar import Eq, Le, Lit, Lt, Max, Min, Ne, Scalar, Select, index
from plica.ir.type.dtype import bool_, i64
from plica.rewrite.make import rule
from plica.rewrite.pattern import index_constants, index_holes
from plica.rewrite.rule import Rule
from tests.analysis.index.box import X

x, y, z = index_holes("x y z")
c, d = index_constants("c d")
TERMS = [each for each in INDEX_RULES if isinstance(each.right, Scalar)]
COMPUTED = [each for each in INDEX_RULES if isinstance(each.right, ContextualRewrite)]


def test_names() -> None:
    names = [each.name for each in INDEX_RULES]
    assert len(set(names)) == len(names)
    assert len(TERMS) + len(COMPUTED) == len(INDEX_RULES)
    assert all(each.when is None or isinstance(each.when, RuleGuard) for each in INDEX_RULES)


@pytest.mark.parametrize("each", TERMS, ids=lambda each: each.name)
def test_proved_for_all_integers(each: Rule) -> None:
    verdict = prove_rule(each)
    assert isinstance(verdict, ForAll), verdict
    assert recheck(each, verdict)


@pytest.mark.parametrize("each", COMPUTED, ids=lambda each: each.name)
def test_computed_rules_are_certified_by_instance(each: Rule) -> None:
    verdict = prove_rule(each)
    assert isinstance(verdict, ByInstance), verdict
    assert verdict.instances >= 40
    assert verdict.undecided <= 5


def mutants(of: Rule) -> list[Rule]:
    """The rule with one literal of one side changed."""
    assert isinstance(of.left, Scalar)
    assert isinstance(of.right, Scalar)
    found = []
    for side in (of.left, of.right):
        for old in [node for node in post_order(side) if isinstance(node, Lit)]:
            if old.dtype is bool_:
                new: Scalar = Lit(not old.value, bool_)
            else:
                new = Lit(int(old.value) + 2, i64)
            changed: Any = map_bottom_up(lambda n, a=old, b=new: b if n is a else n, side)  # type: ignore[misc]
            left, right = (changed, of.right) if side is of.left else (of.left, changed)
            found.append(rule(f"{of.name}-mutant", left, right, when=of.when))
    return found


MUTANTS = [(each.name, mutant) for each in TERMS for mutant in mutants(each)]


@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_a_changed_constant_is_noticed(name: str, mutant: Rule) -> None:
    assert isinstance(prove_rule(mutant), WrongRule), name


# fmt: off
KNOWN_BAD: list[tuple[str, Any, Any, RuleGuard | None]] = [
    ("floor-is-not-trunc",   (0 - x) // c,         0 - x // c,           given(positive(c))),
    ("negative-divisor-div", x // c,               0 - x // (0 - c),     given(Lt(c, index(0)))),
    ("negative-divisor-mod", x % c,                x % (0 - c),          given(Lt(c, index(0)))),
    ("div-self-of-zero",     x // x,               index(1),             None),
    ("mul-div-by-zero",      (x * y) // y,         x,                    None),
    ("add-div-no-divisibility", (x + c) // d,         x // d + c // d,      given(positive(d))),
    ("add-mod-no-divisibility", (x + c) % d,          x % d + c % d,        given(positive(d))),
    ("div-then-mul",         x // c * c,           x,                    given(positive(c))),
    ("mul-into-div",         (x // c) * d,         (x * d) // c, given(positive(c), positive(d))),
    ("mod-of-a-ramp", (x * c + y) % d, (x * c) % d + y, given(positive(d), *between(0, y, d))),
    ("mod-mod-wrong-way", (x % c) % d, x % c, given(positive(c), positive(d), Eq(c % d, index(0)))),
    ("mod-mod-no-divisibility", (x % c) % d,          x % d, given(positive(c), positive(d))),
    ("div-div-adds",         (x // c) // d,        x // (c + d), given(positive(c), positive(d))),
    ("div-div-negative",     (x // c) // d,        x // (c * d), given(nonzero(c), nonzero(d))),
    ("mod-div-no-divisibility", (x % c) // d, (x // d) % (c // d), given(positive(c), positive(d))),
    ("small-mod-unguarded-low", x % y,                x,                    given(Lt(x, y))),
    ("small-mod-off-by-one", x % y,                x, given(Le(index(0), x), Le(x, y))),
    ("small-div-off-by-one", x // y,               index(0), given(Le(index(0), x), Le(x, y))),
    ("sum-of-div",           x // c + y // c,      (x + y) // c,         given(positive(c))),
    ("min-of-negated",       Min(0 - x, 0 - y),    0 - Min(x, y),        None),
    ("min-scaled-any-sign",  Min(x * c, y * c),    Min(x, y) * c,        None),
    ("min-div-any-sign",     Min(x // c, y // c),  Min(x, y) // c,       given(nonzero(c))),
    ("max-min-swapped",      Max(Min(x, y), z),    Min(Max(x, z), y),    None),
    ("less-scaled-any-sign", Lt(x * c, y * c),     Lt(x, y),             given(nonzero(c))),
    ("less-div",             Lt(x // c, y // c),   Lt(x, y),             given(positive(c))),
    ("quotient-below-off-by-one",Lt(x // c, d), Le(x, c * d), given(positive(c))),
    ("at-most-is-less",      Le(x, y),             Lt(x, y),             None),
    ("equal-after-div",      Eq(x // c, y // c),   Eq(x, y),             given(positive(c))),
    ("equal-after-mod",      Eq(x % c, y % c),     Eq(x, y),             given(positive(c))),
    ("unequal-is-less",      Ne(x, y),             Lt(x, y),             None),
    ("select-swapped",       Select(Lt(x, y), x, y), Max(x, y),            None),
    ("distribute-mod",       (x * y) % c,          (x % c) * (y % c),    given(positive(c))),
    ("mod-negated",          (0 - x) % c,          0 - x % c,            given(positive(c))),
    ("ceil-div-as-floor",    (x + c - 1) // c,     x // c + 1,           given(positive(c))),
]
# fmt: on


@pytest.mark.parametrize(("name", "left", "right", "when"), KNOWN_BAD)
def test_known_bad_rules_are_refuted(
    name: str, left: Any, right: Any, when: RuleGuard | None
) -> None:
    verdict = prove_rule(rule(name, left, right, when=when))
    assert isinstance(verdict, WrongRule), verdict
    assert all(abs(value) <= 3 for _, value in verdict.point), verdict


def test_a_guard_that_is_a_function_is_seen_at_instances() -> None:
    good = rule("good", (x + c) // d, x // d + c // d, when=lambda m: divides(m.d, m.c))
    verdict = prove_rule(good)
    assert isinstance(verdict, InWindow)
    assert verdict.instances > 20
    bad = rule("bad", (x + c) // d, x // d + c // d, when=lambda m: m.d.value > 0)
    assert isinstance(prove_rule(bad), WrongRule)
    never = rule("never", (x + c) // d, x // d + c // d, when=lambda m: False)
    assert isinstance(prove_rule(never), OpenQuestion)


def divides(small: Lit, large: Lit) -> bool:
    return small.value > 0 and int(large.value) % int(small.value) == 0


def test_certify() -> None:
    split = rule("split", (x + c) // d, x // d + c // d)
    assert certify(split, {"x": X, "c": index(8), "d": index(4)})
    assert not certify(split, {"x": X, "c": index(7), "d": index(4)})
    assert certify(split, {"x": X * 4, "c": index(3), "d": index(4)})
    small = rule("small", x % y, x, when=given(*between(0, x, y)))
    assert certify(small, {"x": X, "y": index(8)}, EMPTY.loop(X, 8))
    assert not certify(small, {"x": X, "y": index(8)}, EMPTY.loop(X, 9))


def test_a_computed_rule_that_is_wrong() -> None:
    off = rule("off", x // c, ContextualRewrite(lambda m, known: m.x // m.c + 1))
    assert isinstance(prove_rule(off), WrongRule)


def test_more_instances_than_are_tried_show_nothing() -> None:
    a, *rest = index_constants("a b c d")
    left = Select(Lt(a, index(5)), x, x + 1) + sum(rest)
    wrong = rule("wrong", left, x + sum(rest), when=lambda _: True)
    verdict = prove_rule(wrong)
    assert isinstance(verdict, OpenQuestion)
    assert "too many values to try" in verdict.why
