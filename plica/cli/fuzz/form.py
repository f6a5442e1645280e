"""`plica fuzz form`: random stages through forms, trace templates and lowering passes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.fuzz.verb import ToldCase, add_verb, drive, tell

if TYPE_CHECKING:
    from plica.codegen.form_fuzz import FormReport

EPILOG: Final = """\
examples:
  plica fuzz form --examples 2000
  plica fuzz form --plant form          a mistake in a form is planted, and must be found
  plica fuzz form --plant template      as is one in a trace template
"""


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    about = "stages through the forms, trace templates and lowering passes, interpreted"
    parser = add_verb(verbs, "form", "stages", about, EPILOG, fuzz_form)
    parser.add_argument("--plant", choices=("form", "template", "pass"),
                        help="plant a mistake in a form, a trace template or a lowering pass: "
                             "it must be found and blamed")  # fmt: skip


def fuzz_form(arguments: argparse.Namespace) -> int:
    """Exit code 1 where stages mean something else after a form, a template or a pass."""
    return drive("form", "stages", arguments, _fuzzed, _print)


def _fuzzed(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FormReport:
    from plica.codegen.form_fuzz import FormWay, fuzz
    from plica.codegen.form_fuzz.plant import WAYS

    way = WAYS[arguments.plant] if arguments.plant else FormWay()
    return fuzz(examples, arguments.seed, first=first, way=way, say=say)


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many stages, and the forms and templates that applied."""
    report = _fuzzed(arguments, first, examples, say)
    counts = {"kinds": report.kinds, "forms": report.forms, "templates": report.templates}
    if (found := report.finding) is None:
        return FuzzShare(report.examples, counts)
    from plica.rewrite.check.report import as_comment

    guilty = f"{found.level} {found.guilty}"
    kept = FoundCase(guilty, found.reason, found.case, as_comment(found.stages))
    return FuzzShare(report.examples, counts, (kept,))


def every() -> Mapping[str, Iterable[str]]:
    """All forms of processors and of GPUs, and all templates."""
    from plica.schedule.default import FORMS
    from plica.schedule.default.choose import TEMPLATES
    from plica.schedule.default.gpu import GPU_FORMS

    return {"forms": [each.name for each in (*FORMS, *GPU_FORMS)], "templates": tuple(TEMPLATES)}


KIND: Final = FuzzKind("form", "stages", 1_000, 10, share, every=every)


def _print(report: FormReport) -> None:
    counted = (
        f"{report.examples} stages of {len(report.kinds)} kinds, seed {report.seed}: "
        f"{len(report.forms)} forms applied {sum(report.forms.values())} times, "
        f"{len(report.templates)} templates {sum(report.templates.values())} times."
    )
    each, wrong = report.finding, None
    if each is not None:
        after = "" if each.level == "form" else f", after the form {each.form}"
        place = f"case {each.case}: the {each.level} {each.guilty}{after}"
        title = "The smallest stages that show it:\n"
        wrong = ToldCase(place, each.reason, str(each.stages), title)
    tell([counted], "All mean afterwards what they meant before.", wrong)
