"""What is given for inputs: every split into positions and names is one call."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.runtime.element import wrong_element
from plica.runtime.error import Diagnostic
from plica.runtime.given import in_order
from plica.runtime.port import MISSING

NAMES = ("x", "y", "z", "w")
TYPES: dict[str, str] = {}


@given(st.data())
def test_values_by_name_are_those_by_position(data: st.DataObject) -> None:
    names = NAMES[: data.draw(st.integers(0, 4))]
    split = data.draw(st.integers(0, len(names)))
    rest = data.draw(st.permutations(names[split:]))
    values = {name: object() for name in names}
    wrong: list[Diagnostic] = []
    first = [values[name] for name in names[:split]]
    found = in_order(names, first, {name: values[name] for name in rest}, wrong, TYPES.get)
    assert found == [*values.values()]
    assert not wrong


@given(st.sets(st.sampled_from(NAMES)), st.integers(0, 6), st.booleans())
def test_each_fault_is_said_once(named: set[str], by_position: int, other: bool) -> None:
    wrong: list[Diagnostic] = []
    words: dict[str, object] = dict.fromkeys(named, None) | ({"X": None} if other else {})
    found = in_order(NAMES, [None] * by_position, words, wrong, TYPES.get)
    placed = set(NAMES[:by_position])
    codes = [each.code for each in wrong]
    assert codes.count("input-missing") == len(set(NAMES) - placed - named)
    assert codes.count("input-unknown") == len(placed & named) + other + (by_position > len(NAMES))
    missing = {name for name, value in zip(NAMES, found, strict=True) if value is MISSING}
    assert missing == set(NAMES) - placed - named


def test_what_is_missing_says_its_type_and_how_it_is_given() -> None:
    wrong: list[Diagnostic] = []
    in_order(["x", "y", "z"], [1], {}, wrong, {"y": "Tensor[(3,), f32]"}.get)
    assert wrong[0].expected == "Tensor[(3,), f32]"
    assert wrong[0].suggestion == "Give it as the 2nd value, or by its name: y=..."
    assert wrong[1].suggestion == "Give it by its name: z=..."


def test_elements_that_numpy_has_not_are_named_by_their_package() -> None:
    assert wrong_element("Input 'x'", "x", "bf16", "float32").suggestion == (
        "Convert it: x.astype(ml_dtypes.bfloat16)."
    )


def test_two_inputs_that_print_alike_take_values_by_position() -> None:
    wrong: list[Diagnostic] = []
    assert in_order(["x_1", "x_1"], [1, 2], {}, wrong, TYPES.get) == [1, 2]
    assert not wrong
