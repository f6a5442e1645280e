"""Planted mistakes in a rule and in a graph pass, which fuzzing must find and name.

>>> [rule.name for rule in wrong_rule()]
['planted-absolute-of-difference']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve

from plica.core import Term, map_bottom_up
from plica.ir.graph import Apply, Module
from plica.ir.op import find
from plica.ir.passes import Pass
from plica.ir.type import infer
from plica.rewrite.fuzz.run import Stage
from plica.rewrite.make import rule
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import holes

WRONG_PASS: Final = "merge-common"  # the pass in which a mistake is planted
UNEQUAL_SIDES: Final = ("subtract", "divide", "less", "less_equal", "greater", "greater_equal")
"""Operators that are not commutative."""


def wrong_rule() -> Pack:
    """A pack with a wrong rule: it forgets that the two sides of a difference matter."""
    x, y = holes("x y")
    absolute = find("absolute")
    assert absolute is not None
    wrong = rule("planted-absolute-of-difference", absolute(x - y), x - y)
    return pack("planted", wrong, version="0", doc="Wrong on purpose.")


def with_wrong_pass(stages: Sequence[Stage], name: str = WRONG_PASS) -> tuple[Stage, ...]:
    """The stages, in which one pass mixes up the two sides of operators."""
    return tuple(
        [_wrong(each) if isinstance(each, Pass) and each.name == name else each for each in stages]
    )


def _wrong(of: Pass) -> Pass:
    def run(module: Module) -> Module:
        made = map_bottom_up(_swapped, of.run(module))
        return infer(made)

    return evolve(of, run=run)


def _swapped(node: Term) -> Term:
    match node:
        case Apply(op, (left, right), attrs) if op in UNEQUAL_SIDES:
            return Apply(op, (right, left), attrs)
        case _:
            return node
