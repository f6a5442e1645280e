"""Fuzzing of forms and trace templates: random stages, held to what they mean at every step."""

from plica.codegen.form_fuzz.judge import Guilty, Way
from plica.codegen.form_fuzz.run import Finding, Report, fuzz

__all__ = ["Finding", "Guilty", "Report", "Way", "fuzz"]
