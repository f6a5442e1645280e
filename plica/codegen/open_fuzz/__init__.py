"""open_fuzz: random programs with open sizes, one code for each, held to their meaning."""

from plica.codegen.open_fuzz.case import Case, open_cases
from plica.codegen.open_fuzz.run import Finding, Report, fuzz

__all__ = ["Case", "Finding", "Report", "fuzz", "open_cases"]
