"""Fuzzing of forms and trace templates: random stages, compared with their meaning at every
step."""

from plica.codegen.form_fuzz.decision import fuzz_decisions
from plica.codegen.form_fuzz.judge import FormWay, Guilty
from plica.codegen.form_fuzz.run import FormFinding, fuzz

__all__ = ["FormFinding", "FormWay", "Guilty", "fuzz", "fuzz_decisions"]
