"""Buffers that are allocated for a part of a kernel: no step takes a block that uses one out."""

from __future__ import annotations

from itertools import pairwise

import pytest

from plica.ir.loop.scalar import index
from plica.ir.loop.statement import Alloc, For, Kernel, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from plica.schedule import (
    block as block_named,
    compute_at,
    compute_inline,
    loops,
    reverse_compute_at,
    reverse_compute_inline,
)
from plica.schedule.do import Body
from tests.schedule.hostile import after, refusal


def in_parts() -> Kernel:
    """Four blocks in a row; what is between the first two, and the last two, is theirs alone."""
    every = [buffer(name, (4,), f32) for name in "ABCDE"]
    nests = []
    for at, (of, to) in enumerate(pairwise(every)):
        i, v = axis("i", at), axis("v", at)
        inside = block(str(to.name), (v,), (4,), "s", (i,), Store(to, (v,), of[v] + at))
        nests.append(For(i, index(4), "serial", inside))
    first, between, last = (every[at] for at in (1, 2, 3))
    body = seq(Alloc(first, seq(*nests[:2])), Alloc(last, seq(*nests[2:])))
    return Kernel((), (every[0], every[-1]), 1, Alloc(between, body))


def inline(label: str) -> Body:
    yield compute_inline((yield block_named(label)))


def inline_back(label: str) -> Body:
    yield reverse_compute_inline((yield block_named(label)))


def into(label: str, other: str) -> Body:
    (loop,) = yield loops((yield block_named(other)))
    yield compute_at((yield block_named(label)), loop)


def back_into(label: str, other: str) -> Body:
    (loop,) = yield loops((yield block_named(other)))
    yield reverse_compute_at((yield block_named(label)), loop)


def test_a_block_stays_where_its_buffers_are_allocated() -> None:
    assert refusal(in_parts(), lambda: inline("C")) == "allocated"
    assert refusal(in_parts(), lambda: inline_back("D")) == "allocated"
    assert refusal(in_parts(), lambda: into("C", "D")) == "allocated"
    assert refusal(in_parts(), lambda: back_into("D", "C")) == "allocated"


@pytest.mark.parametrize("label", ["B", "D"])
def test_a_part_may_change_inside(label: str) -> None:
    behind = {"B": "C", "D": "E"}[label]
    after(in_parts(), lambda: inline(label))
    after(in_parts(), lambda: inline_back(behind))
    after(in_parts(), lambda: into(label, behind))
    after(in_parts(), lambda: back_into(behind, label))
