"""`plica fuzz torch`: random programs of torch, held against torch itself."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.fuzz.verb import ToldCase, add_verb, drive, tell

if TYPE_CHECKING:
    import torch

    from plica.frontend.torch.fuzz import TorchFuzzReport

EPILOG: Final = """\
examples:
  plica fuzz torch --examples 500
  plica fuzz torch --way torch.compile --seed 7
"""
WAYS: Final = ("plica.compile", "torch.compile")


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    about = "programs of torch, exported and compiled and by torch.compile, beside torch"
    parser = add_verb(verbs, "torch", "programs", about, EPILOG, fuzz_torch)
    parser.add_argument("--way", action="append", default=[], choices=WAYS,
                        help="compile in this way (both, by turns)")  # fmt: skip


def exported(module: torch.nn.Module) -> Callable[..., Any]:
    """The module exported by torch, and compiled anew."""
    from plica.pipeline import compile

    return compile(module, threads=1, cache=False)


def by_dynamo(module: torch.nn.Module) -> Callable[..., Any]:
    """The module as `torch.compile` runs it."""
    import torch

    from plica.dynamo import backend

    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(module, backend=backend, dynamic=False)
    return made


def fuzz_torch(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a program gives another result than torch, or crashes."""
    from plica.runtime.error import Diagnostic, UnsupportedError

    if importlib.util.find_spec("torch") is None:
        message = "Programs are compared with torch, which is not installed."
        hint = "Install it: pip install torch."
        raise UnsupportedError(Diagnostic("missing-tool", message, None, "torch", None, hint))
    return drive("torch", "programs", arguments, _fuzzed, _print)


def _fuzzed(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> TorchFuzzReport:
    import torch

    from plica.frontend.torch.fuzz import fuzz

    torch.set_num_threads(1)
    every = {"plica.compile": exported, "torch.compile": by_dynamo}
    ways = {name: every[name] for name in WAYS if not arguments.way or name in arguments.way}
    return fuzz(ways, examples, arguments.seed, first=first, say=say)


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many programs, and the calls in them."""
    report = _fuzzed(arguments, first, examples, say)
    counts = {
        "calls": report.calls,
        "ways": report.ways,
        "refused": report.refused,
        "programs": {"rounded": report.rounded},
    }
    if (found := report.finding) is None:
        return FuzzShare(report.examples, counts)
    guilty = f"{found.way} {' '.join(each.rpartition('.')[2] for each in found.calls)}"
    kept = FoundCase(guilty, found.reason, found.case, found.pytest)
    return FuzzShare(report.examples, counts, (kept,))


def every() -> Mapping[str, Iterable[str]]:
    """All functions of the table that have one path."""
    from plica.frontend.torch.fuzz.row import ANY, FLOATS

    paths = [each for each in (*ANY, *FLOATS) if each.startswith("torch.")]
    return {"calls": paths}


KIND: Final = FuzzKind("torch", "programs", 2_000, 10, share, every=every, needs=("torch",))


def _print(report: TorchFuzzReport) -> None:
    ways = ", ".join(f"{n} by {name}" for name, n in sorted(report.ways.items()))
    counted = (
        f"{report.examples} programs, seed {report.seed} ({ways}): {report.calls.total()} calls of "
        f"{len(report.calls)} functions; {report.refused.total()} refused, {report.rounded} "
        "differ by rounding alone."
    )
    refused = [f"Refused: {why} ({times})" for why, times in report.refused.most_common()]
    each, wrong = report.finding, None
    if each is not None:
        wrong = ToldCase(f"case {each.case}, {each.way}", each.reason, each.pytest)
    tell([counted, *refused], "All give what torch gives.", wrong)
