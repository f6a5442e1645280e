"""The prover of graph rules: every rank, every size, or no proof."""

from plica.rewrite.prove.run import GraphVerdict, Unproved, attempt, prove

__all__ = ["GraphVerdict", "Unproved", "attempt", "prove"]
