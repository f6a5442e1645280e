"""Nests: what templates do to the loops of a block, whatever it computes.

    for i: for k: for v: y[i, v] += …  -->  for i:
                                                for v in vectorized: y[i, v] = 0
                                                for k: for v in vectorized: y[i, v] += …

The init of a reduction gets the loop kinds of its loops at decomposition.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from plica.ir.loop import Block
from plica.schedule import primitive as st
from plica.schedule.do import Body
from plica.schedule.handle import Handle


def opened(of: Block) -> Generator[Any, Any, tuple[Handle, tuple[Handle, ...]]]:
    """A block of the kernel, and the loops around it."""
    one = yield st.block(str(of.label))
    return one, (yield st.loops(one))


def in_registers(of: Block, loop: Handle) -> Generator[Any, Any, Handle]:
    """Computes a block inside a loop of what reads it, and keeps its results in registers."""
    one: Handle = yield st.block(str(of.label))
    yield st.compute_at(one, loop)
    yield st.set_scope(one, 0, "local")
    return one


def vectors(of: Sequence[Handle]) -> Body:
    """Vectorises the last of some nested loops, and unrolls those around it."""
    *many, lane = of
    for handle in many:
        yield st.unroll(handle)
    yield st.vectorize(lane)


def vectors_inside(of: Handle, outside: int) -> Body:
    """Vectorises the last loop of a block, and unrolls the others but for those `outside`."""
    every: tuple[Handle, ...] = yield st.loops(of)
    yield from vectors(every[outside:])


def summed(one: Handle, terms: Sequence[Handle], lanes: Sequence[Handle]) -> Body:
    """Puts the terms of a reduction around its lanes, which go in vectors, and begins before."""
    yield st.reorder(*terms, *lanes)
    yield from vectors(lanes)
    yield st.decompose_reduction(one, terms[0])


def along_row(of: Block) -> Body:
    """Vectorises the last loop of a block that is computed once, if it is no reduction."""
    if "reduce" in of.kinds:
        return
    _, every = yield from opened(of)
    if every:
        yield st.vectorize(every[-1])
