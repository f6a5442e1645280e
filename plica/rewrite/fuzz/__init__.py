"""Fuzzing of rewriting: passes and packs."""

from plica.rewrite.fuzz.report import Finding, FuzzReport
from plica.rewrite.fuzz.run import StageFinding, fuzz
from plica.rewrite.fuzz.stage import Stage

__all__ = ["Finding", "FuzzReport", "Stage", "StageFinding", "fuzz"]
