"""`plica verify M.plica`: checks an artefact with a small independent checker."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command, counted
from plica.cli.option import add_dims, add_inputs
from plica.runtime.error import ArtefactError, Diagnostic, InputError, Place, UnsupportedError

if TYPE_CHECKING:
    from plica.cli.rederive import Rederived
    from plica.codegen.retrace import Retraced
    from plica.ir.graph.module import Module


def run(arguments: argparse.Namespace) -> int:
    """Checks the artefact, and shows its description."""
    from attrs import asdict as to_data

    from plica.runtime.verify import verify

    if arguments.replay and arguments.model is None:
        message = "--replay needs the model."
        raise InputError(Diagnostic("input-missing", message, suggestion="Give it: --model M."))
    verified = verify(arguments.artefact)
    modes = {"prove": arguments.prove, "rebuild": arguments.rebuild}
    traced = None if arguments.quick else retraced_file(arguments.artefact, **modes)
    again = None
    if arguments.model is not None and not verified.recorded:
        message = "An artefact with data types or recursion does not record its model."
        hint = "Verify it without --model."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
    if arguments.model is not None and not verified.module:
        message = "An artefact with segments cannot be compared with its model."
        hint = "Verify it without --model."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
    if arguments.model is not None:
        from plica.cli.model import read_model
        from plica.core.digest import digest
        from plica.ir.graph.shape_specialisation import open_form

        model = read_model(arguments.model, arguments.dim, arguments.input, may_be_open=True)
        expected = digest(model)
        if expected != verified.module:
            message = "The artefact was not compiled from this model."
            place = Place(file=str(arguments.artefact))
            hint = (
                "Give the --dim and --input that it was compiled with.  What `plica quantise`"
                " writes was compiled from the quantised model, not from the file itself, and is"
                " verified without --model."
            )
            raise ArtefactError(
                Diagnostic("bad-artefact", message, place, expected, verified.module, hint)
            )
        if arguments.replay:
            again = _replayed(arguments.artefact, open_form(model))
    if arguments.json:
        taken = {} if again is None else {"replayed": again.steps, "rules_applied": again.rules}
        kernels = {} if traced is None else {"retraced": to_data(traced)}
        print(json.dumps({**asdict(verified), **taken, **kernels}, indent=2))
        return 0
    print(f"{arguments.artefact}: good")
    rules = f"{verified.contract}, {verified.rules} in {counted(verified.steps, 'step')}"
    recorded = (
        ("model", verified.module or "in segments, each with a record of its own"),
        ("contract", verified.asked or "not said"),
        ("rules and passes", rules),
        ("compiled", f"{verified.result}, {counted(verified.stages, 'stage')} from the model"),
        ("kernels", f"{verified.traces}, each with its trace"),
    )
    unrecorded = (
        ("model", "a dynamic program, which has no record: neither derivation nor traces"),
        ("checked", "digests, the form of its data, its machine, and the names in its code"),
    )
    for label, value in (
        *(recorded if verified.recorded else unrecorded),
        ("target", verified.target),
        ("code", counted(verified.objects, "object")),
        *([("workspace", counted(verified.workspace, "byte"))] if verified.recorded else []),
        ("made by", ", ".join(" ".join(version) for version in verified.versions)),
    ):
        print(f"  {label}: {value}")
    if traced is not None and verified.recorded:
        counts = {"kernel": traced.kernels, "step": traced.steps, "barrier": traced.barriers}
        print("  traces: taken again,", ", ".join([counted(n, of) for of, n in counts.items()]))
        if arguments.prove:
            left = f"; {traced.unproved} not proved" if traced.unproved else ""
            print(f"  bounds proved, each proof checked again: {traced.proved}{left}")
        if arguments.rebuild:
            print(f"  code made again: {traced.not_rebuilt or counted(traced.rebuilt, 'kernel')}")
    if again is not None:
        whole = again.not_made or f"{counted(again.objects, 'object')}, byte for byte"
        print(f"  whole artefact {'not ' if again.not_made else ''}made again: {whole}")
        rules = f"{counted(again.rules, 'rule')} applied by themselves"
        print(f"  replayed: {counted(again.steps, 'step')}, {rules}")
    return 0


def retraced_file(
    path: str | os.PathLike[str], *, prove: bool = False, rebuild: bool = False
) -> Retraced:
    """Makes the kernels of an artefact again from their traces, in all of its parts."""
    from plica.codegen.retrace import joined, retraced
    from plica.runtime import archive
    from plica.runtime.verify import parts_of

    with archive.opened(path) as members:
        return joined(
            [
                retraced(artefact, artefact.record(), prove=prove, rebuild=rebuild)
                for artefact in parts_of(members)
            ]
        )


def _replayed(path: Path, model: Module) -> Rederived:
    """The derivation of an artefact, repeated from its model with the available packs."""
    from plica.cli.rederive import rederive
    from plica.runtime import archive
    from plica.runtime.artefact import from_members

    with archive.opened(path) as members:
        artefact = from_members(members)
        return rederive(model, artefact.record(), artefact)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("artefact", type=Path, metavar="M.plica", help="a compiled model")
    parser.add_argument("--model", type=Path, help="the model it must have been compiled from")
    add_dims(parser)
    add_inputs(parser, "an input of the model that the artefact fixes; repeatable")
    parser.add_argument("--replay", action="store_true",
                        help="apply every step of the derivation to the model again")  # fmt: skip
    parser.add_argument("--prove", action="store_true",
                        help="prove that all accesses are inside their buffers")  # fmt: skip
    parser.add_argument("--rebuild", action="store_true",
                        help="compile the kernels again and compare the code")  # fmt: skip
    parser.add_argument("--quick", action="store_true",
                        help="check digests, memory plan and names only")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


COMMAND: Final = Command(
    "verify",
    "Verify an artefact: digests, memory plan, derivation, traces, code",
    run,
    configure,
    (
        "plica verify M.plica",
        "plica verify M.plica --model M.onnx --dim batch=1 --replay",
        "plica verify M.plica --prove --rebuild",
        "plica verify M.plica --json",
    ),
)
