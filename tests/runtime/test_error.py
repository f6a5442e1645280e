"""The error family's root: rendering, data, pickling, several errors at once."""

from __future__ import annotations

import json
import pickle

import pytest

from plica.runtime.error import (
    ArtefactError,
    Diagnostic,
    InputError,
    Place,
    PlicaError,
    UnsupportedError,
)

SHAPE = Diagnostic(
    "input-shape",
    "Input 'x' has the wrong shape.",
    Place("model.py", 3, 5),
    expected="(n, 784)",
    found="(3, 28)",
    suggestion="Reshape it first.",
)
BARE = Diagnostic("input-missing", "Input 'w' was not given.")


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (Place("model.py", 3, 5), "model.py:3:5"),
        (Place("model.py", 3), "model.py:3"),
        (Place("model.onnx"), "model.onnx"),
        (Place(line=3, column=5), "<text>:3:5"),
        (Place(node="conv1"), "conv1"),
        (Place("model.onnx", node="conv1"), "model.onnx (conv1)"),
        (Place(), "<unknown place>"),
    ],
)
def test_place_reads_as_a_position_or_a_node(place: Place, shown: str) -> None:
    assert str(place) == shown


def test_a_diagnostic_shows_all_it_knows() -> None:
    assert str(SHAPE) == (
        "model.py:3:5: Input 'x' has the wrong shape. [input-shape]\n"
        "  expected: (n, 784)\n"
        "  found: (3, 28)\n"
        "  suggestion: Reshape it first."
    )
    assert str(BARE) == "Input 'w' was not given. [input-missing]"


def test_one_error_is_its_diagnostic() -> None:
    error = PlicaError(BARE)
    assert error.code == "input-missing"
    assert error.diagnostics == (BARE,)
    assert str(error) == str(BARE)


def test_several_errors_are_reported_together() -> None:
    error = PlicaError(SHAPE, BARE)
    assert error.code == "input-shape"
    assert str(error) == f"2 errors:\n{SHAPE}\n{BARE}"


def test_data_is_what_json_can_hold() -> None:
    data = InputError(SHAPE, BARE).to_data()
    assert json.loads(json.dumps(data)) == data
    assert data == {
        "error": "InputError",
        "diagnostics": [
            {
                "code": "input-shape",
                "message": "Input 'x' has the wrong shape.",
                "place": {"file": "model.py", "line": 3, "column": 5, "node": None},
                "expected": "(n, 784)",
                "found": "(3, 28)",
                "suggestion": "Reshape it first.",
            },
            {
                "code": "input-missing",
                "message": "Input 'w' was not given.",
                "place": None,
                "expected": None,
                "found": None,
                "suggestion": None,
            },
        ],
    }


@pytest.mark.parametrize("kind", [PlicaError, InputError, UnsupportedError, ArtefactError])
def test_errors_survive_pickling(kind: type[PlicaError]) -> None:
    error = kind(SHAPE, BARE)
    error.add_note("seen in main")
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is kind
    assert twin.diagnostics == error.diagnostics
    assert str(twin) == str(error)
    assert twin.__notes__ == ["seen in main"]


def test_diagnostics_are_values() -> None:
    assert Diagnostic("syntax", "No.") == Diagnostic("syntax", "No.")
    assert len({Place("a", 1), Place("a", 1), Place("a", 2)}) == 2
