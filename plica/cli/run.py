"""`plica run M.plica --input x=x.npy`: an artefact run on arrays from files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from plica.cli.command import Command
from plica.runtime.error import Diagnostic, InputError, Place


def read_array(word: str) -> tuple[str, Any]:
    """The name and the array that `name=file.npy` means."""
    import numpy as np

    name, _, path = word.partition("=")
    if not name or not path:
        message = "An input is a name and a file."
        raise InputError(Diagnostic("input-unknown", message, None, "name=file.npy", repr(word)))
    try:
        return name, np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        message = f"The array for the input {name!r} cannot be read: {error}."
        raise InputError(Diagnostic("input-type", message, Place(file=path))) from error


def run(arguments: argparse.Namespace) -> int:
    """Load, run, and show or write what comes out; nothing of the compiler is needed."""
    import numpy as np

    from plica.runtime.load import load

    exe = load(arguments.artefact, arguments.threads)
    found = exe(**dict(read_array(each) for each in arguments.input))
    arrays = found if isinstance(found, tuple) else (found,)
    if arguments.output is not None:
        named = {port.name: each for port, each in zip(exe.outputs, arrays, strict=True)}
        np.savez(arguments.output, allow_pickle=False, **named)
    for port, each in zip(exe.outputs, arrays, strict=True):
        print(port)
        if arguments.output is None:
            print(each)
    return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("artefact", type=Path, metavar="M.plica", help="a compiled model")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="an input; once for each",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.npz", help="where outputs go")
    parser.add_argument("--threads", type=int, help="how many threads share the work")


COMMAND: Final = Command(
    "run",
    "Run an artefact on arrays from files",
    run,
    configure,
    ("plica run M.plica --input x=x.npy", "plica run M.plica --input x=x.npy -o y.npz"),
)
