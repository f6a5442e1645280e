"""`plica fuzz form`: random stages through forms, trace templates and lowering passes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from plica.cli.fuzz.kind import FuzzKind, Say, option

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report

EPILOG: Final = """\
examples:
  plica fuzz form --examples 2000
  plica fuzz form --plant form          plant a mistake in a form, which must be found
  plica fuzz form --plant template      plant a mistake in a template
"""


def fuzz_form(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Stages through forms, templates and passes, perhaps with a planted mistake."""
    from plica.codegen.form_fuzz import FormWay, fuzz
    from plica.codegen.form_fuzz.judge import WAYS

    way = WAYS[arguments.plant] if arguments.plant else FormWay()
    return fuzz(examples, arguments.seed, first=first, way=way, say=say)


def every() -> Mapping[str, Iterable[str]]:
    """All forms of processors and of GPUs, and all templates."""
    from plica.schedule.default import FORMS
    from plica.schedule.default.choose import TEMPLATES
    from plica.schedule.default.gpu import GPU_FORMS

    return {"forms": [form.name for form in (*FORMS, *GPU_FORMS)], "templates": tuple(TEMPLATES)}


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """Which kinds, forms and templates there were."""
    forms, templates = report["forms"], report["templates"]
    return [
        f"{report.examples} stages of {len(report['kinds'])} kinds, seed {report.seed}: "
        f"{len(forms)} forms applied {sum(forms.values())} times, "
        f"{len(templates)} templates {sum(templates.values())} times."
    ]


KIND: Final = FuzzKind(
    "form",
    "stages",
    "stages through the forms, trace templates and lowering passes, interpreted",
    EPILOG,
    fuzz_form,
    summary,
    "All mean afterwards what they meant before.",
    goal=1_000,
    together=10,
    options=(
        option("--plant", choices=("form", "template", "pass"),
               help="plant a mistake in a form, a template or a lowering pass; "
                    "it must be found and named"),
    ),
    every=every,
)  # fmt: skip
