"""Narrow lanes: numbers that are made of places have 32 bits in vectors, where these are enough.

    for i in vectorized(8):                   for i in vectorized(8):
        y[i] = f32(min(i, 5) * 3)    -->          y[i] = f32(min(i32(i), i32(5)) * i32(3))

A register holds twice as many of them, and processors multiply and convert 64-bit numbers one by
one. Indices are unchanged: they are addresses.

Law: the kernel means the same.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from plica.analysis.index import Context, bounds
from plica.analysis.statement import contexts, outermost, walked, with_body, with_substatements
from plica.core import Term, free_vars, map_bottom_up, post_order, rebuild
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.type import i32, i64, polynomial

ARITHMETIC: Final = (sc.Add, sc.Sub, sc.Mul, sc.Min, sc.Max)

Lanes: TypeAlias = tuple[Context, frozenset[sc.ScalarVar]]
"""The context, and the variables of enclosing vector loops."""


def narrow_lanes(kernel: st.Kernel) -> st.Kernel:
    """The lowered kernel with casts of index terms in vectors from 32 bits."""
    if not any(_casts(statement) for statement in st.statements(kernel.body)):
        return kernel
    start: Lanes = (outermost(kernel), frozenset())
    return with_body(kernel, walked(kernel.body, start, _down, _up))


def _casts(stmt: st.Stmt) -> bool:
    """Whether a statement stores something that is made of a number of 64 bits."""
    return isinstance(stmt, st.Store) and any(map(_is_of_terms, post_order(stmt.value)))


def _is_of_terms(node: Term) -> bool:
    return (
        isinstance(node, sc.Cast)
        and isinstance(node.value, ARITHMETIC)
        and sc.dtype_of(node.value) is i64
        and node.dtype is not i64
    )


def _down(stmt: st.Stmt, state: Lanes) -> tuple[st.Stmt, tuple[Lanes, ...]]:
    context, lanes = state
    if isinstance(stmt, st.For):
        lanes = lanes | {stmt.var} if stmt.kind == "vectorized" else lanes - {stmt.var}
    return stmt, tuple([(each, lanes) for each in contexts(stmt, context)])


def _up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], state: Lanes) -> st.Stmt:
    context, lanes = state
    if not isinstance(stmt, st.Store) or not lanes:
        return with_substatements(stmt, parts)

    def cast(node: Term) -> Term:
        if not _is_of_terms(node) or lanes.isdisjoint(free_vars(node)):
            return node
        assert isinstance(node, sc.Cast)
        scalar = narrowed(node.value, context)
        return node if scalar is None else sc.Cast(scalar, node.dtype)

    value = map_bottom_up(cast, stmt.value)
    return stmt if value is stmt.value else st.Store(stmt.buffer, stmt.indices, value)


def narrowed(term: sc.Scalar, context: Context) -> sc.Scalar | None:
    """The same number computed in 32 bits, or None if it may overflow."""
    made: dict[Term, sc.Scalar] = {}
    for node in post_order(term):
        if not isinstance(node, sc.Scalar):
            continue  # the name of a variable
        if not _fits(node, context):
            return None
        match node:
            case sc.Lit(value):
                made[node] = sc.Lit(value, i32)
            case sc.Add() | sc.Sub() | sc.Mul() if _is_affine(node):
                made[node] = sc.Cast(node, i32)  # one number, and what the lanes add
            case sc.ScalarVar():
                made[node] = sc.Cast(node, i32)
            case sc.Add() | sc.Sub() | sc.Mul() | sc.Min() | sc.Max():
                small = rebuild(node, tuple([made[kid] for kid in node._children]))
                assert isinstance(small, sc.Scalar)
                made[node] = small
            case _:
                return None
    return made[term]


def _is_affine(term: sc.Scalar) -> bool:
    """Whether a term is a sum of multiples of variables."""
    parts = polynomial(term).values()
    return all(
        len(atoms) < 2 and all(isinstance(a, sc.ScalarVar) for a in atoms) for atoms, _ in parts
    )


def _fits(term: sc.Scalar, context: Context) -> bool:
    if sc.dtype_of(term) is not i64:
        return False
    low, high = i32.bounds
    span = bounds(term, context)
    return span.low is not None and span.high is not None and low <= span.low <= span.high <= high
