"""Making rules: every reason why something cannot be a rule, a hole or a pack, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plica import op
from plica.analysis.index import rules as index_rules, simplify
from plica.core.diagnostic import RuleRefused
from plica.core.name import Name
from plica.ir.contract import named
from plica.ir.graph.expression import Var, const
from plica.ir.type.term import tensor
from plica.rewrite import (
    approx,
    constants,
    exact,
    hole,
    holes,
    index_constants,
    index_holes,
    pack,
    reassociates,
    rewrite,
    rule,
)
from plica.rewrite.layout import rules as layout_rules
from plica.rewrite.make import findings
from plica.rewrite.packs import all_packs
from plica.rewrite.quantise import integer, realise
from plica.rewrite.rule import Rule

x, y = holes("x y")
(c,) = constants("c")
(i,) = index_holes("i")
(n,) = index_constants("n")
a = Var(Name("a"), tensor((2,), "f32"))
anything: Any = 3
relu = op.nn.relu


def breaks(m: Any) -> Any:
    return 1 / 0


def picky(m: Any) -> bool:
    return bool(m.nope)


def term(value: Any) -> Any:
    return value > 0


positive: Any = hole("p", constant=True, when=term)
(whole,) = index_constants("n", when=term)
(odd,) = index_constants("n", when=breaks)

# fmt: off
REFUSED: tuple[tuple[str, Callable[[], object], str, str], ...] = (
    ("guard gives a term",       lambda: rule("r", relu(x * c), x, when=lambda m: m.c > 0),    "bad-rule",     "The guard of r gives a term where a bool"),
    ("index guard gives a term", lambda: rule("r", i * n, i, when=lambda m: m.n > 0),          "bad-rule",     "The guard of r gives a term"),
    ("predicate gives a term",   lambda: rule("r", relu(x * positive), relu(x) * positive),    "bad-rule",     "In r: The predicate of the hole p gives"),
    ("index predicate too",      lambda: rule("r", (i * whole) // whole, i),                   "bad-rule",     "In r: The predicate of the hole n gives"),
    ("right side fails",         lambda: rule("r", relu(x), breaks),                           "rule-fails",   "r fails on an instance"),
    ("guard fails",              lambda: rule("r", relu(x), x, when=picky),                    "rule-fails",   "no hole 'nope'"),
    ("index right side fails",   lambda: rule("r", i * n, breaks),                             "rule-fails",   "ZeroDivisionError"),
    ("index predicate fails",    lambda: rule("r", i * odd, i),                                "rule-fails",   "r fails on an instance"),
    ("index right side",         lambda: rule("r", i * n, lambda m: "i"),                      "rule-types",   "no index term"),
    ("unknown contract",         lambda: rule("r", relu(relu(x)), x, float="roughly"),         "bad-rule",     "The float contract of r"),
    ("no version",               lambda: pack("p", rule("r", relu(relu(x)), relu(x))),         "bad-rule",     "version of the pack p"),
    ("no contract",              lambda: rule("r", relu(relu(x)), x, float=anything),          "bad-rule",     "The float contract of r"),
    ("no name",                  lambda: rule(" ", relu(relu(x)), relu(x)),                    "bad-rule",     "The name of a rule"),
    ("two demands",              lambda: rule("r", hole("q", rank=1) + hole("q", rank=2), y),  "bad-rule",     "two holes q with different demands"),
    ("name of a hole",           lambda: holes("x y-z"),                                       "bad-rule",     "must be an identifier"),
    ("no holes",                 lambda: holes(" , "),                                         "bad-rule",     "must be an identifier"),
    ("dtype of a hole",          lambda: hole("q", dtypes="foo"),                              "bad-rule",     "the dtypes 'foo'"),
    ("rank of a hole",           lambda: hole("q", rank=-1),                                   "bad-rule",     "the rank -1"),
    ("shape of a hole",          lambda: hole("q", shape=anything),                            "bad-rule",     "the shape 3"),
    ("sizes of a hole",          lambda: hole("q", shape=(-1, None)),                          "bad-rule",     "the shape -1"),
    ("predicate of a hole",      lambda: hole("q", when=anything),                             "bad-rule",     "when 3"),
    ("no rules",                 lambda: pack("p", anything, version="1"),                     "bad-rule",     "no pack and no rules"),
    ("rewrite by name",          lambda: rewrite(a, "algebra"),  # type: ignore[arg-type]  # a mistake
                                                                                               "bad-rule",     "find_pack"),
    ("rewrite no term",          lambda: rewrite(anything, []),                                "bad-rule",     "Only a term"),
    ("rewrite contract",         lambda: rewrite(a, [], "roughly"),                            "bad-rule",     "float contract"),
)
# fmt: on
# ruff: noqa: E501


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_what_cannot_be_is_refused(row: tuple[str, Callable[[], object], str, str]) -> None:
    _, make, code, text = row
    with pytest.raises(RuleRefused) as refused:
        make()
    assert refused.value.code == code
    assert text in str(refused.value)


def test_a_failure_shows_the_instance_and_its_cause() -> None:
    with pytest.raises(RuleRefused) as refused:
        rule("r", relu(x), breaks)
    assert isinstance(refused.value.__cause__, ZeroDivisionError)
    assert "nn.relu(x)" in str(refused.value)
    place = refused.value.diagnostics[0].place
    assert place is not None
    assert str(place.file).endswith("test_make.py")


def test_contracts_go_by_name() -> None:
    assert rule("r", relu(relu(x)), relu(x), float="exact").contract is exact
    assert rule("r", relu(relu(x)), relu(x), float="approx(0.02)").contract is approx(0.02)
    assert named("approx(1e-3)") is approx(1e-3)
    assert [named(word) for word in ("approx", "approx(2)", "approx(0)", "approx(nan)")] == [
        None
    ] * 4
    loose = rule("loose", x * 1, x, float=reassociates)
    one = a * const(1.0, "f32")
    assert rewrite(one, [loose], "exact")[0] is one
    assert rewrite(one, [loose], "reassociates")[0] is a


def test_holes_are_apart_by_blanks_or_commas() -> None:
    assert [each.name for each in holes("x, y z")] == ["x", "y", "z"]


def test_predicates_are_given_values() -> None:
    wide = hole("w", constant=True, when=lambda each: bool(np.all(each.numpy() > 0)))
    kept = rule("kept", relu(x * wide), relu(x) * wide, float=reassociates)
    assert kept.at(relu(a * const(2.0, "f32"))) is not None
    assert kept.at(relu(a * const(-2.0, "f32"))) is None


def _tables() -> list[Rule]:
    """The rules of Plica's own tables: those of packs, and those that stand in modules."""
    found: list[object] = [each.rules for each in all_packs().values()]
    for module in (index_rules, simplify, layout_rules, realise, integer):
        found += vars(module).values()
    rules: dict[Rule, None] = {}
    while found:
        each = found.pop()
        if isinstance(each, Rule):
            rules[each] = None
        elif isinstance(each, tuple | list):
            found += each
    return list(rules)


def test_nothing_is_wrong_with_tabled_rules() -> None:
    """Their tables are loaded without asking."""
    rules = [each for each in _tables() if not each.is_pass]
    assert len(rules) > 300
    wrong = [
        each.message
        for of in rules
        for each in findings(of.name, of.left, of.right, when=of.when, float=of.contract)
    ]
    assert wrong == []
