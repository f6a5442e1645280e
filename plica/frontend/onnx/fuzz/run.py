"""Runs: random models through the reader, the interpreter and the compiler, beside the peer.

A model that gives another result than the peer is made smaller first: the peer's own values stand
in for all but the last few nodes before the result that differs.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from plica.core.diagnostic import CompilerBug
from plica.frontend.onnx.fuzz.case import ModelCase, random_case
from plica.frontend.onnx.fuzz.peer import Array, answers, by_reference, model_of, read_by
from plica.frontend.onnx.importer import from_onnx
from plica.ir.interpret.interpreter import interpret
from plica.rewrite.fuzz.driver import ENDLESS, TOO_LONG, campaign
from plica.runtime.error import PlicaError, UnsupportedError
from plica.runtime.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto

Run = Callable[["ModelProto"], Callable[..., Any]]
"""What makes something one can call, with inputs by name, of a model."""

Compile = Callable[["ModelProto", "str | None", int], Callable[..., Any]]
"""The same, under a float contract and with so many threads."""

CONTRACTS: Final = (None, None, "exact", "fused", "reassociates")

CRASHES: Final = (
    PlicaError, CompilerBug, AssertionError, ArithmeticError, AttributeError, LookupError,
    MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What no model may end in; a refusal is a `PlicaError` too, but one of its own kind."""

TOLERANCE: Final = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-3}
"""Of the largest number of a result; a dozen operators may lie in between."""


@attrs.frozen
class ModelFinding:
    """A model that goes wrong, as small as it could be made."""

    seed: int
    way: str
    reason: str
    nodes: tuple[str, ...]
    data: bytes = attrs.field(repr=False)
    given: Mapping[str, Array] = attrs.field(repr=False)

    def save(self, folder: Path) -> Path:
        """Write the model, and its inputs beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"fuzz-{self.seed}.onnx"
        path.write_bytes(self.data)
        np.savez(path.with_suffix(".npz"), allow_pickle=False, **self.given)
        return path


@attrs.define
class OnnxFuzzReport:
    """What was tried, and the first finding."""

    seed: int
    examples: int = 0
    compiled: int = 0
    runs: int = 0
    batches: int = 0
    late: int = 0
    """Models with sizes that are known when they run."""
    refused: Counter[str] = attrs.Factory(Counter)
    rounded: int = 0
    settings: Counter[str] = attrs.Factory(Counter)
    peers: Counter[str] = attrs.Factory(Counter)
    """Results in which one peer differs and the other does not."""
    operators: Counter[str] = attrs.Factory(Counter)
    opsets: Counter[int] = attrs.Factory(Counter)
    finding: ModelFinding | None = None

    def to_data(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        found = self.finding
        return {
            "seed": self.seed,
            "examples": self.examples,
            "compiled": self.compiled,
            "runs": self.runs,
            "batches": self.batches,
            "late": self.late,
            "refused": dict(sorted(self.refused.items())),
            "rounded": self.rounded,
            "settings": dict(sorted(self.settings.items())),
            "peers": dict(sorted(self.peers.items())),
            "operators": dict(sorted(self.operators.items())),
            "opsets": {str(key): self.opsets[key] for key in sorted(self.opsets)},
            "finding": None if found is None else {
                "seed": found.seed, "way": found.way, "reason": found.reason,
                "nodes": list(found.nodes),
            },
        }  # fmt: skip


def interpreted(model: ModelProto) -> Callable[..., Any]:
    """The model through the reader and the interpreter."""
    module = from_onnx(model)
    return lambda **given: interpret(module, **given)


def fuzz(
    examples: int,
    seed: int = 0,
    compiled: Compile | None = None,
    every: int = 1,
    *,
    first: int = 0,
    say: Callable[[str], None] | None = None,
) -> OnnxFuzzReport:
    """Try so many models; every so many of them are compiled as well.

    Contract and threads are drawn for each.
    """
    report = OnnxFuzzReport(seed)

    def one(number: int) -> ModelFinding | None:
        place = seed * 1_000_003 + number
        case = random_case(place)
        report.operators.update(case.operators)
        report.opsets[case.opset] += 1
        report.batches += case.batch is not None
        report.late += case.late
        ways: dict[str, Run] = {"interpreted": interpreted}
        if compiled is not None and number % every == 0:
            random = Random(f"{place} compiled")
            contract, threads = random.choice(CONTRACTS), random.choice((1, 2))
            ways["compiled"] = lambda model: compiled(model, contract, threads)
            report.compiled += 1
            report.settings[f"{contract or 'default'}, {threads} threads"] += 1
        for way, run in ways.items():
            if (found := _tried(case, run, report)) is None:
                continue
            small, reason = smallest(case, run, found)
            if reason is not None:
                data = small.model.SerializeToString()
                return ModelFinding(place, way, reason, small.operators, data, small.given[0])
            report.rounded += 1
        return None

    def endless(number: int) -> ModelFinding:
        return ModelFinding(seed * 1_000_003 + number, ENDLESS, TOO_LONG, (), b"", {})

    done = campaign(one, examples, hangs=endless, first=first, say=say)
    report.examples, report.finding = done.ran, done.finding
    return report


def _tried(case: ModelCase, run: Run, report: OnnxFuzzReport | None = None) -> str | None:
    """What is wrong with a case, None where nothing is, or where it is refused."""
    model = case.model
    try:
        callee = run(model)
        for given in case.given:
            if (expected := answers(model, given)) is None:
                continue
            found = callee(**given)
            if report is not None:
                report.runs += 1
            flat = found if isinstance(found, tuple) else (found,)
            wrong = _unlike(case, flat, expected)
            if wrong is not None and _agrees(case, flat, by_reference(model, given)):
                if report is not None:
                    report.peers.update(case.operators)
                continue
            if wrong is not None:
                return wrong
        if isinstance(callee, Executable) and callee.stats.at_call:
            return "it is compiled when it is called"
    except UnsupportedError as error:
        if report is not None:
            report.refused[error.diagnostics[0].message] += 1
        return None
    except CRASHES as error:
        # Whatever is raised is what is looked for here: it is reported with its place.
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(last.filename).name}, {last.name})"
    return None


def _unlike(case: ModelCase, mine: Sequence[Any], others: Sequence[Array]) -> str | None:
    """What differs from what a peer gives, and where."""
    for name, one, other in zip(case.outputs, mine, others, strict=True):
        if (wrong := _difference(np.asarray(one), np.asarray(other))) is not None:
            return f"{name}: {wrong}"
    return None


def _agrees(case: ModelCase, mine: Sequence[Any], others: Sequence[Array] | None) -> bool:
    """Whether another peer answers, and gives the same."""
    return others is not None and _unlike(case, mine, others) is None


def _difference(mine: Array, other: Array) -> str | None:
    if (mine.dtype, mine.shape) != (other.dtype, other.shape):
        return f"{mine.dtype} of shape {mine.shape} for {other.dtype} of shape {other.shape}"
    if mine.dtype.kind != "f":
        wrong = mine != other
        return f"{int(wrong.sum())} of {mine.size} elements differ" if wrong.any() else None
    a, b = mine.astype(np.float64), other.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "not the same elements are finite"
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    apart = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    if apart <= TOLERANCE[mine.dtype.name] * scale + 1e-5:
        return None
    return f"{apart:.3g} apart where the largest number is {scale:.3g}"


# --- smaller cases -------------------------------------------------------------------------------


def smallest(case: ModelCase, run: Run, reason: str) -> tuple[ModelCase, str | None]:
    """The fewest nodes that go wrong alone, and why; no reason where it is rounding that grew."""
    alone = (attrs.evolve(case, given=(each,)) for each in case.given)
    case = next((each for each in alone if _tried(each, run) is not None), case)
    for each in _parts(case):
        if (found := _tried(each, run)) is not None:
            return each, found if len(each.nodes) == 1 or not _shaky(each) else None
    return case, reason if not _shaky(case) else None


def _parts(case: ModelCase) -> Iterator[ModelCase]:
    """Ever larger parts of a case, each with the peer's own values as its inputs."""
    named = [name for node in case.nodes for name in node.output]
    whole = model_of(case.nodes, case.given[0], named, case.stored, case.opset)
    if (found := answers(whole, case.given[0])) is None:
        return
    values = {**case.given[0], **dict(zip(named, map(np.asarray, found), strict=True))}
    for count in range(1, len(case.nodes) + 1):
        for end in range(count, len(case.nodes) + 1):
            nodes = case.nodes[end - count : end]
            yield _alone(case, nodes, values)


def _alone(case: ModelCase, nodes: Any, values: Mapping[str, Array]) -> ModelCase:
    made = [name for node in nodes for name in node.output]
    read = dict.fromkeys(name for node in nodes for name in read_by(node))
    stored = {name: case.stored[name] for name in read if name in case.stored}
    given = {name: values[name] for name in read if name not in stored and name not in made}
    used = {name for node in nodes for name in read_by(node)}
    outputs = tuple(name for name in made if name not in used)
    return ModelCase(tuple(nodes), stored, outputs, case.opset, (given,))


def _shaky(case: ModelCase) -> bool:
    """Whether a change in the seventh digit of the inputs changes the peer's own result as much."""
    given = case.given[0]
    random = np.random.default_rng(0)
    moved = {
        name: (each * (1 + 1e-6 * random.normal(size=each.shape))).astype(each.dtype)
        if each.dtype.kind == "f" else each
        for name, each in given.items()
    }  # fmt: skip
    before, after = answers(case.model, given), answers(case.model, moved)
    if before is None or after is None:
        return False
    return any(
        _difference(np.asarray(a), np.asarray(b)) is not None
        for a, b in zip(before, after, strict=True)
    )
