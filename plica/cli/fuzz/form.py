"""`plica fuzz form`: random stages through forms, trace templates and lowering passes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.every import add_campaign, begin, examples_of, in_jobs
from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.progress import progress

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
    parser = verbs.add_parser(
        "form",
        help="stages through the forms, trace templates and lowering passes, interpreted",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_campaign(parser, "cases")
    parser.add_argument("--plant", choices=("form", "template", "pass"),
                        help="plant a mistake in a form, a trace template or a lowering pass: "
                             "it must be found and blamed")  # fmt: skip
    parser.set_defaults(verb=fuzz_form)


def fuzz_form(arguments: argparse.Namespace) -> int:
    """Exit code 1 where stages mean something else after a form, a template or a pass."""
    if in_jobs(arguments):
        return begin("form", arguments)
    with progress("stages", examples_of(arguments)) as say:
        report = _fuzzed(arguments, arguments.first, examples_of(arguments), say)
    if arguments.json:
        print(json.dumps(report.to_data(), indent=2))
    else:
        _print(report)
    return 0 if report.finding is None else 1


def _fuzzed(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FormReport:
    from plica.codegen.form_fuzz import FormWay, fuzz
    from plica.codegen.form_fuzz.plant import WAYS

    way = WAYS[arguments.plant] if arguments.plant else FormWay()
    return fuzz(examples, arguments.seed, first=first, way=way, say=say)


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many stages, and the forms and templates that applied."""
    report = _fuzzed(arguments, first, examples, say)
    counts = {"kinds": report.kinds, "forms": report.forms, "templates": report.templates}
    found = report.finding
    if found is None:
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
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{report.examples} stages of {len(report.kinds)} kinds, seed {report.seed}: "
        f"{len(report.forms)} forms applied {sum(report.forms.values())} times, "
        f"{len(report.templates)} templates {sum(report.templates.values())} times."
    )
    found = report.finding
    if found is None:
        console.print("[green]All mean afterwards what they meant before.[/]")
        return
    after = "" if found.level == "form" else f", after the form {found.form}"
    console.print(
        f"[red]Wrong:[/] case {found.case}: the {found.level} {found.guilty}{after} ", end=""
    )
    print(found.reason)
    console.print("The smallest stages that show it:\n")
    print(found.stages)
