"""Runs: random models through the reader, the interpreter and the compiler, compared with
the peer."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from plica.frontend.onnx.fuzz import peer as peers
from plica.frontend.onnx.fuzz.case import ModelCase, random_case
from plica.frontend.onnx.importer import from_onnx
from plica.frontend.onnx.order import names_read
from plica.ir.interpret.interpreter import interpret
from plica.rewrite.fuzz.driver import ByNumber, Campaign, Say, Tally
from plica.rewrite.fuzz.judge import CRASHES, crash, difference
from plica.rewrite.fuzz.report import CASES, FILES, Finding, FuzzReport
from plica.runtime.error import UnsupportedError
from plica.runtime.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto

Run = Callable[["ModelProto"], Callable[..., Any]]
"""What makes something one can call, with inputs by name, of a model."""

Compile = Callable[["ModelProto", "str | None", int], Callable[..., Any]]
"""The same, under a float contract and with this many threads."""

CONTRACTS: Final = (None, None, "exact", "fused", "reassociates")

SEEDS_APART: Final = 1_000_003  # by how much the first cases of two seeds are apart

COUNTERS: Final = {
    CASES: ("compiled", "runs", "batches", "late", "rounded"),
    **dict.fromkeys(("refused", "settings", "peers", "operators", "opsets"), ()),
}

TOLERANCE: Final = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-3}
"""Of the largest number of a result; a dozen operators may lie in between."""


@attrs.frozen
class ModelFinding(Finding):
    """A failing model, shrunk; `parts` are its nodes."""

    way: str = ""


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
    say: Say | None = None,
) -> FuzzReport[ModelFinding]:
    """Try a given number of models; some of them are compiled as well.

    Contract and threads are drawn for each.
    """

    def oracle(case: ModelCase, number: int, tally: Tally) -> ModelFinding | None:
        tally["operators"].update(case.operators)
        tally["opsets"][str(case.opset)] += 1
        tally[CASES].update(batches=case.batch is not None, late=case.late)
        ways: dict[str, Run] = {"interpreted": interpreted}
        if compiled is not None and number % every == 0:
            random = Random(f"{seed * SEEDS_APART + number} compiled")
            contract, threads = random.choice(CONTRACTS), random.choice((1, 2))
            ways["compiled"] = lambda model: compiled(model, contract, threads)
            tally[CASES]["compiled"] += 1
            tally["settings"][f"{contract or 'default'}, {threads} threads"] += 1
        for way, run in ways.items():
            if (found := _tried(case, run, tally)) is None:
                continue
            small, reason = smallest(case, run, found)
            if reason is not None:
                return _finding(small, way, reason)
            tally[CASES]["rounded"] += 1
        return None

    def made(number: int) -> ModelCase:
        return random_case(seed * SEEDS_APART + number)

    return Campaign(ModelFinding, ByNumber(made), oracle, counters=COUNTERS).run(
        examples, seed, first=first, say=say
    )


def _finding(case: ModelCase, way: str, reason: str) -> ModelFinding:
    arrays = io.BytesIO()
    np.savez(arrays, allow_pickle=False, **case.given[0])
    files = {".onnx": case.model.SerializeToString(), ".npz": arrays.getvalue()}
    guilty = f"{way} {' '.join(case.operators)}"
    return ModelFinding(
        "meaning", guilty, reason, as_pytest(way, reason), parts=case.operators, files=files,
        way=way,
    )  # fmt: skip


def _tried(case: ModelCase, run: Run, tally: Tally | None = None) -> str | None:
    """The error of a case, or None if it passes or is refused."""
    model, tally = case.model, Tally() if tally is None else tally
    try:
        callee = run(model)
        for given in case.given:
            if (expected := peers.answers(model, given)) is None:
                continue
            found = callee(**given)
            tally[CASES]["runs"] += 1
            flat = found if isinstance(found, tuple) else (found,)
            wrong = _unlike(case, flat, expected)
            if wrong is not None and any(
                _agrees(case, flat, peer(model, given))
                for peer in (peers.by_reference, peers.node_by_node)
            ):
                tally["peers"].update(case.operators)
                continue
            if wrong is not None:
                return wrong
        if isinstance(callee, Executable) and callee.stats.at_call:
            return "it is compiled when it is called"
    except UnsupportedError as error:
        tally["refused"][error.diagnostics[0].message] += 1
        return None
    except CRASHES as error:
        return crash(error)
    return None


def _unlike(case: ModelCase, mine: Sequence[Any], others: Sequence[peers.Array]) -> str | None:
    """The difference from a peer's results, and its place."""
    for name, one, other in zip(case.outputs, mine, others, strict=True):
        if (wrong := _difference(one, other)) is not None:
            return f"{name}: {wrong}"
    return None


def _agrees(case: ModelCase, mine: Sequence[Any], others: Sequence[peers.Array] | None) -> bool:
    """Whether another peer answers, and gives the same."""
    return others is not None and _unlike(case, mine, others) is None


def _difference(mine: Any, other: Any) -> str | None:
    array = np.asarray(mine)
    return difference(array, np.asarray(other), TOLERANCE.get(array.dtype.name, 0.0))


# --- smaller cases -------------------------------------------------------------------------------


def smallest(case: ModelCase, run: Run, reason: str) -> tuple[ModelCase, str | None]:
    """The fewest nodes that go wrong alone, and why; no reason where it is rounding that grew."""
    alone = (attrs.evolve(case, given=(each,)) for each in case.given)
    case = next((model_case for model_case in alone if _tried(model_case, run) is not None), case)
    for part in _parts(case):
        if (found := _tried(part, run)) is not None:
            return part, found if len(part.nodes) == 1 or not _shaky(part) else None
    return case, reason if not _shaky(case) else None


def _parts(case: ModelCase) -> Iterator[ModelCase]:
    """Ever larger parts of a case, each with the peer's own values as its inputs."""
    named = [name for node in case.nodes for name in node.output]
    whole = peers.model_of(case.nodes, case.given[0], named, case.stored, case.opset)
    if (arrays := peers.answers(whole, case.given[0])) is None:
        return
    values = {**case.given[0], **dict(zip(named, map(np.asarray, arrays), strict=True))}
    for count in range(1, len(case.nodes) + 1):
        for end in range(count, len(case.nodes) + 1):
            nodes = case.nodes[end - count : end]
            yield _alone(case, nodes, values)


def _alone(case: ModelCase, nodes: Any, values: Mapping[str, peers.Array]) -> ModelCase:
    made = [name for node in nodes for name in node.output]
    read = dict.fromkeys(name for node in nodes for name in names_read(node))
    stored = {name: case.stored[name] for name in read if name in case.stored}
    given = {name: values[name] for name in read if name not in stored and name not in made}
    used = {name for node in nodes for name in names_read(node)}
    outputs = tuple(name for name in made if name not in used)
    return ModelCase(tuple(nodes), stored, outputs, case.opset, (given,))


def _shaky(case: ModelCase) -> bool:
    """Whether a change in the seventh digit of the inputs changes the peer's own result as much."""
    given = case.given[0]
    random = np.random.default_rng(0)
    moved = {
        name: (array * (1 + 1e-6 * random.normal(size=array.shape))).astype(array.dtype)
        if array.dtype.kind == "f" else array
        for name, array in given.items()
    }  # fmt: skip
    before, after = peers.answers(case.model, given), peers.answers(case.model, moved)
    if before is None or after is None:
        return False
    return any(_difference(a, b) is not None for a, b in zip(before, after, strict=True))


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
