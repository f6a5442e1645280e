"""Shared: the rows of a plain loop nest for several cores.

    for i: for j: out[i, j] = …   -->   for i in parallel: for j: out[i, j] = …

Only if each iteration stores, and reads stored data, in its own row, and if there is enough work.
Scheduled kernels decide this themselves.

>>> from plica.codegen.lower.nest import nest
>>> from plica.ir.loop.stages import stages_of
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import buffer, compute
>>> x = buffer("x", (512, 300), f32)
>>> halves = nest(stages_of(compute((x,), (512, 600), lambda i, j: x[i, j // 2])))
>>> few = nest(stages_of(compute((x,), (4, 3), lambda i, j: x[i, j])))
>>> shared(halves).body.kind, shared(few).body.kind
('parallel', 'serial')
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from attrs import evolve

from plica.core import Term, fold, post_order
from plica.ir.loop import Buffer, Load, Scalar, statement as st
from plica.ir.type import known

MIN_SHARED_WORK: Final = 1 << 17  # fewer stores than that are not worth waking other cores


@lru_cache(maxsize=1024)
def shared(of: st.Kernel, least: int = MIN_SHARED_WORK) -> st.Kernel:
    """The kernel with its outermost loops for all cores, where they may be and it is worth it."""
    if of.dims:
        return of
    parts = of.body.stmts if isinstance(of.body, st.Seq) else (of.body,)
    made = [_shared(part, least) for part in parts]
    if made == list(parts):
        return of
    return evolve(of, body=made[0] if len(made) == 1 else st.Seq(tuple(made)))


def _shared(of: st.Stmt, least: int) -> st.Stmt:
    """A nest with its first loop of more than one iteration for all cores."""
    around: list[st.For] = []
    loop = of
    while isinstance(loop, st.For) and loop.kind == "serial" and known(loop.extent) == 1:
        around.append(loop)
        loop = loop.body
    if not isinstance(loop, st.For) or loop.kind != "serial" or _stores(loop) < least:
        return of
    if not _is_apart(loop):
        return of
    statement: st.Stmt = evolve(loop, kind="parallel")
    for each in reversed(around):
        statement = evolve(each, body=statement)
    return statement


def _stores(of: st.Stmt) -> int:
    """How often something is stored."""

    def algebra(node: Term, kids: tuple[int, ...]) -> int:
        if isinstance(node, st.Store):
            return 1
        times = known(node.extent) or 0 if isinstance(node, st.For) else 1
        return sum(kids) * times if isinstance(node, st.STATEMENTS) else 0

    return fold(algebra, of)


def _is_apart(of: st.For) -> bool:
    """Whether iterations touch nothing that another one stores."""
    nodes = post_order(of.body)
    if any(isinstance(node, st.Invoke | st.Barrier | st.While | st.Block) for node in nodes):
        return False
    own = {node.buffer for node in nodes if isinstance(node, st.Alloc)}
    touched = [
        node for node in nodes if isinstance(node, st.Store | Load) and node.buffer not in own
    ]
    written = {node.buffer for node in touched if isinstance(node, st.Store)}
    places: dict[Buffer, list[tuple[Scalar, ...]]] = {}
    for each in touched:
        if each.buffer in written:
            places.setdefault(each.buffer, []).append(each.indices)
    return all(
        any(all(place is of.var for place in axis) for axis in zip(*every, strict=True))
        for every in places.values()
    )
