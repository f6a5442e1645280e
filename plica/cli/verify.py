"""`plica verify M.plica`: an artefact checked again, by a small checker of its own."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from plica.cli.command import Command
from plica.runtime.error import ArtefactError, Diagnostic, Place


def run(arguments: argparse.Namespace) -> int:
    """Check, and show what the artefact says of itself."""
    from plica.runtime.verify import verify

    found = verify(arguments.artefact)
    if arguments.model is not None:
        from plica.cli.compile_ import read_model
        from plica.core.digest import digest

        expected = digest(read_model(arguments.model))
        if expected != found.module:
            message = "The artefact was not compiled from this model."
            place = Place(file=str(arguments.artefact))
            raise ArtefactError(Diagnostic("bad-artefact", message, place, expected, found.module))
    if arguments.json:
        print(json.dumps(asdict(found), indent=2))
        return 0
    print(f"{arguments.artefact}: good")
    for label, value in (
        ("model", found.module),
        ("contract", f"{found.contract}, {found.steps} steps"),
        ("target", found.target),
        ("code", f"{found.objects} objects"),
        ("workspace", f"{found.workspace} bytes"),
        ("made by", ", ".join(" ".join(each) for each in found.versions)),
    ):
        print(f"  {label}: {value}")
    return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("artefact", type=Path, metavar="M.plica", help="a compiled model")
    parser.add_argument("--model", type=Path, help="the script it must have been compiled from")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


COMMAND: Final = Command(
    "verify", "Check an artefact: digests, plan, derivation, code", run, configure
)
