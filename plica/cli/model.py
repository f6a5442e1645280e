"""Models on the command line: the options that several commands share, and what they mean."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from plica.cli.compile_ import read_model, sized
from plica.cli.run import read_array
from plica.runtime.error import Diagnostic, UnsupportedError

if TYPE_CHECKING:
    from plica.codegen.target import Target
    from plica.frontend.onnx.origin import Reading
    from plica.ir.module import Module
    from plica.report.study import Compiled
    from plica.rewrite.pack import Pack
    from plica.runtime.port import Array


def add_model(parser: argparse.ArgumentParser, packs: bool = True) -> None:
    """The model, and how it is compiled."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE",
                        help="a number for a symbolic dim of an ONNX file; repeatable")  # fmt: skip
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy",
                        help="an input; random numbers for those not given")  # fmt: skip
    parser.add_argument("--threads", type=positive, default=1, help="how many share the work (1)")
    parser.add_argument("--contract", help="what may happen to floats: exact, fused …")
    if packs:
        parser.add_argument("--packs", action="append", default=[], metavar="PACK|FILE.py",
                            help="rules that rewrite the model first; repeatable")  # fmt: skip


def positive(text: str) -> int:
    """A number of at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def read(arguments: argparse.Namespace) -> Reading:
    """The module, with the names of its nodes where it is an ONNX model."""
    from plica.frontend.onnx.origin import Reading, read_onnx

    path: Path = arguments.model
    if path.suffix == ".onnx":
        return read_onnx(path, dims=dict(map(sized, arguments.dim)))
    return Reading(read_model(path, arguments.dim), {})


def packs_of(arguments: argparse.Namespace) -> tuple[Pack, ...]:
    """The packs that were named."""
    from plica.cli.rules import named_packs

    return tuple(pack for name in getattr(arguments, "packs", ()) for pack in named_packs(name))


def inputs_of(arguments: argparse.Namespace) -> dict[str, Array]:
    """The arrays that were given, by name."""
    return dict(map(read_array, arguments.input))


def compile_model(arguments: argparse.Namespace) -> Compiled:
    """The model compiled for this machine, and all that is known on the way."""
    from plica.pipeline import contract_of
    from plica.pipeline import packs_of as allowed
    from plica.report.study import compiled

    found = read(arguments)
    _check_sizes(found.module)
    contract = contract_of(arguments.contract)
    packs = allowed(packs_of(arguments), contract)
    name, threads = arguments.model.stem, arguments.threads
    return compiled(name, found, here(), threads=threads, contract=contract, packs=packs)


def _check_sizes(module: Module) -> None:
    """Refuse sizes that are not numbers: what is measured here is one program."""
    from plica.ir.sized import has_open_dims, open_dims

    if not has_open_dims(module):
        return
    names = [str(each.name) for each in open_dims(module)]
    message = "The model leaves sizes open, and needs numbers for them here."
    hint = "Give them: " + " ".join(f"--dim {name}=1" for name in names) + "."
    raise UnsupportedError(
        Diagnostic("unsupported", message, None, "numbers", ", ".join(names), hint)
    )


def here() -> Target:
    """This machine."""
    from plica.pipeline import find_target

    return find_target("cpu")
