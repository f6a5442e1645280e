"""`plica compile MODEL -o M.plica`: from a model to an artefact."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.model import add_contract, check_sizes, packs_of, read_model
from plica.cli.option import add_dims, add_inputs, ending, positive
from plica.runtime.error import Diagnostic, UnsupportedError

if TYPE_CHECKING:
    from plica.codegen.backend import AnyTarget, Backend
    from plica.ir.graph.module import Module
    from plica.runtime.artefact import Artefact, ArtefactMachine
    from plica.runtime.executable import Executable


def find_machine(arguments: argparse.Namespace) -> str | AnyTarget:
    """The target that was asked for: a name, or a machine described in full."""
    from plica.codegen.backend import TARGETS, is_triple
    from plica.codegen.llvm.processor import described

    name: str = arguments.target
    given = [each for each in ("cpu", "features") if getattr(arguments, each) is not None]
    kind = name.partition(":")[0]
    if given and kind in TARGETS.points() and kind != "cpu":
        raise _of_processors([f"--{each}" for each in given], name)
    if not given and not is_triple(name):
        return name
    return described(name, arguments.cpu, arguments.features)


def _of_processors(options: list[str], target: str) -> UnsupportedError:
    """The refusal of options that say nothing of a target which is no processor of LLVM's."""
    from plica.codegen.backend import backend_named

    given, kind = " and ".join(options), target.partition(":")[0]
    verb = "are" if len(options) > 1 else "is"
    message = f"{given} {verb} for the target 'cpu'; {kind!r} has no such option."
    kinds = backend_named(kind).spellings or (["cuda:sm_80"] if kind == "cuda" else [])
    hint = "Remove the option."
    if kinds:
        hint = f"Remove the option; the architecture is part of the target: {kinds[-1]}."
    found = f"{given} with {target}"
    return UnsupportedError(Diagnostic("unsupported", message, None, "cpu", found, hint))


def run(arguments: argparse.Namespace) -> int:
    """Compiles and writes the requested outputs."""
    from plica.codegen.backend import backend_of
    from plica.pipeline import target_of
    from plica.runtime import archive
    from plica.runtime.artefact import to_members
    from plica.runtime.executable import Executable

    archive.destination(arguments.output)  # before the work rather than after it
    target = target_of(find_machine(arguments))
    backend = backend_of(target)
    backend.check_before(target, runs=False)
    module = read_model(arguments.model, arguments.dim, arguments.input, may_be_open=True)
    library = arguments.output.suffix == ".so"
    if arguments.tune is not None or not backend.opens(target):
        check_sizes(module)  # one code for every size is made for this machine only
    if library and backend.library:
        hint = "Use a file name that ends with .plica."
        raise UnsupportedError(
            Diagnostic("unsupported", backend.library, None, "cpu", str(target), hint)
        )
    if arguments.threads is not None and not backend.threaded:
        raise _of_processors(["--threads"], str(target))
    if backend.native:
        return for_accelerator(module, target, arguments)
    made = here if backend.here(target) else elsewhere
    artefact = made(module, target, backend, arguments)
    if isinstance(artefact, Executable) and not library:
        artefact.save(arguments.output)
        machine = _machine_of(artefact)
    else:
        whole = artefact.artefact if isinstance(artefact, Executable) else artefact
        machine = whole.machine
        if library:
            from plica.runtime.export import export

            export(whole, arguments.output)
        elif arguments.output.suffix == ".c":
            from plica.runtime.c_source import export_source

            export_source(whole, arguments.output)
        else:
            archive.write(arguments.output, archive.pack(to_members(whole)))
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes for {machine}")
    return 0


def here(
    module: Module, target: AnyTarget, backend: Backend, arguments: argparse.Namespace
) -> Artefact | Executable:
    """The artefact for this machine, tuned on request; with sizes known only at run time, or lists
    in the interface, the executable, which is saved as a whole."""
    from plica.pipeline import compile
    from plica.runtime.host import cores
    from plica.runtime.selecting_executable import SelectingExecutable
    from plica.runtime.staged.executable import StagedExecutable

    count = cores() if arguments.threads is None else arguments.threads
    database = tuned_first(module, target, arguments, count)
    contract, validate = arguments.contract, arguments.validate
    made = compile(module, target, count, database, packs=packs_of(arguments),
                   contract=contract, validate=validate)  # fmt: skip
    if validate:
        print("validated: every kernel does what its stages say")
    if database is not None:
        print(made.tuning)
    return made if isinstance(made, StagedExecutable | SelectingExecutable) else made.artefact


def _machine_of(of: Executable) -> ArtefactMachine:
    """The machine that the parts of an executable are for."""
    from plica.runtime.selecting_executable import SelectingExecutable
    from plica.runtime.staged.executable import StagedExecutable

    inside = of.selector.current() if isinstance(of, SelectingExecutable) else of
    return (inside.segments[0] if isinstance(inside, StagedExecutable) else inside).artefact.machine


def elsewhere(
    module: Module, target: AnyTarget, backend: Backend, arguments: argparse.Namespace
) -> Artefact:
    """The artefact for a machine that need not be here, unless schedules are searched for on it."""
    from plica.codegen.choices import table
    from plica.pipeline import assemble, contract_of, lower, packs_of as allowed, read_records
    from plica.pipeline.compiled import validate_for
    from plica.runtime.host import cores
    from plica.runtime.store import user_store

    if arguments.tune is not None and backend.threaded:
        message = "Schedules for another machine cannot be measured on this one."
        hint = "plica tune --pool measures on the devices of a pool."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", str(target), hint))
    count = cores() if arguments.threads is None else arguments.threads
    database = tuned_first(module, target, arguments, count)
    records = None
    if database is not None:
        target = backend.with_threads(target, count)
        records = read_records(database, target)
    contract = contract_of(arguments.contract)
    lowered = lower(module, contract, allowed(packs_of(arguments), contract), target, records)
    if arguments.validate:
        validate_for(lowered, contract, target, records)
        print("validated: every kernel does what its stages say")
    if records is not None:
        print(table(lowered.tuning))
    artefact: Artefact = assemble(lowered, target, count if backend.threaded else 1, user_store())
    return artefact


def tuned_first(
    module: Module, target: AnyTarget, arguments: argparse.Namespace, threads: int
) -> Path | None:
    """The tuning database to use, after a search on request."""
    from plica.tuning import tune

    database: Path | None = arguments.db
    if arguments.tune is None:
        return database
    database = database or Path("tune.db")
    contract, packs = arguments.contract, packs_of(arguments)
    print(tune(module, target, arguments.tune, database, threads=threads, packs=packs,
               contract=contract))  # fmt: skip
    return database


def for_accelerator(module: Module, target: AnyTarget, arguments: argparse.Namespace) -> int:
    """The artefact for an accelerator; prints what runs where."""
    from plica.pipeline import compile
    from plica.runtime.host import cores

    database = tuned_first(module, target, arguments, arguments.threads or cores())
    executable = compile(module, target, arguments.threads, database, packs=packs_of(arguments),
                   contract=arguments.contract, validate=arguments.validate)  # fmt: skip
    executable.save(arguments.output)
    print(executable.source("placement"))
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes for {target}")
    return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    parser.add_argument(
        "-o",
        "--output",
        type=ending(".plica", ".so", ".c"),
        required=True,
        metavar="FILE",
        help="the artefact to write (M.plica), or a library for C (libmodel.so)",
    )
    add_dims(parser)
    add_inputs(parser, "fix an input that decides shapes to a value; repeatable")
    parser.add_argument(
        "--target",
        default="cpu",
        help="cpu, the triple of another machine, cuda, cuda:sm_80 …, or accel",
    )
    parser.add_argument("--cpu", help="LLVM's name of the processor: haswell")
    parser.add_argument("--features", help="LLVM's features: --features=-avx512f,+fma")
    parser.add_argument("--threads", type=positive, help="number of threads")
    add_contract(parser)
    parser.add_argument("--validate", action="store_true",
                        help="compare every kernel with its stages")  # fmt: skip
    parser.add_argument("--db", type=Path, help="use the schedules of this tuning database")
    parser.add_argument("--tune", type=positive, metavar="N",
                        help="search for schedules first, with N trials")  # fmt: skip


COMMAND: Final = Command(
    "compile",
    "Compile a model to an artefact",
    run,
    configure,
    (
        "plica compile M.onnx -o M.plica",
        "plica compile M.onnx --dim batch=1 --threads 2 -o libmodel.so",
        "plica compile M.onnx --input shape=shape.npy -o M.plica",
        "plica compile M.onnx --validate -o M.plica",
        "plica compile M.onnx --tune 64 --db tune.db -o M.plica",
        "plica compile M.onnx --target aarch64-unknown-linux-gnu -o M.plica",
        "plica compile M.onnx --target cuda:sm_90 -o M.plica",
    ),
)
