"""open_fuzz: random programs with open sizes, one code for each, held to their meaning."""

from plica.codegen.open_fuzz.case import Case, open_cases
from plica.codegen.open_fuzz.run import fuzz

__all__ = ["Case", "fuzz", "open_cases"]
