"""`plica quantise M.onnx --samples x.npz -o M8.plica`: a model in integers of 8 bits, compiled."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.option import positive
from plica.runtime.error import Diagnostic, Place, UnsupportedError

if TYPE_CHECKING:
    from plica.runtime.port import Array


def quantise(arguments: argparse.Namespace) -> int:
    """Calibrate on the samples, compile what comes out, and say what stayed in floats."""
    from plica.cli.model import check_sizes, read
    from plica.pipeline import compile
    from plica.quantising import quantised
    from plica.runtime import archive

    archive.destination(arguments.output)
    module = read(arguments.model, {}, {}).module
    check_sizes(module)
    samples = None if arguments.samples is None else [read_samples(arguments.samples)]
    found = quantised(
        module,
        samples,
        per_channel=False if arguments.per_tensor else None,
        symmetric=not arguments.asymmetric,
        method=arguments.method,
        power_of_two=arguments.power_of_two,
        keep=arguments.keep,
    )
    compile(found.module, threads=arguments.threads).save(arguments.output)
    print(found.report)
    print(f"written to {arguments.output}")
    return 0


def read_samples(path: Path) -> dict[str, Array]:
    """The arrays of a file, by the names of inputs."""
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as members:
            return {name: members[name] for name in members.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        message = f"The samples cannot be read: {error}."
        hint = "Write them with numpy.savez(path, input_name=array)."
        place = Place(file=str(path))
        raise UnsupportedError(
            Diagnostic("no-source", message, place, "an .npz file", None, hint)
        ) from error


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    add("--samples", type=Path, metavar="FILE.npz", help="inputs by name, or many along one axis more")  # fmt: skip  # noqa: E501
    add("-o", "--output", type=Path, required=True, metavar="M.plica", help="where it goes")
    add("--method", choices=("max", "percentile", "mse", "kl"), default="max", help="how far numbers are kept (max)")  # fmt: skip  # noqa: E501
    add("--asymmetric", action="store_true", help="unsigned bytes with a zero point")
    add("--per-tensor", action="store_true", help="one scale for a whole weight")
    add("--power-of-two", action="store_true", help="a change of scale is a shift")
    add("--keep", action="append", default=[], metavar="WORD", help="first, last, or an operator that stays in floats")  # fmt: skip  # noqa: E501
    add("--threads", type=positive, help="how many threads share the work")


COMMAND: Final = Command(
    "quantise",
    "Turn a model into one of bytes, and compile it",
    quantise,
    configure,
    ("plica quantise M.onnx --samples x.npz -o M8.plica",),
)
