"""Steps of open sizes: what they come to, as data, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from plica.runtime.cuda.open_step import (
    NoValue,
    OpenCopy,
    OpenLaunch,
    OpenProgram,
    OpenSlot,
    RowFunction,
    RowLaunch,
    RowPiece,
    TooLarge,
    open_from_data,
)
from plica.runtime.cuda.step import DeviceLaunch, problems
from plica.runtime.cuda.tile import TileMap
from plica.runtime.error import ArtefactError
from plica.runtime.size_text import NoSize, names_of, number_of
from plica.runtime.typed_json import plain

SLOTS = (
    OpenSlot("input", "n * 64"),
    OpenSlot("temporary", "n * 64", 0),
    OpenSlot("output", "n * 64"),
)
PIECES = tuple([
    RowPiece(size, (0, 1), (100,), (RowFunction(f"k{size}", (2, 1, 1), (32, 1, 1), 0),))
    for size in (16, 4, 1)
])  # fmt: skip
LAUNCH = OpenLaunch("k", ("(n + 31) // 32", "1", "1"), (32, 1, 1), 64, (1, 2), ("n",), ("9 - n",),
                    (300,), (TileMap(2, 2, (64, 64), (128,), (32, 32)),))  # fmt: skip
PROGRAM = OpenProgram(("n",), SLOTS, ("n * 64",), (RowLaunch("n", PIECES), LAUNCH), ("n",))


@given(st.integers(0, 9))
def test_a_program_of_some_size_is_one_as_any_other(n: int) -> None:
    made = PROGRAM.at({"n": n})
    assert not list(problems(made, [[n * 64], [n * 64]], 0))
    rows = [each for each in made.steps if isinstance(each, DeviceLaunch)]
    assert bool(rows) == bool(n)
    if rows:
        size = int(rows[0].function.removeprefix("k"))
        assert size == (4 if n >= 4 else 1)
        assert rows[0].grid == (2 * -(-n // size), 1, 1)
        assert rows[0].numbers == (n,)
        assert (rows[1].scratch, rows[1].maps) == (1, LAUNCH.maps)


def test_every_row_is_in_some_part() -> None:
    for n in range(1, 80):
        piece = next(each for each in PIECES if each.size <= n)
        (launch, *_), (scratch,) = RowLaunch("n", PIECES).at({"n": n})
        parts = launch.grid[0] // 2
        begins = [min(part * piece.size, n - piece.size) for part in range(parts)]
        assert {row for at in begins for row in range(at, at + piece.size)} == {*range(n)}
        assert scratch == 100 * parts


def test_what_is_written_down_comes_back() -> None:
    whole = OpenProgram(("n",), SLOTS, ("n * 64",), (*PROGRAM.steps, OpenCopy(0, 2)), ("n",))
    assert open_from_data(plain(whole)) == whole


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dims", ["1x"]),
        ("slots", [["input", "n * 64", 0], ["temporary", "n", 7], ["output", "n", 0]]),
        ("slots", [["input", "m", 0]] * 3),
        ("rooms", ["__import__('os')"]),
        ("rooms", [3]),
        ("steps", [[0, 9]]),
        ("steps", [["k", ["n", "1", "1"], [2048, 1, 1], 0, [0], [], [], [], []]]),
        ("steps", [["k", ["n", "1", "1"], [32, 1, 1], 0, [5], [], [], [], []]]),
        ("steps", [["k", ["n", "1", "1"], [32, 1, 1], 0, [0], [], [], [-1], []]]),
        ("steps", [["k", ["n", "1", "1"], [32, 1, 1], 0, [0], [], [], [], [[1, 2]]]]),
        ("steps", [["n", [[4, [0], [], []]], []]]),
        ("steps", [["n", [[1, [0], [], [["k", [0, 1, 1], [32, 1, 1], 0]]]], []]]),
        ("steps", ["k"]),
    ],
)
def test_what_is_damaged_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ArtefactError):
        open_from_data({**plain(PROGRAM), key: value})
    with pytest.raises(ArtefactError):
        open_from_data({each: what for each, what in plain(PROGRAM).items() if each != key})


def test_sizes_too_large_or_without_a_value_are_told() -> None:
    with pytest.raises(NoValue, match="1"):
        PROGRAM.at({"n": 10})
    with pytest.raises(TooLarge):
        PROGRAM.at({"n": 1 << 44})
    with pytest.raises(TooLarge):
        OpenLaunch("k", ("n", "n", "1"), (32, 1, 1), 0, ()).at({"n": 1 << 20})


@pytest.mark.parametrize("text", ["n +", "f(n)", "n ** 2", "n.real", "m", "n // 0", "True", "'n'"])
def test_a_text_that_is_no_size_has_no_number(text: str) -> None:
    with pytest.raises(NoSize):
        number_of(text, {"n": 3})


def test_names_of_sizes() -> None:
    assert names_of("max(n * 2, k) - 1") == {"n", "k"}
    assert number_of("max(n * 2, k) - -1", {"n": 3, "k": 9}) == 10
