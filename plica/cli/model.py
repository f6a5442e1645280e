"""Models on the command line: the options that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import shlex
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plica.cli.option import add_dims, add_inputs, positive, read_arrays
from plica.cli.program import declarations
from plica.runtime.archive import is_sealed
from plica.runtime.error import (
    Diagnostic,
    InputError,
    Place,
    PlicaError,
    UnsupportedError,
    unreadable,
)

if TYPE_CHECKING:
    from plica.codegen.backend import AnyTarget
    from plica.frontend.onnx.origin import OnnxReading
    from plica.ir.graph.module import Module
    from plica.report.study import StudiedModel
    from plica.rewrite.pack import Pack
    from plica.runtime.port import Array


CHECKED_INSTANCES: Final = 20  # on which the rules of a user's pack are tried before it is used
MODELS: Final = "an .onnx file, or a program of the graph language as text"
NUMBERS_IN_SCRIPT: Final = "Write numbers in place of the dims in the script."


def add_contract(parser: argparse.ArgumentParser) -> None:
    """`--contract` and `--packs`: what may happen to floats, and rules of one's own."""
    parser.add_argument("--contract", help="float contract: exact, fused …")
    parser.add_argument("--packs", action="append", default=[], metavar="PACK|FILE.py",
                        help="rules that rewrite the model first; repeatable")  # fmt: skip
    parser.add_argument("--allow-refuted", action="store_true",
                        help="only warn of packs with a rule that is refuted")  # fmt: skip


def add_model(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """The model, and how it is compiled."""
    count: Any = {"nargs": "?"} if optional else {}
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="an ONNX file, or a script", **count
    )
    add_dims(parser)
    add_inputs(parser, "an input; random if not given")
    parser.add_argument("--threads", type=positive, default=1, help="number of threads (1)")
    add_contract(parser)


def read(
    path: Path, dims: Mapping[str, int], given: Mapping[str, Array], fix_all: bool = False
) -> OnnxReading:
    """The module in a file, with the names of its nodes where it is an ONNX model.

    Of the arrays that are given those become part of the model whose values decide shapes, so that
    it is one program; or all, and then sizes may become known while it runs.
    """
    from plica.frontend.offered import front_end_of
    from plica.frontend.onnx.node import NeedsValue
    from plica.frontend.onnx.origin import OnnxReading, read_onnx

    if (reader := front_end_of(path)) is not None:
        return OnnxReading(reader.read(path), {})
    if path.suffix != ".onnx":
        return OnnxReading(_script(path, dims, given if fix_all else {}), {})
    fixed: dict[str, Any] = dict(given) if fix_all else {}
    while True:
        try:
            onnx_reading = read_onnx(path, dims=dims, fixed=fixed, measures=fix_all)
        except NeedsValue as error:
            more = [name for name in error.inputs if name in given and name not in fixed]
            if not more:
                raise
            fixed |= {name: given[name] for name in more}
        else:
            _check_names(onnx_reading, given)
            return onnx_reading


def _script(path: Path, dims: Mapping[str, int], given: Mapping[str, Array]) -> Module:
    from plica.ir.text.script import from_text
    from plica.pipeline.kernel_main import check_main

    if dims or given:
        message = "--dim and --input apply to ONNX files only."
        place = Place(file=str(path))
        raise UnsupportedError(
            Diagnostic("unsupported", message, place, "M.onnx", suggestion=NUMBERS_IN_SCRIPT)
        )
    place = Place(file=str(path))
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnsupportedError(unreadable(path, MODELS, error, ".onnx", ".py")) from error
    except UnicodeDecodeError as error:
        if is_sealed(path.read_bytes()):
            message = "This is a compiled artefact, not a model."
            hint = (
                "Give the model it was compiled from; plica run, verify and explore take artefacts."
            )
            problem = Diagnostic("no-source", message, place, MODELS, "an artefact", hint)
        else:
            problem = Diagnostic("no-source", "This is not a model.", place, MODELS, "bytes")
        raise UnsupportedError(problem) from error
    try:
        module = from_text(declarations(source), str(path))
    except PlicaError as error:
        if path.suffix == ".py" or error.diagnostics[0].code != "syntax":
            raise
        problem = Diagnostic("no-source", "This is not a model.", place, MODELS, "other text")
        raise UnsupportedError(problem) from error
    try:
        check_main(module)
    except UnsupportedError as error:
        raise error.placed(place) from None
    return module


def read_model(
    path: Path, dims: Mapping[str, int], given: Mapping[str, str], *, may_be_open: bool = False
) -> Module:
    """The module in a file; its sizes are numbers unless they may be open, and arrays in files are
    part of it."""
    module = read(path, dims, read_arrays(given), fix_all=True).module
    if not may_be_open:
        check_sizes(module, is_script=path.suffix != ".onnx")
    return module


def _check_names(of: OnnxReading, given: Mapping[str, Array]) -> None:
    """Refuses an array for an unknown input."""
    there = [str(param.name) for param in of.module.main_function().params] + list(of.fixed)
    wrong = [
        Diagnostic("input-unknown", f"There is no input {name!r}.", None, ", ".join(there), name)
        for name in given
        if name not in there
    ]
    if wrong:
        raise InputError(wrong[0], *wrong[1:])


def packs_of(arguments: argparse.Namespace) -> tuple[Pack, ...]:
    """The packs that were named; those of a user are refused if a few instances refute a rule."""
    from plica.cli.named_pack import named_packs
    from plica.core import RuleRefused

    packs = {pack: name for name in arguments.packs for pack in named_packs(name)}
    wrong = [diagnostic for pack, name in packs.items() for diagnostic in _refuted(pack, name)]
    if wrong and not arguments.allow_refuted:
        raise RuleRefused(wrong[0], *wrong[1:])
    for diagnostic in wrong:
        warnings.warn(str(diagnostic), RuntimeWarning, stacklevel=2)
    return tuple(packs)


def _refuted(pack: Pack, name: str) -> list[Diagnostic]:
    """The refuted rules of a pack that is not Plica's own, each tried on a few instances."""
    from plica.rewrite.check.run import check
    from plica.rewrite.check.verdict import Refuted
    from plica.rewrite.packs import OWN

    verdicts = () if pack.name in OWN else check(pack, examples=CHECKED_INSTANCES)
    places = {rule.name: rule.place for rule in pack}
    hint = f"plica rules check {name} shows a test that fails; --allow-refuted compiles with it."
    return [
        Diagnostic("refuted-rule", f"A rule of {name} is wrong.", places[verdict.rule],
                   "sides that are equal on every instance", str(verdict), hint)
        for verdict in verdicts if isinstance(verdict, Refuted)
    ]  # fmt: skip


def compile_model(arguments: argparse.Namespace, given: Mapping[str, Array]) -> StudiedModel:
    """The model compiled for this machine, and all that is known on the way."""
    return compile_reading(arguments, read(arguments.model, arguments.dim, given))


def compile_reading(
    arguments: argparse.Namespace, found: OnnxReading, database: Path | None = None
) -> StudiedModel:
    """A model that was read, compiled for this machine, by the schedules of a tuning database."""
    from attrs import evolve

    from plica.codegen.program_kind import without_loops
    from plica.pipeline import contract_of, packs_of as allowed, read_records
    from plica.pipeline.kernel_main import with_main
    from plica.report.study import compiled

    check_sizes(found.module, is_script=arguments.model.suffix != ".onnx")
    found = evolve(found, module=without_loops(with_main(found.module)))  # one program
    contract = contract_of(arguments.contract)
    packs = allowed(packs_of(arguments), contract)
    name, threads = arguments.model.stem, arguments.threads
    records = None if database is None else read_records(database, here())
    return compiled(
        name, found, here(), threads=threads, contract=contract, packs=packs, records=records
    )


def check_sizes(module: Module, *, is_script: bool = False) -> None:
    """Refuses open sizes: the output here is one program."""
    from plica.ir.graph.shape_specialisation import has_open_dims, open_dims

    if not has_open_dims(module):
        return
    names = [str(dim.name) for dim in open_dims(module)]
    message = "The model has open sizes, which need values here."
    hint = "Give them: " + " ".join(f"--dim {shlex.quote(name)}=1" for name in names) + "."
    if is_script:
        hint = NUMBERS_IN_SCRIPT
    raise UnsupportedError(
        Diagnostic("unsupported", message, None, "numbers", ", ".join(names), hint)
    )


def here() -> AnyTarget:
    """This machine."""
    from plica.pipeline import target_of

    return target_of("cpu")
