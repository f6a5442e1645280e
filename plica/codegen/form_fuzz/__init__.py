"""Fuzzing of forms and trace templates: random stages, held to what they mean at every step."""

from plica.codegen.form_fuzz.judge import FormWay, Guilty
from plica.codegen.form_fuzz.run import FormFinding, FormReport, fuzz

__all__ = ["FormFinding", "FormReport", "FormWay", "Guilty", "fuzz"]
