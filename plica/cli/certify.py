"""`plica certify MODEL`: the certificate of a compilation's derivation, and its independent check.

plica certify M.onnx -o M.json      compile, write the certificate and check it
plica certify --check M.json        check a certificate
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import Command, counted
from plica.cli.model import add_model, read_model
from plica.runtime.error import ArtefactError, Diagnostic, InputError, Place

if TYPE_CHECKING:
    from plica.runtime.derivation_check import CheckedDerivation


def run(arguments: argparse.Namespace) -> int:
    """Writes a certificate if a model is given, and checks it."""
    from plica.runtime.derivation_check import check_derivation

    if (arguments.model is None) == (arguments.check is None):
        message = "A model to certify is needed, or a certificate to check."
        hint = "plica certify M.onnx, or plica certify --check M.json."
        raise InputError(Diagnostic("input-missing", message, suggestion=hint))
    place = Place(file=str(arguments.model or arguments.check))
    if arguments.check is not None:
        text = _text(arguments.check, place)
    else:
        text = json.dumps(_certificate(arguments), separators=(",", ":"))
        if arguments.output is not None:
            arguments.output.write_text(text, encoding="utf-8")
    start = perf_counter()
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ArtefactError(
            Diagnostic("bad-artefact", "The file is no certificate.", place, "JSON", str(error))
        ) from error
    derivation = check_derivation(given)
    seconds = perf_counter() - start
    if derivation.problem:
        message = f"The certificate proves nothing: {derivation.problem}"
        raise ArtefactError(Diagnostic("bad-artefact", message, place))
    show(derivation, given, seconds, arguments.json)
    return 0


def _certificate(arguments: argparse.Namespace) -> dict[str, Any]:
    """The certificate of compiling a model."""
    from plica.pipeline import contract_of, lower, packs_of
    from plica.rewrite.certificate import certificate

    model = read_model(arguments.model, arguments.dim, arguments.input)
    contract = contract_of(arguments.contract)
    done = lower(model, contract, packs_of((), contract))
    return certificate(done.derivation)


def _text(path: Path, place: Place) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = "The certificate cannot be read."
        raise InputError(Diagnostic("input-missing", message, place, found=str(error))) from error


def show(found: CheckedDerivation, given: dict[str, Any], seconds: float, as_json: bool) -> None:
    """What was checked, and what was taken on trust."""
    if as_json:
        from dataclasses import asdict

        print(json.dumps({**asdict(found), "seconds": round(seconds, 3)}, indent=2))
        return
    print(f"good: from {given['source']} to {given['result']}, checked in {seconds:.2f} s")
    print(f"  {counted(found.matched, 'rule application')} matched again, "
          f"{found.equations} with both sides")  # fmt: skip
    trusted = {"pass": found.passes, "region": found.trusted, "computed value": found.derived}
    print("  on trust:", ", ".join(counted(n, of) for of, n in trusted.items()))


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser, optional=True)
    parser.add_argument("-o", "--output", type=Path, help="write the certificate there")
    parser.add_argument("--check", type=Path, metavar="FILE", help="check a certificate")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


COMMAND: Final = Command(
    "certify",
    "Certify the derivation of a compilation, and check certificates",
    run,
    configure,
    ("plica certify M.onnx -o M.json", "plica certify --check M.json"),
)
