"""Fuzzing of what rewrites modules: passes and packs."""

from plica.rewrite.fuzz.run import Finding, Report, fuzz
from plica.rewrite.fuzz.stage import Stage

__all__ = ["Finding", "Report", "Stage", "fuzz"]
