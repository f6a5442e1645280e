"""`plica compile MODEL -o M.plica`: from a model to an artefact.

The model is an ONNX file or a script: a Python file, or the text of a module.  `--target` takes the
triple of another machine as well; then the artefact is made, but cannot be run here.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command
from plica.cli.model import check_sizes, read_model
from plica.cli.option import add_dims, add_inputs, positive
from plica.runtime.error import Diagnostic, UnsupportedError

if TYPE_CHECKING:
    from plica.codegen.accel.target import AccelTarget
    from plica.codegen.cuda.target import GpuTarget
    from plica.codegen.target import Target
    from plica.ir.module import Module
    from plica.runtime.artefact import Artefact


USUAL: Final = {"riscv64": "+m,+a,+f,+d,+c", "armv7": "+neon,+vfp3"}
"""The features of machines that nobody builds without."""


def find_machine(arguments: argparse.Namespace) -> str | Target:
    """The target that was asked for: a name, or a machine described in full."""
    from attrs import evolve

    from plica.codegen.llvm import toolchain
    from plica.codegen.target import Target, parse

    name: str = arguments.target
    given_words = [each for each in ("cpu", "features") if getattr(arguments, each) is not None]
    if name.partition(":")[0] == "cuda" and given_words:
        raise _of_processors([f"--{each}" for each in given_words], name)
    if "-" not in name or " " in name:
        if arguments.cpu is None and arguments.features is None:
            return name
        machine = parse(name, toolchain.host())
        added = tuple(each for each in (arguments.features or "").split(",") if each)
        # Another processor has features of its own; of this one, all but those named are kept.
        kept = machine.features if arguments.cpu is None else ()
        names = {each[1:] for each in added}
        return evolve(
            machine,
            cpu=arguments.cpu or machine.cpu,
            features=(*[each for each in kept if each[1:] not in names], *added),
        )
    usual = USUAL.get(name.split("-", maxsplit=1)[0], "")
    given = usual if arguments.features is None else arguments.features
    features = tuple(each for each in given.split(",") if each)
    return Target("cpu", name, arguments.cpu or "generic", features)


def _of_processors(options: list[str], target: str) -> UnsupportedError:
    """The refusal of options that say nothing of a GPU."""
    given = " and ".join(options)
    message = f"{given} {'are' if len(options) > 1 else 'is'} for processors; a GPU is not one."
    hint = "Leave the option away; the kind of GPU is part of the target: cuda:sm_80."
    expected = "no options of a processor"
    found = f"{given} with {target}"
    return UnsupportedError(Diagnostic("unsupported", message, None, expected, found, hint))


def run(arguments: argparse.Namespace) -> int:
    """Compile, and write what was asked for."""
    from attrs import evolve

    from plica.codegen.accel.target import AccelTarget
    from plica.codegen.cuda.target import GpuTarget
    from plica.codegen.llvm import toolchain
    from plica.codegen.target import Target
    from plica.pipeline import (
        assemble,
        compile,
        contract_of,
        lower,
        read_records,
        target_of,
    )
    from plica.runtime import archive
    from plica.runtime.artefact import to_members
    from plica.runtime.host import cores, features, lacking
    from plica.search.choice import table
    from plica.tuning import tune

    archive.destination(arguments.output)  # before the work rather than after it
    module = read_model(arguments.model, arguments.dim, arguments.input, may_be_open=True)
    machine = target_of(find_machine(arguments))
    count = cores() if arguments.threads is None else arguments.threads
    database: Path | None = arguments.db
    plain = arguments.tune is None and arguments.output.suffix != ".so"
    if not (plain and isinstance(machine, Target) and machine.triple == toolchain.host().triple):
        check_sizes(module)  # one code for every size is made for this machine only
    if isinstance(machine, AccelTarget):
        return for_accelerator(module, machine, arguments)
    if isinstance(machine, GpuTarget):
        artefact = for_gpu(module, machine, arguments)
    elif machine.triple == toolchain.host().triple and not lacking(
        machine.architecture, machine.features, features()
    ):
        if arguments.tune is not None:
            database = database or Path("tune.db")
            trials, contract = arguments.tune, arguments.contract
            print(tune(module, machine, trials, database, threads=count, contract=contract))
        made = compile(module, machine, count, database, contract=arguments.contract)
        artefact = made.artefact
        if database is not None:
            print(made.tuning)
    elif arguments.tune is not None:
        message = "Schedules for another machine cannot be tried out on this one."
        hint = "plica tune --pool measures on the devices of a pool."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", str(machine), hint))
    else:
        kept, where = contract_of(arguments.contract), machine
        records = None
        if database is not None:
            where = evolve(machine, cores=count)
            records = read_records(database, where)
        lowered = lower(module, kept, (), where, records)
        artefact = assemble(lowered, machine, count)
        if records is not None:
            print(table(lowered.tuning))
    if arguments.output.suffix == ".so":
        from plica.runtime.export import export

        export(artefact, arguments.output)
    else:
        archive.write(arguments.output, archive.pack(to_members(artefact)))
    size = arguments.output.stat().st_size
    print(f"{arguments.output}: {size} bytes for {artefact.machine}")
    return 0


def for_accelerator(module: Module, target: AccelTarget, arguments: argparse.Namespace) -> int:
    """The artefact for an accelerator beside this processor; what runs where is shown."""
    from plica.pipeline import compile
    from plica.tuning import tune

    if arguments.output.suffix == ".so":
        message = "For an accelerator an artefact is written: a library cannot hold the device."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "-o M.plica", "a library"))
    database = arguments.db
    if arguments.tune is not None:
        database = database or Path("tune.db")
        print(tune(module, target, arguments.tune, database))
    made = compile(module, target, arguments.threads, database, contract=arguments.contract)
    made.save(arguments.output)
    print(made.source("placement"))
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes for {target}")
    return 0


def for_gpu(module: Module, target: GpuTarget, arguments: argparse.Namespace) -> Artefact:
    """The artefact for a GPU, which need not be here unless schedules are searched for on it."""
    from plica.pipeline import assemble_for_gpu, contract_of, lower, read_records
    from plica.runtime.store import user_store
    from plica.search.choice import table
    from plica.tuning import tune

    if arguments.output.suffix == ".so":
        message = "Libraries for C are made for processors."
        hint = "Give a name that ends with .plica."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", str(target), hint))
    if arguments.threads is not None:
        raise _of_processors(["--threads"], str(target))
    database: Path | None = arguments.db
    if arguments.tune is not None:
        database = database or Path("tune.db")
        print(tune(module, target, arguments.tune, database, contract=arguments.contract))
    records = None if database is None else read_records(database, target)
    lowered = lower(module, contract_of(arguments.contract), (), target, records)
    if records is not None:
        print(table(lowered.tuning))
    return assemble_for_gpu(lowered, target, user_store())


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a script")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="the artefact to write (M.plica), or a library for C (libmodel.so)",
    )
    add_dims(parser)
    add_inputs(parser, "the value of an input that decides shapes, and is none then; repeatable")
    parser.add_argument(
        "--target",
        default="cpu",
        help="cpu, the triple of another machine, cuda, cuda:sm_80 …, or accel",
    )
    parser.add_argument("--cpu", help="LLVM's name of the processor: haswell")
    parser.add_argument("--features", help="LLVM's features: --features=-avx512f,+fma")
    parser.add_argument("--threads", type=positive, help="how many threads share the work")
    parser.add_argument("--contract", help="what may happen to floats: exact, fused …")
    parser.add_argument("--db", type=Path, help="a tuning database, whose schedules are used")
    parser.add_argument("--tune", type=positive, metavar="N",
                        help="search for schedules first, with so many trials")  # fmt: skip


COMMAND: Final = Command(
    "compile",
    "Compile a model to an artefact",
    run,
    configure,
    (
        "plica compile M.onnx -o M.plica",
        "plica compile M.onnx --dim batch=1 --threads 2 -o libmodel.so",
        "plica compile M.onnx --input shape=shape.npy -o M.plica",
        "plica compile M.onnx --tune 64 --db tune.db -o M.plica",
        "plica compile M.onnx --target aarch64-unknown-linux-gnu -o M.plica",
        "plica compile M.onnx --target cuda:sm_90 -o M.plica",
    ),
)
