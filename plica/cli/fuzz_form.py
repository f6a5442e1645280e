"""`plica fuzz form`: random stages through forms, trace templates and lowering passes."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from plica.cli.progress import progress
from plica.cli.rules import count

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
    parser.add_argument("--examples", type=count, default=200, help="how many cases (200)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same stages")
    parser.add_argument("--plant", choices=("form", "template", "pass"),
                        help="plant a mistake in a form, a trace template or a lowering pass: "
                             "it must be found and blamed")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=fuzz_form)


def fuzz_form(arguments: argparse.Namespace) -> int:
    """Exit code 1 where stages mean something else after a form, a template or a pass."""
    from plica.codegen.form_fuzz import FormWay, fuzz
    from plica.codegen.form_fuzz.plant import WAYS

    with progress("stages", arguments.examples) as say:
        way = WAYS[arguments.plant] if arguments.plant else FormWay()
        report = fuzz(arguments.examples, arguments.seed, way=way, say=say)
    if arguments.json:
        print(json.dumps(report.to_data(), indent=2))
    else:
        _print(report)
    return 0 if report.finding is None else 1


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
