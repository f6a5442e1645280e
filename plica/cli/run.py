"""`plica run M.plica --input x=x.npy`: an artefact run on arrays from files."""

from __future__ import annotations

import argparse
import io
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from plica.cli.command import Command
from plica.cli.option import add_inputs, ending, positive, read_arrays


def run(arguments: argparse.Namespace) -> int:
    """Loads, runs, and shows or writes the results; needs nothing of the compiler."""
    import numpy as np

    from plica.runtime import archive
    from plica.runtime.load import load

    if arguments.output is not None:
        archive.destination(arguments.output)
    exe = load(arguments.artefact, arguments.threads)
    found = exe(**read_arrays(arguments.input))
    # Any: an array, or a list of them.
    arrays: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)
    if arguments.output is not None:
        named = {port.name: array for port, array in zip(exe.outputs, arrays, strict=True)}
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **named)
        archive.write(arguments.output, packed.getvalue())
    for port, array in zip(exe.outputs, arrays, strict=True):
        print(replace(port, shape=array.shape) if isinstance(array, np.ndarray) else port)
        if arguments.output is None:
            print(array)
    return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("artefact", type=Path, metavar="M.plica", help="a compiled model")
    add_inputs(parser, "an input; one option for each")
    parser.add_argument("-o", "--output", type=ending(".npz"), metavar="FILE.npz",
                        help="where to write the outputs")  # fmt: skip
    parser.add_argument("--threads", type=positive, help="number of threads")


COMMAND: Final = Command(
    "run",
    "Run an artefact on arrays from files",
    run,
    configure,
    ("plica run M.plica --input x=x.npy", "plica run M.plica --input x=x.npy -o y.npz"),
)
