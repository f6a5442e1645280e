"""`plica fuzz onnx`, `torch` and `stablehlo`: random programs compared with another system."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.kind import FuzzKind, Say, by_template, option, requires
from plica.cli.option import natural
from plica.cli.rules import count

if TYPE_CHECKING:
    import torch
    from onnx import ModelProto

    from plica.cli.fuzz.kind import Report
    from plica.runtime.executable import Executable

WAYS: Final = ("plica.compile", "torch.compile")


def native(model: ModelProto, contract: str | None, threads: int) -> Executable:
    """The freshly compiled model."""
    from plica.pipeline import compile

    return compile(model, threads=threads, contract=contract, cache=False)


def fuzz_onnx(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Models compared with onnxruntime, some of them compiled."""
    from plica.frontend.onnx.fuzz import fuzz

    compiled = native if arguments.native > 0 else None
    every = max(1, arguments.native)
    return fuzz(examples, arguments.seed, compiled, every, first=first, say=say)


def save(arguments: argparse.Namespace, report: Report) -> dict[str, str | None]:
    """Writes the failing model."""
    finding = report.finding
    return {"saved": str(finding.save(arguments.save)) if finding and finding.files else None}


def onnx_summary(report: Report, arguments: argparse.Namespace) -> Iterable[object]:
    """Which operators there were, and what became of models."""
    opsets = sorted(map(int, report["opsets"]))
    versions = f"{opsets[0]} to {opsets[-1]}" if opsets else "none"
    return by_template(
        "{examples} models, seed {seed}: {operators:times} nodes of {operators:kinds} operators, "
        f"versions {versions}, {{batches}} with an open batch, {{late}} with sizes that are known "
        "when they run; {compiled} compiled, {runs} runs compared, {rounded} differ by rounding "
        "alone, {refused:times} refused."
    )(report, arguments)


ONNX: Final = FuzzKind(
    "onnx",
    "models",
    "random ONNX models, interpreted and compiled, against onnxruntime",
    ("--examples 500",
     "--seed 7 --native 4          compile every fourth model too",
     "--save found/                write failing models there"),
    fuzz_onnx,
    onnx_summary,
    "All give what onnxruntime gives.",
    goal=10_000,
    together=15,
    options=(
        option("--native", type=natural, default=1, metavar="K",
               help="compile and run every K-th model too (1; 0: none)"),
        option("--save", type=Path, default=Path(), metavar="FOLDER",
               help="where to write failing models (.)"),
    ),
    after=save,
    needs=("onnx", "onnxruntime"),
)  # fmt: skip


def exported(module: torch.nn.Module) -> Callable[..., Any]:
    """The module exported by torch, and freshly compiled."""
    from plica.pipeline import compile

    return compile(module, threads=1, cache=False)


def by_dynamo(module: torch.nn.Module) -> Callable[..., Any]:
    """The module as `torch.compile` runs it."""
    import torch

    from plica.dynamo import backend

    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(module, backend=backend, dynamic=False)
    return made


def fuzz_torch(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Programs compiled in the requested ways, in rotation."""
    import torch

    from plica.frontend.torch.fuzz import fuzz

    torch.set_num_threads(1)
    every = {"plica.compile": exported, "torch.compile": by_dynamo}
    ways = {name: every[name] for name in WAYS if not arguments.way or name in arguments.way}
    return fuzz(ways, examples, arguments.seed, first=first, say=say)


def torch_calls() -> Mapping[str, Iterable[str]]:
    """All functions of the table that have one path."""
    from plica.frontend.torch.fuzz.row import ANY, FLOATS

    return {"calls": [each for each in (*ANY, *FLOATS) if each.startswith("torch.")]}


TORCH: Final = FuzzKind(
    "torch",
    "programs",
    "torch programs, exported and by torch.compile, against torch",
    ("--examples 500", "--way torch.compile --seed 7"),
    fuzz_torch,
    by_template(
        "{examples} programs, seed {seed} ({ways:by each}): {calls:times} calls of {calls:kinds} "
        "functions; {refused:times} refused, {rounded} differ by rounding alone.",
        refused="Refused",
    ),
    "All give what torch gives.",
    goal=2_000,
    together=10,
    options=(
        option("--way", action="append", default=[], choices=WAYS,
               help="compile in this way (both, by turns)"),
    ),
    check=requires("torch", "Programs are compared with torch, which is not installed."),
    every=torch_calls,
    needs=("torch",),
)  # fmt: skip


def fuzz_stablehlo(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Programs that are written, run by XLA, and read back."""
    from plica.frontend.stablehlo.fuzz import fuzz
    from plica.frontend.stablehlo.fuzz.run import run

    return fuzz(run, examples, arguments.seed, first=first, most=arguments.length, say=say)


STABLEHLO: Final = FuzzKind(
    "stablehlo",
    "programs",
    "programs written as StableHLO, against XLA, and read back",
    ("--examples 500", "--length 2 --seed 7"),
    fuzz_stablehlo,
    by_template(
        "{examples} programs, seed {seed}: {operators:times} operators of {operators:kinds} kinds; "
        "{refused:times} refused, {skipped:times} drawn without a value.",
        refused="Refused",
    ),
    "XLA and the reader compute what all mean.",
    goal=1_000,
    together=10,
    options=(
        option("--length", type=count, default=6, help="operators of each, at most (6)"),
    ),
    check=requires(
        "jax", "Programs are compared with XLA, which comes with jax and is not installed."
    ),
    needs=("jax",),
)  # fmt: skip
