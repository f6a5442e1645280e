"""Copies that turn rows: squares of elements are read along rows and turned in registers.

    for k in range(200, turn=True):                 for t in range(25):
        for v in vectorized(8):                         for r in unrolled(8):
            packed[b, k, v] = w[8 * b + v, k]  -->          for c in vectorized(8):
                                                                tile[r, c] = w[8 * b + r, 8 * t + c]
                                                        for c in unrolled(8):
                                                            for v in vectorized(8):
                                                                packed[b, 8 * t + c, v] = tile[v, c]

Lanes that lie whole rows apart would be gathered, an element at a time, while neighbours are at
hand.  What is left of a row is part of a square that ends with it and begins in another: its
elements are written once more.  A choice between what is read and a number is made for each row.

A loop asks for it by the note `turn`; where it is no such copy, or one that is shorter than a
vector, it stays as it is.

Laws: the kernel means the same; doing it twice changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from plica.analysis.statement import mapped, with_body
from plica.core.binding import free_vars, substitute
from plica.core.fold import post_order
from plica.core.name import Name, fresh
from plica.ir.loop import scalar as sc
from plica.ir.loop import statement as st
from plica.ir.type.dim import known, polynomial
from plica.ir.type.dtype import i64

LEAST: Final = 4
"""Lanes of a vector that is worth turning."""

NOTE: Final = "turn"


def turn_copies(kernel: st.Kernel) -> st.Kernel:
    """The kernel in which copies that ask for it go in squares."""
    used = {each.name for each in post_order(kernel) if isinstance(each, sc.ScalarVar | sc.Buffer)}
    return with_body(kernel, mapped(kernel.body, partial(_turned, used)))


def _turned(used: set[Name], stmt: st.Stmt) -> st.Stmt:
    match stmt:
        case st.For(
            row, length, kind, st.For(lane, width, "vectorized", st.Store() as store), notes
        ) if NOTE in dict(notes):
            pass
        case _:
            return stmt
    count, lanes = known(length) or 0, known(width) or 0
    read = _read(store, row, lane)
    if read is None or lanes < LEAST or lanes & (lanes - 1) or count < lanes:
        return st.For(row, length, kind, stmt.body, st.annotated(notes, **{NOTE: None}))

    def name(hint: str) -> Name:
        found = fresh(Name(hint), used)
        used.add(found)
        return found

    tile = sc.Buffer(name("tile"), (sc.index(lanes * lanes),), read.buffer.dtype, "local")

    def square(start: sc.Scalar) -> st.Stmt:
        r, c, column, v = (sc.ScalarVar(name(each), i64) for each in "rccv")
        value = substitute(store.value, {lane: r, row: start + c})
        inner = st.For(c, width, "vectorized", st.Store(tile, (r * lanes + c,), value))
        picked = sc.Load(tile, (v * lanes + column,))
        places = [substitute(each, {lane: v, row: start + column}) for each in store.indices]
        stored = st.For(v, width, "vectorized", st.Store(store.buffer, tuple(places), picked))
        both = (st.For(r, width, "unrolled", inner), st.For(column, width, "unrolled", stored))
        return st.Alloc(tile, st.seq(*both))

    t = sc.ScalarVar(name("t"), i64)
    start: sc.Scalar = t * lanes
    if count % lanes:
        start = sc.Min(start, sc.index(count - lanes))
    return st.For(t, sc.index(-(-count // lanes)), kind, square(start))


def _read(of: st.Store, row: sc.ScalarVar, lane: sc.ScalarVar) -> sc.Load | None:
    """What such a copy reads, None where it is none: neighbours along the row are neighbours there,
    lanes are in other places, and nothing else depends on the row."""
    match of.value:
        case sc.Select(condition, sc.Load() as read, sc.Lit()) if row not in free_vars(condition):
            pass
        case sc.Load() as read:
            pass
        case _:
            return None
    *outer, last = read.indices
    if read.buffer is of.buffer or not _is_step(last, row) or lane in free_vars(last):
        return None
    if any(row in free_vars(each) for each in outer):
        return None
    *outer, last = of.indices
    written = _is_step(last, lane) and row not in free_vars(last)
    return read if written and not any(lane in free_vars(each) for each in outer) else None


def _is_step(place: sc.Scalar, along: sc.ScalarVar) -> bool:
    """Whether a place goes on by one along a variable."""
    found = [
        (atoms, factor)
        for atoms, factor in polynomial(place).values()
        if any(along in free_vars(atom) for atom in atoms)
    ]
    return found == [((along,), 1)]
