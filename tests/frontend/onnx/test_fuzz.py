"""Random models beside onnxruntime: nothing differs, and what is planted is found and small."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from hypothesis import settings

import plica
from plica.cli import main as command
from plica.frontend.onnx.fuzz import fuzz, peer_process, random_case
from plica.frontend.onnx.fuzz.case import ModelCase
from plica.frontend.onnx.fuzz.peer import answers, model_of, node_by_node
from plica.frontend.onnx.fuzz.run import interpreted

EXAMPLES: Final = min(600, settings().max_examples)
EVERY: Final = max(1, 200 // EXAMPLES)
"""Every this many are compiled: all of them where there is time."""


def compiled(model: onnx.ModelProto, contract: str | None, threads: int) -> Callable[..., Any]:
    return plica.compile(model, threads=threads, contract=contract, cache=False)


def wrong_sigmoid(model: onnx.ModelProto, contract: str | None, threads: int) -> Callable[..., Any]:
    """Takes every Sigmoid for a HardSigmoid."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for node in other.graph.node:
        node.op_type = node.op_type.replace("Sigmoid", "HardSigmoid").replace("HardHard", "Hard")
    return interpreted(other)


def crashing_pad(model: onnx.ModelProto, contract: str | None, threads: int) -> Callable[..., Any]:
    """Falls over wherever something is padded."""
    if any(node.op_type == "Pad" for node in model.graph.node):
        raise LookupError("planted")
    return interpreted(model)


def test_random_models_give_what_onnxruntime_gives() -> None:
    report = fuzz(EXAMPLES, seed=11, compiled=compiled, every=EVERY)
    assert report.finding is None, report.finding
    assert report.number("runs") >= EXAMPLES


@pytest.mark.parametrize(("seed", "number"), [(77001, 24243), (77001, 33967), (26111601, 10568)])
def test_sizes_that_only_onnxruntime_takes_are_no_question(seed: int, number: int) -> None:
    """Scales for other channels than there are, classes for other places, windows without room."""
    report = fuzz(1, seed=seed, first=number)
    assert report.finding is None, report.finding


def test_onnxruntime_drops_casts_through_f16_in_whole_models_only() -> None:
    """Seen on case 71652 of seed 10071: it calls numbers distinct that are one number in f16."""
    cast = onnx.helper.make_node("Cast", ["x"], ["half"], to=onnx.TensorProto.FLOAT16)
    unique = onnx.helper.make_node("Unique", ["half"], ["values"], sorted=0)
    given = {"x": np.array([1.7310894, 1.7310814], np.float32)}
    model = model_of([cast, unique], given, ["values"], {}, 16)
    whole, alone = answers(model, given), node_by_node(model, given)
    assert whole is not None
    assert alone is not None
    assert whole[0].shape == (2,)
    assert alone[0].shape == (1,)
    assert interpreted(model)(**given).shape == (1,)


def test_a_model_that_ends_the_peer_is_not_taken_and_the_next_is() -> None:
    """Whether this one does depends on its version: it is asked beside, in a process of its own."""
    nothing = np.zeros((0, 4), np.float32)
    unique = onnx.helper.make_node("Unique", ["x"], ["y"], axis=0)
    for node, given in (
        (unique, nothing),
        (onnx.helper.make_node("Neg", ["x"], ["y"]), nothing + 1),
    ):
        model = model_of([node], {"x": given}, ["y"], {}, 19)
        found = answers(model, {"x": given})
    assert found is not None
    np.testing.assert_array_equal(found[0], -given)


def test_a_peer_that_ends_is_followed_by_another() -> None:
    one = np.ones(1, np.float32)
    model = model_of([onnx.helper.make_node("Neg", ["x"], ["y"])], {"x": one}, ["y"], {}, 19)
    first = peer_process.PeerProcess()
    first._process.kill()
    with pytest.raises(EOFError):
        first.ask(model.SerializeToString(), {"x": one})
    first.end()
    found = answers(model, {"x": one})
    assert found is not None
    np.testing.assert_array_equal(found[0], -one)


def test_a_case_is_the_same_for_the_same_seed() -> None:
    one, two = (random_case(5).model.SerializeToString() for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("planted", "operator", "word"),
    [(wrong_sigmoid, "Sigmoid", "apart"), (crashing_pad, "Pad", "planted")],
)
def test_what_is_planted_is_found_and_made_small(
    planted: Callable[[onnx.ModelProto, str | None, int], Any],
    operator: str,
    word: str,
    tmp_path: Path,
) -> None:
    report = fuzz(400, seed=3, compiled=planted)
    assert report.finding is not None
    assert report.finding.parts == (operator,)
    assert report.finding.way == "compiled"
    assert word in report.finding.reason
    path = report.finding.save(tmp_path)
    assert [each.op_type for each in onnx.load(path).graph.node] == [operator]
    assert np.load(path.with_suffix(".npz")).files


def test_a_finding_has_the_inputs_that_go_wrong() -> None:
    def planted(model: onnx.ModelProto, contract: str | None, threads: int) -> Callable[..., Any]:
        def run(**given: Any) -> Any:
            if len(given.get("x", ())) == 3:
                raise LookupError("planted")
            return interpreted(model)(**given)

        return run

    number = next(each for each in range(200) if _is_for(random_case(each), 3))
    report = fuzz(1, compiled=planted, first=number)
    assert report.finding is not None
    assert len(np.load(io.BytesIO(report.finding.files[".npz"]))["x"]) == 3


def _is_for(case: ModelCase, last: int) -> bool:
    return len(case.given[0]["x"]) != last == len(case.given[-1]["x"])


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["fuzz", "onnx", "--examples", "3", "--native", "0"]) == 0
    assert "All give what onnxruntime gives." in capsys.readouterr().out
