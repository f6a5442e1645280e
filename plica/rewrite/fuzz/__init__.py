"""Fuzzing of rewriting: passes and packs."""

from plica.rewrite.fuzz.report import Finding, FuzzReport
from plica.rewrite.fuzz.run import Stage, StageFinding, fuzz

__all__ = ["Finding", "FuzzReport", "Stage", "StageFinding", "fuzz"]
