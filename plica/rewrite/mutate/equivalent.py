"""Mutants that are no mistakes, each with its proof.

A mutant is left out of what a checker is measured by only if it is proved to be right.  What can be
proved of all mutants of a sort is a rule here; everything else stands in a table by its name.
"""

from __future__ import annotations

from typing import Final

from plica.ir.loop.scalar import Scalar
from plica.rewrite.check.index import check_index
from plica.rewrite.check.verdict import Proved
from plica.rewrite.mutate.mutant import Mutant

PROOFS: Final[dict[str, str]] = {}
"""By the name of the mutant."""


def proof_of(mutant: Mutant) -> str | None:
    """Why a mutant is right after all, None where nothing says so."""
    if isinstance(mutant.rule.left, Scalar):
        verdict = check_index(mutant.rule)
        return str(verdict) if isinstance(verdict, Proved) else None
    return PROOFS.get(mutant.name)
