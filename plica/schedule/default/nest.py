"""Nests: what templates do to the loops of a block, whatever it computes.

    for i: for k: for v: y[i, v] += …  -->  for i:
                                                for v in vectorized: y[i, v] = 0
                                                for k: for v in vectorized: y[i, v] += …

The init of a reduction gets the loop kinds of its loops at decomposition.
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.ir.loop import Block
from plica.schedule.default import step as st
from plica.schedule.do import Body
from plica.schedule.handle import Handle


def vectors(of: Sequence[Handle]) -> Body:
    """Vectorises the last of some nested loops, and unrolls those around it."""
    *many, lane = of
    for each in many:
        yield st.unroll(each)
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
    every: tuple[Handle, ...] = yield st.loops((yield st.block(str(of.label))))
    if every:
        yield st.vectorize(every[-1])
