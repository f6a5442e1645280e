"""Guarded memory stops what leaves it, and work apart tells how it ended."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.runtime.guard import Guarded, Side, can_guard
from plica.runtime.process import Died, apart, can_part

pytestmark = pytest.mark.skipif(
    not (can_guard() and can_part()), reason="pages are protected on POSIX only"
)
SIDES = st.sampled_from(("end", "start"))


def poke(room: Guarded, offset: int) -> bytes:
    """Write a byte so far from the start of an array."""
    ctypes.memset(room.array.__array_interface__["data"][0] + offset, 1, 1)
    return bytes([room.is_intact()])


@settings(max_examples=15)
@given(
    st.lists(st.integers(0, 40), max_size=3).map(tuple),
    st.sampled_from(("f4", "i8", "u1")),
    SIDES,
    st.sampled_from((1, 16, 64)),
)
def test_arrays_lie_where_they_should(
    shape: tuple[int, ...], dtype: str, side: Side, align: int
) -> None:
    room = Guarded(shape, np.dtype(dtype), side, align)
    assert room.array.shape == shape
    assert room.array.__array_interface__["data"][0] % align == 0
    assert 0 <= room.gap < max(align, 8)
    room.array[...] = 3
    assert room.is_intact()
    assert (room.array == 3).all()


@pytest.mark.parametrize(("side", "offset"), [("end", 12), ("start", -1)])
def test_the_guarded_side_cannot_be_left(side: Side, offset: int) -> None:
    room = Guarded((3,), np.dtype(np.float32), side)
    assert apart(lambda: poke(room, offset)) == Died("SIGSEGV")


@pytest.mark.parametrize(("side", "offset"), [("end", -1), ("start", 12)])
def test_what_is_written_at_the_other_side_is_seen(side: Side, offset: int) -> None:
    room = Guarded((3,), np.dtype(np.float32), side)
    assert apart(lambda: poke(room, offset)) == bytes([False])
    assert apart(lambda: poke(room, 0)) == bytes([True])


def test_what_is_frozen_cannot_be_written() -> None:
    room = Guarded((3,), np.dtype(np.float32), "end")
    room.array[...] = 2
    room.freeze()
    assert apart(room.array.tobytes) == room.array.tobytes()
    assert apart(lambda: poke(room, 0)) == Died("SIGSEGV")


def test_an_exception_is_told() -> None:
    def wrong() -> bytes:
        raise LookupError("nothing there")

    found = apart(wrong)
    assert isinstance(found, Died)
    assert "LookupError: nothing there" in str(found)


def test_what_takes_too_long_is_ended() -> None:
    def forever() -> bytes:
        while True:
            pass

    assert apart(forever, seconds=0.05) == Died("SIGKILL")


def test_much_comes_back() -> None:
    assert apart(lambda: b"x" * 300_000) == b"x" * 300_000
