"""`plica quantise M.onnx --samples x.npz -o M8.plica`: a model in integers of 8 bits, compiled."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.option import add_dims, ending, positive
from plica.runtime.error import Diagnostic, InputError, Place

if TYPE_CHECKING:
    from plica.runtime.port import Array


def quantise(arguments: argparse.Namespace) -> int:
    """Calibrates on the samples, compiles the result, and reports what stayed in floats."""
    from plica.cli.model import check_sizes, read
    from plica.codegen.backend import backend_of
    from plica.pipeline import compile, target_of
    from plica.quantising import quantised
    from plica.runtime import archive

    archive.destination(arguments.output)
    target = target_of(arguments.target)
    backend = backend_of(target)
    backend.check_before(target, runs=True)
    shifts = arguments.power_of_two or backend.shifts  # all that it can do
    module = read(arguments.model, arguments.dim, {}).module
    check_sizes(module)
    samples = None
    if arguments.samples is not None:
        names = [str(param.name) for param in module.main_function().params]
        samples = [read_samples(arguments.samples, names)]
    found = quantised(
        module,
        samples,
        per_channel=False if arguments.per_tensor else None,
        symmetric=not arguments.asymmetric,
        method=arguments.method,
        power_of_two=shifts,
        keep=arguments.keep,
    )
    executable = compile(found.module, target, threads=arguments.threads)
    executable.save(arguments.output)
    print(found.report)
    if backend.native:
        print(executable.source("placement"), end="")
    print(f"written to {arguments.output}")
    return 0


def read_samples(path: Path, inputs: Sequence[str]) -> dict[str, Array]:
    """The arrays of a file, by input name; a single array is for the only input."""
    import zipfile
    import zlib

    import numpy as np

    place = Place(file=str(path))
    hint = "Write them with numpy.savez(path, input_name=array)."
    try:
        if isinstance(members := np.load(path, allow_pickle=False), np.ndarray):
            if len(inputs) != 1:
                message = "One array of samples is not enough: the model has several inputs."
                expected = f"an .npz file with {', '.join(inputs)}"
                raise InputError(
                    Diagnostic("input-missing", message, place, expected, "one array", hint)
                )
            return {inputs[0]: members}
        with members:
            return {name: members[name] for name in members.files}
    except OSError as error:
        message = f"The samples cannot be read: {error.strerror or 'the file is damaged'}."
        raise InputError(
            Diagnostic("no-source", message, place, "an .npz or .npy file", None, hint)
        ) from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        message = "The file of samples has no numeric arrays, or is damaged."
        raise InputError(
            Diagnostic("input-type", message, place, "an .npz or .npy file", None, hint)
        ) from error


SAMPLES: Final = (
    "an .npz file of inputs by name, or with one more axis for many samples; "
    "an .npy file for one input"
)
TARGETS: Final = "the target: cpu, cuda, accel, accel:osdi … (cpu); accel implies --power-of-two"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    add("--samples", type=Path, metavar="FILE", help=SAMPLES)
    add("-o", "--output", type=ending(".plica"), required=True, metavar="M.plica",
        help="the artefact to write")  # fmt: skip
    add("--target", default="cpu", metavar="TARGET", help=TARGETS)
    add_dims(parser)
    add(
        "--method",
        choices=("max", "percentile", "mse", "kl"),
        default="max",
        help="how the clipping range is chosen (max)",
    )
    add("--asymmetric", action="store_true", help="unsigned bytes with a zero point")
    add("--per-tensor", action="store_true", help="one scale per weight")
    add(
        "--power-of-two",
        action="store_true",
        help="scales are powers of two, so that requantisation is a shift; for accelerators",
    )
    add(
        "--keep",
        action="append",
        default=[],
        metavar="WORD",
        help="what stays in floats: first, last, or an operator",
    )
    add("--threads", type=positive, help="number of threads")


COMMAND: Final = Command(
    "quantise",
    "Quantise a model to 8 bits and compile it",
    quantise,
    configure,
    (
        "plica quantise M.onnx --samples x.npz -o M8.plica",
        "plica quantise M.onnx --dim batch=1 --samples x.npy --target accel -o M8.plica",
    ),
)
