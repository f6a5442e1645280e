"""`plica fuzz torch`: random torch programs, compared with torch."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.kind import FuzzKind, Say, option

if TYPE_CHECKING:
    import torch

    from plica.cli.fuzz.kind import Report

EPILOG: Final = """\
examples:
  plica fuzz torch --examples 500
  plica fuzz torch --way torch.compile --seed 7
"""
WAYS: Final = ("plica.compile", "torch.compile")


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


def check(arguments: argparse.Namespace) -> None:
    """Refuse to compare with torch where it is not installed."""
    from plica.runtime.error import Diagnostic, UnsupportedError

    if importlib.util.find_spec("torch") is None:
        message = "Programs are compared with torch, which is not installed."
        hint = "Install it: pip install torch."
        raise UnsupportedError(Diagnostic("missing-tool", message, None, "torch", None, hint))


def fuzz_torch(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Programs compiled in the requested ways, in rotation."""
    import torch

    from plica.frontend.torch.fuzz import fuzz

    torch.set_num_threads(1)
    every = {"plica.compile": exported, "torch.compile": by_dynamo}
    ways = {name: every[name] for name in WAYS if not arguments.way or name in arguments.way}
    return fuzz(ways, examples, arguments.seed, first=first, say=say)


def every() -> Mapping[str, Iterable[str]]:
    """All functions of the table that have one path."""
    from plica.frontend.torch.fuzz.row import ANY, FLOATS

    paths = [each for each in (*ANY, *FLOATS) if each.startswith("torch.")]
    return {"calls": paths}


def summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """Which functions were called, and why programs were refused."""
    ways = ", ".join(f"{count} by {name}" for name, count in report["ways"].items())
    calls, refused = report["calls"], report["refused"]
    counted = (
        f"{report.examples} programs, seed {report.seed} ({ways}): {sum(calls.values())} calls of "
        f"{len(calls)} functions; {sum(refused.values())} refused, {report.number('rounded')} "
        "differ by rounding alone."
    )
    return [counted, *[f"Refused: {why} ({times})" for why, times in refused.items()]]


KIND: Final = FuzzKind(
    "torch",
    "programs",
    "torch programs, exported and by torch.compile, against torch",
    EPILOG,
    fuzz_torch,
    summary,
    "All give what torch gives.",
    goal=2_000,
    together=10,
    options=(
        option("--way", action="append", default=[], choices=WAYS,
               help="compile in this way (both, by turns)"),
    ),
    check=check,
    every=every,
    needs=("torch",),
)  # fmt: skip
