"""`plica fuzz onnx`: random ONNX models, held against onnxruntime."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.cli.fuzz.corpus import FILES
from plica.cli.fuzz.share import FoundCase, FuzzKind, FuzzShare, Say
from plica.cli.fuzz.verb import ToldCase, add_verb, drive, tell
from plica.cli.option import natural

if TYPE_CHECKING:
    from onnx import ModelProto

    from plica.frontend.onnx.fuzz import OnnxFuzzReport
    from plica.runtime.executable import Executable

EPILOG: Final = """\
examples:
  plica fuzz onnx --examples 500
  plica fuzz onnx --seed 7 --native 4          every fourth model is compiled as well
  plica fuzz onnx --save found/                a model that goes wrong is written there
"""


# Any: what argparse's subparsers are has no public name.
def configure(verbs: Any) -> None:
    """The options of the verb."""
    about = "ONNX models of random operators, interpreted and compiled, beside onnxruntime"
    parser = add_verb(verbs, "onnx", "models", about, EPILOG, fuzz_onnx)
    parser.add_argument("--native", type=natural, default=1, metavar="K",
                        help="compile and run every K-th model too (1; 0: none)")  # fmt: skip
    parser.add_argument("--save", type=Path, default=Path(), metavar="FOLDER",
                        help="where a model that goes wrong is written (.)")  # fmt: skip


def native(model: ModelProto, contract: str | None, threads: int) -> Executable:
    """The model compiled anew."""
    from plica.pipeline import compile

    return compile(model, threads=threads, contract=contract, cache=False)


def fuzz_onnx(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a model gives another result than onnxruntime, or crashes."""

    def written(report: OnnxFuzzReport) -> Path | None:
        return None if report.finding is None else report.finding.save(arguments.save)

    def data(report: OnnxFuzzReport) -> dict[str, Any]:
        path = written(report)
        return report.to_data() | {"saved": None if path is None else str(path)}

    def show(report: OnnxFuzzReport) -> None:
        _print(report, written(report))

    return drive("onnx", "models", arguments, _fuzzed, show, data)


def _fuzzed(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> OnnxFuzzReport:
    from plica.frontend.onnx.fuzz import fuzz

    compiled = native if arguments.native > 0 else None
    every = max(1, arguments.native)
    return fuzz(examples, arguments.seed, compiled, every, first=first, say=say)


def share(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> FuzzShare:
    """So many models, and the operators in them."""
    report = _fuzzed(arguments, first, examples, say)
    counts = {
        "operators": report.operators,
        "settings": report.settings,
        "models": {"compiled": report.compiled, "runs compared": report.runs,
                   "with an open batch": report.batches,
                   "with sizes known late": report.late, "rounded": report.rounded},
        "refused": report.refused,
        "peers that differ from each other": report.peers,
    }  # fmt: skip
    if (found := report.finding) is None:
        return FuzzShare(report.examples, counts)
    case = found.seed - arguments.seed * 1_000_003
    if not found.nodes:  # it came to no model
        return FuzzShare(report.examples, counts, (FoundCase(found.way, found.reason, case, ""),))
    arrays = io.BytesIO()
    np.savez(arrays, allow_pickle=False, **found.given)
    files = {".onnx": found.data, ".npz": arrays.getvalue()}
    guilty = f"{found.way} {' '.join(found.nodes)}"
    kept = FoundCase(guilty, found.reason, case, as_pytest(found.way, found.reason), files)
    return FuzzShare(report.examples, counts, (kept,))


def as_pytest(way: str, reason: str) -> str:
    """A test that fails as long as a model gives something else than onnxruntime."""
    said = " ".join(reason.split())
    run = "plica.compile(model, cache=False)" if way == "compiled" else "interpreted(model)"
    return f'''from pathlib import Path

import numpy as np
import onnx

import plica
from plica.frontend.onnx.fuzz.peer import answers
from plica.frontend.onnx.fuzz.run import interpreted

# {said}


def test_model() -> None:
    beside = Path(__file__).parent / "{FILES}"
    model = onnx.load(beside.with_suffix(".onnx"))
    given = dict(np.load(beside.with_suffix(".npz")))
    expected = answers(model, given)
    assert expected is not None
    found = {run}(**given)
    several = found if isinstance(found, tuple) else (found,)
    for one, two in zip(several, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)
'''


KIND: Final = FuzzKind("onnx", "models", 10_000, 15, share, needs=("onnx", "onnxruntime"))


def _print(report: OnnxFuzzReport, written: Path | None) -> None:
    versions = f"{min(report.opsets)} to {max(report.opsets)}" if report.opsets else "none"
    counted = (
        f"{report.examples} models, seed {report.seed}: {report.operators.total()} nodes of "
        f"{len(report.operators)} operators, versions {versions}, {report.batches} with an open "
        f"batch, {report.late} with sizes that are known when they run; {report.compiled} "
        f"compiled, {report.runs} runs compared, {report.rounded} "
        f"differ by rounding alone, {report.refused.total()} refused."
    )
    each, wrong = report.finding, None
    if each is not None:
        place = f"{each.way}, {' '.join(each.nodes)}"
        wrong = ToldCase(place, each.reason, str(written), "The smallest model that shows it:")
    tell([counted], "All give what onnxruntime gives.", wrong)
