"""Drawing mutants: this many of each kind, by seed, from all rules that are shipped."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from plica.analysis.index import INDEX_RULES
from plica.core import IllTyped, RuleRefused
from plica.core.extension import FAILURES
from plica.ir.contract import APPROX
from plica.ir.graph import Apply, Expr, find
from plica.ir.loop.scalar import Scalar
from plica.ir.type import TensorType, type_of
from plica.rewrite.check.data import TAPE, reader
from plica.rewrite.check.probe import offered
from plica.rewrite.make import tabled
from plica.rewrite.mutate.mutant import KINDS, Mutant
from plica.rewrite.mutate.rule_edit import NamedRule, contract_edits, guard_edits
from plica.rewrite.packs import OWN, find_pack
from plica.rewrite.pattern import Dominator, Outputs, holes
from plica.rewrite.rule import Rule
from tests.rewrite.mutants import edit as edits
from tests.rewrite.mutants.index_edit import index_edits
from tests.rewrite.mutants.rule_edit import addend_edits, edited, order_edits

UNIONS: Final = ("simplify",)
"""Packs whose rules are those of others."""
MAX_OPTIONS: Final = 3
"""Mutants of one kind that are looked at for each rule."""
SAMPLES: Final = 3
MAX_TAPES: Final = 12
"""Tapes on which instances of a rule are looked for."""

Pair: TypeAlias = tuple[Expr, Expr]  # an instance, and what the rule makes of it

OF_SIDES: Final[dict[str, Callable[[Expr], Iterator[edits.Named]]]] = {
    "operator": edits.operator_edits,
    "axis": edits.axis_edits,
    "dtype": edits.dtype_edits,
    "boundary": edits.boundary_edits,
    "broadcast": edits.broadcast_edits,
}
OF_RULES: Final[dict[str, Callable[[Rule], Iterator[NamedRule]]]] = {
    "guard": guard_edits,
    "order": order_edits,
    "contract": contract_edits,
    "broadcast": addend_edits,
}


def shipped() -> tuple[Rule, ...]:
    """Every rule of every pack, of graphs and of index terms, once."""
    packs = [find_pack(name) for name in sorted(OWN) if name not in UNIONS]
    return (*(rule for pack in packs for rule in pack), *INDEX_RULES)


def named_mutants() -> tuple[Mutant, ...]:
    """Three wrong rules that were once believed."""
    x, y, z, a, b, u = holes("x y z a b u")
    total, product, flip = find("sum"), find("prod"), find("flip")
    assert total is not None
    assert product is not None
    assert flip is not None
    made = (
        tabled("add-of-add", (x + y) + z, x + (y + z)),
        tabled("sum-of-flip", total(flip(x, a), b, u), total(x, b, u)),
        tabled("product-of-flip", product(flip(x, a), b, u), product(x, b, u)),
    )
    return tuple(Mutant("order", each.name, "claimed exact", each) for each in made)


def draw(each: int, seed: int = 0, rules: Iterable[Rule] | None = None) -> tuple[Mutant, ...]:
    """A given number of mutants of each kind, the three that were believed among them."""
    source = random.Random(seed)
    order = list(shipped() if rules is None else rules)
    source.shuffle(order)
    found: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    found["order"].extend(named_mutants()[:each])
    for _ in range(3):  # a kind that few rules have gets several mutants of one rule
        for base in order:
            wanted = [kind for kind in KINDS if len(found[kind]) < each]
            if not wanted:
                break
            for kind in wanted:
                known = {mutant.name for mutant in found[kind]}
                options = [m for m in candidates(base, kind) if m.name not in known]
                source.shuffle(options)
                found[kind].extend([m for m in options[:MAX_OPTIONS] if _fits(base, m)][:1])
    return tuple(mutant for kind in KINDS for mutant in found[kind])


def candidates(base: Rule, kind: str) -> tuple[Mutant, ...]:
    """The mutants of a rule that are of a kind."""
    if isinstance(base.left, Scalar):
        made = [(word, rule) for of, word, rule in index_edits(base) if of == kind]
        return tuple(Mutant(kind, base.name, word, rule) for word, rule in made)
    if not isinstance(base.left, Expr) or isinstance(base.left, Dominator | Outputs):
        return ()
    if kind == "dtype" and base.contract.level == APPROX:
        return ()  # a narrower dtype is within it
    if kind in ("guard", "contract"):
        rules = OF_RULES[kind](base)
        return tuple(Mutant(kind, base.name, word, rule) for word, rule in rules)
    pairs = sampled(base)
    found: dict[str, Rule] = {}
    if kind in OF_SIDES:
        for _, right in pairs:
            for word, edit in OF_SIDES[kind](right):
                if word not in found and any(_changes(edit, pair[1]) for pair in pairs):
                    found[word] = edited(base, edit)
    if kind == "order" and all(is_filled(right) for _, right in pairs):
        return ()  # a sum of equal elements has one order
    if kind in OF_RULES and pairs:
        found |= dict(OF_RULES[kind](base))
    return tuple(Mutant(kind, base.name, word, rule) for word, rule in found.items())


def is_filled(term: Expr) -> bool:
    """Whether all elements of a tensor are seen to be equal."""
    if not isinstance(term, Apply):
        return False
    if term.op == "broadcast_to":
        of = type_of(term.args[0])
        return isinstance(of, TensorType) and not of.shape
    return term.op in ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like")


@functools.lru_cache(maxsize=2048)
def sampled(base: Rule) -> tuple[Pair, ...]:
    """Some instances of a rule that it applies to."""
    return tuple(_instances(base))


def _instances(base: Rule) -> Iterator[Pair]:
    source = random.Random(base.name)
    count = 0
    for _ in range(MAX_TAPES):
        made = offered(base, reader(source.randbytes(TAPE)), data=False)
        after = None if made is None else base.at(made.term)
        if made is not None and isinstance(after, Expr):
            yield made.term, after
            count += 1
            if count == SAMPLES:
                return


def _changes(edit: Callable[[Expr], Expr | None], right: Expr) -> bool:
    made = edit(right)
    if made is None or made is right:
        return False
    try:
        type_of(made)
    except IllTyped:
        return False
    return True


def _fits(base: Rule, mutant: Mutant) -> bool:
    """Whether a mutant is applicable: without its guard to new terms, to floats, or with a
    different result."""
    if mutant.kind not in OF_RULES or isinstance(base.left, Scalar):
        return True  # seen on a sample already
    rule, kind = mutant.rule, mutant.kind
    source = random.Random(rule.name)
    for _ in range(MAX_TAPES):
        made = offered(rule, reader(source.randbytes(TAPE)), data=False)
        if made is None:
            continue
        try:
            after = rule.at(made.term)
            new = after is not None and (kind != "guard" or base.at(made.term) is None)
        except (RuleRefused, *FAILURES):
            return kind == "guard"
        larger = rule.left is not base.left
        if kind == "broadcast" and new and larger and after is _beside(base, made.term):
            continue
        of = type_of(made.term) if new else None
        floats = isinstance(of, TensorType) and of.dtype.is_float
        if new and (floats or kind in ("guard", "broadcast")):
            return True
    return False


def _beside(base: Rule, whole: Expr) -> Expr | None:
    """The rule applied to the first operand, with the second unchanged."""
    assert isinstance(whole, Apply)
    made = base.at(whole.args[0])
    return Apply(whole.op, (made, *whole.args[1:]), whole.attrs) if isinstance(made, Expr) else None
