"""Declined instances: how many there were, and how near the nearest came to being changed."""

from __future__ import annotations

from typing import Final

from plica.ir.graph.expression import Expr
from plica.rewrite.check.instance import Instance
from plica.rewrite.check.report import closed, text
from plica.rewrite.near_miss import near_miss
from plica.rewrite.rule import Rule

MAX_DECLINED_KEPT: Final = 8  # declined instances that are looked at again


class Declined:
    """What became of attempts to make an instance that a rule changes."""

    def __init__(self) -> None:
        self.attempts = self.made = 0
        self.kept: list[Instance] = []

    def add(self, made: Instance | None) -> None:
        """An attempt that gave no instance, or one that the rule left alone."""
        self.attempts += 1
        if made is not None:
            self.made += 1
            if len(self.kept) < MAX_DECLINED_KEPT:
                self.kept.append(made)

    def why(self, rule: Rule) -> str:
        """Why a rule was tried on nothing."""
        if not self.made:
            hint = "examples= or instances= of the rule can tell some"
            return f"no well-typed instance was found in {self.attempts} attempts; {hint}"
        misses = [(near_miss(rule, each.term), each) for each in self.kept]
        told = [(miss, each) for miss, each in misses if miss is not None]
        who = "the guard" if rule.when is not None else "the right side"
        count = f"{self.made} instances made, all declined by {who}"
        if not told:
            return count
        miss, nearest = max(told, key=lambda each: each[0].fitting / each[0].parts)
        return f"{count}; the nearest, {in_one_line(nearest.term, nearest)}, {miss}"


def in_one_line(term: Expr, made: Instance) -> str:
    """A term in one line, as a script says it."""
    body = text(closed(term, made)).partition("def main")[2].partition(":\n")[2]
    return " ".join(body.split()).removeprefix("return ")
