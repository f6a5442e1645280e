"""Fuzzing of what rewrites modules: passes and packs."""

from plica.rewrite.fuzz.run import GraphFuzzReport, StageFinding, fuzz
from plica.rewrite.fuzz.stage import Stage

__all__ = ["GraphFuzzReport", "Stage", "StageFinding", "fuzz"]
