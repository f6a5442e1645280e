"""`plica compile MODEL -o M.plica`: from a model to an artefact.

The model is an ONNX file or a script: a Python file, or the text of a module.  `--target` takes the
triple of another machine as well; then the artefact is made, but cannot be run here.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.runtime.error import Diagnostic, Place, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plica.codegen.target import Target
    from plica.ir.module import Module


USUAL: Final = {"riscv64": "+m,+a,+f,+d,+c", "armv7": "+neon,+vfp3"}
"""The features of machines that nobody builds without."""


def read_model(path: Path, dims: Sequence[str] = ()) -> Module:
    """The module in a file; `dims` are words such as `batch=1`, for ONNX files."""
    from plica.ir.script import from_text

    sizes = dict(map(sized, dims))
    if path.suffix == ".onnx":
        from plica.frontend.onnx import from_onnx

        return from_onnx(path, dims=sizes)
    if sizes:
        message = "Only the dims of an ONNX file are given numbers here."
        raise UnsupportedError(Diagnostic("unsupported", message, Place(file=str(path))))
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"The model cannot be read: {error}."
        raise UnsupportedError(Diagnostic("no-source", message, Place(file=str(path)))) from error
    return from_text(source, str(path))


def sized(word: str) -> tuple[str, int]:
    """A dim and its number, as in `batch=1`."""
    name, _, size = word.partition("=")
    if not name or not size.isdecimal():
        message = "A dim is given a number as in batch=1."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "NAME=SIZE", word))
    return name, int(size)


def find_machine(arguments: argparse.Namespace) -> str | Target:
    """The target that was asked for: a name, or a machine described in full."""
    from plica.codegen.target import Target

    name: str = arguments.target
    if "-" not in name:
        return name
    usual = USUAL.get(name.split("-", maxsplit=1)[0], "")
    given = usual if arguments.features is None else arguments.features
    features = tuple(each for each in given.split(",") if each)
    return Target("cpu", name, arguments.cpu or "generic", features)


def run(arguments: argparse.Namespace) -> int:
    """Compile, and write what was asked for."""
    from plica.codegen.llvm import toolchain
    from plica.codegen.target import Target
    from plica.pipeline import assemble, compile, contract_of, find_target, lower
    from plica.runtime import archive
    from plica.runtime.artefact import to_members
    from plica.runtime.host import cores
    from plica.tuning import tune

    module = read_model(arguments.model, arguments.dim)
    machine = find_target(find_machine(arguments))
    count = cores() if arguments.threads is None else arguments.threads
    database: Path | None = arguments.db
    if not isinstance(machine, Target):
        message = "Artefacts are written for processors."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", str(machine)))
    if machine.triple == toolchain.host().triple:
        if arguments.tune is not None:
            database = database or Path("tune.db")
            trials, contract = arguments.tune, arguments.contract
            print(tune(module, machine, trials, database, threads=count, contract=contract))
        made = compile(module, machine, count, database, contract=arguments.contract)
        artefact = made.artefact
        if database is not None:
            print(made.tuning)
    elif database is not None or arguments.tune is not None:
        message = "Schedules for another machine are not tried out, and not chosen, here."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", str(machine)))
    else:
        kept = contract_of(arguments.contract)
        artefact = assemble(lower(module, kept, (), machine), machine, count)
    if arguments.output.suffix == ".so":
        from plica.runtime.export import export

        export(artefact, arguments.output)
    else:
        archive.write(arguments.output, archive.pack(to_members(artefact)))
    size = arguments.output.stat().st_size
    print(f"{arguments.output}: {size} bytes for {artefact.machine}")
    return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="the artefact to write (M.plica), or a library for C (libm.so)",
    )
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE",
                        help="a number for a symbolic dim of an ONNX file; repeatable")  # fmt: skip
    parser.add_argument("--target", default="cpu", help="cpu, or the triple of another machine")
    parser.add_argument("--cpu", help="LLVM's name of the processor, with a triple")
    parser.add_argument("--features", help="LLVM's features, with a triple: +neon,+dotprod")
    parser.add_argument("--threads", type=int, help="how many threads share the work")
    parser.add_argument("--contract", help="what may happen to floats: exact, fused …")
    parser.add_argument("--db", type=Path, help="a tuning database, whose schedules are used")
    parser.add_argument("--tune", type=int, metavar="N",
                        help="search for schedules first, with so many trials")  # fmt: skip


COMMAND: Final = Command(
    "compile",
    "Compile a model to an artefact",
    run,
    configure,
    (
        "plica compile M.onnx -o M.plica",
        "plica compile M.onnx --dim batch=1 --threads 2 -o libm.so",
        "plica compile M.onnx --tune 64 --db tune.db -o M.plica",
        "plica compile M.onnx --target aarch64-unknown-linux-gnu -o M.plica",
    ),
)
