"""`plica verify M.plica`: an artefact checked again, by a small checker of its own."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.option import add_dims, add_inputs
from plica.runtime.error import ArtefactError, Diagnostic, InputError, Place

if TYPE_CHECKING:
    from plica.cli.rederive import Rederived
    from plica.ir.graph.module import Module


def run(arguments: argparse.Namespace) -> int:
    """Check, and show what the artefact says of itself."""
    from plica.runtime.verify import verify

    if arguments.replay and arguments.model is None:
        message = "Steps can be taken again only from the model they started from."
        raise InputError(Diagnostic("input-missing", message, suggestion="Give it: --model M."))
    found = verify(arguments.artefact)
    again = None
    if arguments.model is not None:
        from plica.cli.model import read_model
        from plica.core.digest import digest
        from plica.ir.graph.shape_specialisation import open_form

        model = read_model(arguments.model, arguments.dim, arguments.input, may_be_open=True)
        expected = digest(model)
        if expected != found.module:
            message = "The artefact was not compiled from this model as it is."
            place = Place(file=str(arguments.artefact))
            hint = (
                "Give the --dim and --input that it was compiled with.  What `plica quantise`"
                " writes was compiled from the quantised model, not from the file itself, and is"
                " verified without --model."
            )
            raise ArtefactError(
                Diagnostic("bad-artefact", message, place, expected, found.module, hint)
            )
        if arguments.replay:
            again = _replayed(arguments.artefact, open_form(model))
    if arguments.json:
        taken = {} if again is None else {"replayed": again.steps, "rules_applied": again.rules}
        print(json.dumps({**asdict(found), **taken}, indent=2))
        return 0
    print(f"{arguments.artefact}: good")
    for label, value in (
        ("model", found.module),
        ("contract", found.asked or "not said"),
        ("rules used", f"{found.contract}, {found.steps} steps of {found.rules} rules and passes"),
        ("compiled", f"{found.result}, {found.stages} stages from the model"),
        ("kernels", f"{found.traces}, each with its trace"),
        ("target", found.target),
        ("code", f"{found.objects} objects"),
        ("workspace", f"{found.workspace} bytes"),
        ("made by", ", ".join(" ".join(each) for each in found.versions)),
    ):
        print(f"  {label}: {value}")
    if again is not None:
        print(f"  replayed: all {again.steps} steps, {again.rules} rules applied by themselves")
    return 0


def _replayed(path: Path, model: Module) -> Rederived:
    """The derivation of an artefact, taken again from its model with the packs at hand."""
    from plica.cli.rederive import rederive
    from plica.codegen.llvm.processor import find_target
    from plica.runtime import archive
    from plica.runtime.artefact import from_members

    artefact = from_members(archive.read(path))
    here = find_target("cpu")
    machine = artefact.machine
    same = (here.triple, here.cpu, here.features) == (
        machine.triple,
        machine.cpu,
        machine.features,
    )
    return rederive(model, artefact.record(), here if same else None)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("artefact", type=Path, metavar="M.plica", help="a compiled model")
    parser.add_argument("--model", type=Path, help="the model it must have been compiled from")
    add_dims(parser)
    add_inputs(parser, "an input of the model that is part of the artefact; repeatable")
    parser.add_argument("--replay", action="store_true",
                        help="take every step of the derivation again, from the model")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


COMMAND: Final = Command(
    "verify",
    "Check an artefact: digests, plan, derivation, code",
    run,
    configure,
    (
        "plica verify M.plica",
        "plica verify M.plica --model M.onnx --dim batch=1 --replay",
        "plica verify M.plica --json",
    ),
)
