"""Steps on a GPU as data: they come back as they were, and what is damaged is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from plica.runtime.cuda.overlap import overlaps
from plica.runtime.cuda.step import (
    ALIGNMENT,
    DeviceCopy,
    DeviceLaunch,
    DeviceProgram,
    SlotLayout,
    arranged,
    from_data,
    problems,
    to_data,
)
from plica.runtime.cuda.tile import TileMap
from plica.runtime.error import ArtefactError

SPACES = st.sampled_from(("input", "output", "constant", "temporary"))


@st.composite
def programs(draw: st.DrawFn) -> DeviceProgram:
    spaces = draw(st.lists(SPACES, min_size=1, max_size=6))
    sizes = [draw(st.integers(0, 1000)) for _ in spaces]
    scratch = draw(st.lists(st.integers(0, 100), max_size=3))
    offsets, arena = dict[int, int](), 0
    for slot, (size, space) in enumerate(zip(sizes, spaces, strict=True)):
        if space == "temporary":
            offsets[slot] = arena
            arena += -(-size // ALIGNMENT) * ALIGNMENT
    layout = arranged(sizes, spaces, offsets, arena + 1, scratch)
    slots = st.integers(0, len(spaces) - 1)
    extents, threads = (st.tuples(*[st.integers(1, most)] * 3) for most in (99, 10))
    launch = st.builds(
        DeviceLaunch,
        st.sampled_from(("k0", "k1_0")),
        extents,
        threads,
        st.integers(0, 1000),
        st.lists(slots, max_size=4).map(tuple),
        st.integers(0, len(scratch)),
    )
    copy = st.builds(DeviceCopy, slots, slots, st.integers(0, 1000))
    return DeviceProgram(tuple(draw(st.lists(launch | copy, max_size=5))), layout)


@given(programs())
def test_what_is_written_is_read(of: DeviceProgram) -> None:
    assert from_data(to_data(of)) == of


@given(programs())
def test_slots_lie_apart(of: DeviceProgram) -> None:
    layout = of.layout
    given_ = (*layout.inputs, *layout.outputs)
    places = [layout.places[slot] for slot in given_]
    assert all(place % ALIGNMENT == 0 for place in places)
    assert all(place < layout.size or place == 0 for place in places)


PROGRAM = DeviceProgram(
    (DeviceLaunch("k", (1, 1, 1), (32, 1, 1), 0, (0, 1), 1), DeviceCopy(0, 1, 4)),
    arranged([4, 4], ["input", "output"], {}, 0, [8]),
)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (("size",), 0),
        (("places", 0), -1),
        (("inputs", 0), 2),
        (("scratch", 0), "x"),
        (("steps", 0, 1), [1, 1]),
        (("steps", 0, 2), [0, 1, 1]),
        (("steps", 0, 1), [1, 65536, 1]),
        (("steps", 0, 2), [64, 32, 1]),
        (("steps", 0, 2), [1, 1, 65]),
        (("steps", 0, 4), [7]),
        (("steps", 0, 5), 9),
        (("steps", 1), [0, 9, 4]),
        (("steps", 1), ["what"]),
        (("constants",), [[5, 0]]),
        (("steps",), None),
    ],
)
def test_what_is_damaged_is_refused(where: tuple[Any, ...], what: object) -> None:
    data: Any = to_data(PROGRAM)
    inside = data
    for each in where[:-1]:
        inside = inside[each]
    inside[where[-1]] = what
    with pytest.raises(ArtefactError):
        from_data(data)


def test_a_map_may_be_of_scratch_memory() -> None:
    """Tiles are fetched from what a launch before made, too; but of nothing behind that."""
    tile = TileMap(2, 2, (48, 64), (96,), (16, 16))
    launch = DeviceLaunch("k", (1, 1, 1), (32, 1, 1), 0, (0, 1), 1, (tile,))
    of = replace(PROGRAM, steps=(launch,))
    assert from_data(to_data(of)).steps == (launch,)
    beyond = replace(launch, maps=(TileMap(3, 2, (48, 64), (96,), (16, 16)),))
    with pytest.raises(ArtefactError):
        from_data(to_data(replace(of, steps=(beyond,))))


def test_tensors_in_one_place_at_one_time_are_found() -> None:
    spaces = ["input", "output", "temporary", "temporary"]
    layout = arranged([4, 4, 4, 4], spaces, {2: 0, 3: 256}, 512, [8])
    one, two, three = (
        DeviceLaunch("k", (1, 1, 1), (32, 1, 1), 0, slots) for slots in ((0, 2), (2, 3), (3, 1))
    )
    plan = [(0, 4), (256, 4)]

    def found(of: SlotLayout, *steps: DeviceLaunch) -> list[str]:
        return list(overlaps(DeviceProgram(steps, of), [[4], [4]], plan, 512))

    def moved(**changes: Any) -> SlotLayout:
        return replace(layout, **changes)

    assert found(layout, one, two, three) == []
    begin = layout.places[2]
    same = moved(places=(*layout.places[:3], begin))
    assert found(same, one, two, three) == []  # the one is written over the other
    assert "needed together" in found(same, one, two, three, two)[0]
    assert "lies where inputs" in found(moved(places=(0, 256, 256, begin)), one, two, three)[0]
    assert "the memory plan" in found(moved(places=(0, 256, begin, begin + 4)), one, two, three)[0]
    assert "inputs and outputs overlap" in found(moved(places=(0, 0, begin, begin)), one)[0]
    assert "Scratch" in found(moved(scratch=(begin,)), one, two, three)[0]


def test_launches_beside_memory_are_found() -> None:
    assert not list(problems(PROGRAM, ([4], [4]), 0))
    assert list(problems(PROGRAM, ([4], []), 0)) == ["The launches know 1 of 0 outputs."]
    assert any("outside" in each for each in problems(PROGRAM, ([4096], [4]), 0))
    assert any("constants" in each for each in problems(PROGRAM, ([4], [4]), 1))
    wild = DeviceProgram((DeviceCopy(0, 1, 4096),), PROGRAM.layout)
    assert any("leaves" in each for each in problems(wild, ([4], [4]), 0))
    held = arranged([4, 4, 4], ["input", "output", "constant"], {}, 0, [])
    over = DeviceProgram((DeviceCopy(0, 2, 4),), held)
    assert any("over the constant" in each for each in problems(over, ([4], [4]), 1))
