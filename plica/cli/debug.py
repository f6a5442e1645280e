"""`plica debug MODEL`: compares operators with the interpreter; names the first that differs.

Exit codes: 0 where everything agrees, 3 where something differs.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import DIFFERS, Command, json_text
from plica.cli.model import add_model, compile_model
from plica.cli.option import ending, read_arrays
from plica.cli.progress import progress

if TYPE_CHECKING:
    from plica.report.compare import Compared, Comparison


def run(arguments: argparse.Namespace) -> int:
    """Compare, and say which rule or which kernel is wrong."""
    from plica.bench.sample import sample
    from plica.report.compare import compare

    with progress(arguments.model.name, total=5) as say:
        say("compiling")
        given = read_arrays(arguments.input)
        model = compile_model(arguments, given)
        arrays = sample(model.executable.inputs, given, arguments.seed)
        comparison = compare(model, arrays, arguments.tolerance, progress=say)
    if arguments.dump is not None:
        from plica.report.compare import archive_of, kernel_tensors, node_tensors
        from plica.runtime import archive

        tensors = {**node_tensors(model, arrays), **kernel_tensors(comparison)}
        archive.write(arguments.dump, archive_of(tensors))
    if arguments.json:
        print(json_text(to_data(comparison)))
    else:
        show(comparison)
    return 0 if comparison.agrees else DIFFERS


def to_data(of: Comparison) -> dict[str, Any]:
    """The comparison as JSON data."""
    from attrs import asdict

    return {
        "agrees": of.agrees,
        "tolerance": of.tolerance,
        "output": of.output,
        "step": None if of.step is None else asdict(of.step),
        "kernel": None if of.kernel is None else kernel_data(of.kernel),
        "kernels": [kernel_data(kernel) for kernel in of.kernels],
    }


def kernel_data(of: Compared) -> dict[str, Any]:
    """A kernel as JSON holds it, without its tensor."""
    from attrs import asdict, fields

    return asdict(of, filter=lambda field, _: field is not fields(type(of)).found)


def show(of: Comparison) -> None:
    """Prints the comparison."""
    worst = max([kernel.difference for kernel in of.kernels], default=0.0)
    if of.step is not None:
        kind = "pass" if of.step.is_pass else "rule"
        which = f"step {of.step.number} of {of.step.steps}"
        print(
            f"The {kind} {of.step.rule} changes what the model means: {which}, "
            f"difference {of.step.difference:.1e}."
        )
        print(f"  where: {place(of.step.nodes, of.step.operators)}")
    if of.kernel is not None:
        print(
            f"The kernel {of.kernel.number} ({of.kernel.source}) computes something else: "
            f"difference {of.kernel.difference:.1e}."
        )
        print(f"  where: {place(of.kernel.nodes, of.kernel.operators)}")
    if of.agrees:
        print(
            f"All {len(of.kernels)} kernels agree with the interpreter, "
            f"to {worst:.1e} of the largest number; the outputs to {of.output:.1e}."
        )
    elif of.step is None and of.kernel is None:
        print(
            f"Every kernel by itself agrees, but the outputs differ by {of.output:.1e}: "
            "errors add up, or kernels overwrite each other's memory."
        )
    else:
        print(f"  outputs: a difference of {of.output:.1e}, of {of.tolerance:.1e} allowed")


def place(nodes: tuple[str, ...], operators: tuple[str, ...]) -> str:
    """The origin of a value: nodes of the model, or operators if nodes have no names."""
    named = ", ".join(nodes) or "an operator without a name"
    return f"{named} ({', '.join(operators)})" if operators else named


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser)
    parser.set_defaults(allow_refuted=True)  # this command finds what a wrong rule does
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="the largest allowed difference, relative to the largest value",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    parser.add_argument("--dump", type=ending(".npz"), metavar="FILE.npz",
                        help="write the tensors of all nodes and kernels")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


COMMAND: Final = Command(
    "debug",
    "Find the first rule, pass or kernel that differs from the interpreter",
    run,
    configure,
    (
        "plica debug M.onnx",
        "plica debug M.onnx --packs mine.py --contract exact",
        "plica debug M.onnx --input x=x.npy --json",
        "plica debug M.onnx --dump tensors.npz",
    ),
)
