"""Gathering: which arrays lie one behind another, and that the text says where elements are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.runtime.cuda.gather import blocks, is_dense, text


@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_dense_is_what_numpy_calls_contiguous(shape: list[int], data: st.DataObject) -> None:
    whole = np.zeros(shape, np.float32)
    order = data.draw(st.permutations(range(len(shape))))
    step = data.draw(st.sampled_from((1, 2)))
    seen = whole.transpose(order)[tuple([slice(None, None, step)] * len(shape))]
    if seen.size:
        assert is_dense(seen.shape, seen.strides, 4) == seen.flags.c_contiguous
    else:
        assert is_dense(seen.shape, seen.strides, 4)


def run(words: str, source: np.ndarray[tuple[int], np.dtype[np.uint8]], count: int) -> list[int]:
    """The elements of one byte that the threads of a text read, by the text's own numbers."""
    digits = [int(each) for each in re.findall(r"rem.u64 %digit, %left, (\d+);", words)]
    steps = [int(each) for each in re.findall(r"mad.lo.s64 %from, %digit, (-?\d+), %from;", words)]
    found = []
    for thread in range(count):
        left, at = thread, 0
        for extent, step in zip(digits, steps, strict=True):
            at += left % extent * step
            left //= extent
        found.append(int(source[at]))
    return found


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2), (5,), ()])
def test_the_text_reads_what_numpy_reads(shape: tuple[int, ...]) -> None:
    turned = np.arange(np.prod(shape, dtype=int), dtype=np.uint8).reshape(shape[::-1]).T
    words = text(turned.shape, turned.strides, 1)
    flat = np.arange(turned.size, dtype=np.uint8)
    assert run(words, flat, turned.size) == turned.ravel().tolist()
    assert f"setp.ge.u64 %p, %number, {turned.size};" in words
    assert blocks(turned.shape) == 1


@pytest.mark.parametrize(("size", "word"), [(1, "u8"), (2, "u16"), (4, "u32"), (8, "u64")])
def test_elements_are_moved_whole(size: int, word: str) -> None:
    assert f"ld.global.{word} " in text((3,), (0,), size)
