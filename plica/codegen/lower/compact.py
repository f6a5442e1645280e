"""Compact: a buffer is as large as the region that is touched while it lives.

    with alloc(T[64, 64]):                      with alloc(T[1, 16]):
        for j in range(16):           -->           for j in range(16):
            T[i, j * 1 + k] = …                         T[0, j] = …

Along each axis the touched places are `start + offset`, with the start in terms of outer variables;
offsets are bounded by numbers or dims. If that cannot be shown, the axis is unchanged.

Memory that the threads of a block share is one for all of them, so their variables are inside.

Laws: the meaning is preserved; buffers do not grow, except when an open size becomes constant: a
tile with few rows is as large as a full one. Conditions are ignored, so the region may be larger
than what is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.index import Context, can_prove
from plica.analysis.index.polynomial import polynomial
from plica.analysis.statement import (
    contexts,
    holding,
    opened_sum,
    outermost,
    walked,
    with_body,
    with_substatements,
)
from plica.analysis.statement_coverage import part_touching
from plica.analysis.symbolic_bound import reach
from plica.core import Term, free_vars
from plica.core.fold import map_within
from plica.ir.loop import statement as st
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer, Le, Load, Min, Reduce, Scalar, ScalarVar, index
from plica.ir.type import Polynomial, from_polynomial, known

BANKS: Final = 32  # elements after which memory that threads share begins again with its first bank

State: TypeAlias = tuple[Context, frozenset[ScalarVar]]


def compact(kernel: st.Kernel) -> st.Kernel:
    """The kernel with buffers no larger than they need be."""
    start: State = (outermost(kernel), frozenset())
    up = partial(_up, frozenset(kernel.dims))
    holds = holding(lambda stmt: isinstance(stmt, st.Alloc))
    return with_body(kernel, walked(kernel.body, start, _down, up, enters=holds))


def _down(stmt: st.Stmt, state: State) -> tuple[st.Stmt, tuple[State, ...]]:
    context, lanes = state
    if isinstance(stmt, st.For) and stmt.kind.startswith("threadIdx"):
        lanes |= {stmt.var}
    return stmt, tuple([(each, lanes) for each in contexts(stmt, context)])


def _up(
    dims: frozenset[ScalarVar], stmt: st.Stmt, parts: tuple[st.Stmt, ...], state: State
) -> st.Stmt:
    if not isinstance(stmt, st.Alloc) or not _has_numbers(stmt.buffer):
        return with_substatements(stmt, parts)
    body, buffer = parts[0], stmt.buffer
    if any(isinstance(statement, st.Block) for statement in st.statements(body)):
        return with_substatements(stmt, parts)
    context, lanes = state
    shared = scope(buffer.scope).reach in ("block", "warp")
    touching, own = part_touching(body, buffer), lanes if shared else frozenset[ScalarVar]()
    spans = _spans(buffer, touching, context, own, dims)
    if spans is None or all(span is None for span in spans):
        return st.Alloc(buffer, body)
    shape = [
        size if span is None else span.extent
        for span, size in zip(spans, buffer.shape, strict=True)
    ]
    if (strides := _strides(buffer, shape)) is None:
        return st.Alloc(buffer, body)
    small = Buffer(buffer.name, tuple(shape), buffer.dtype, buffer.scope, strides, buffer.align)
    starts = [None if span is None else span.start for span in spans]
    return st.Alloc(small, _moved(body, buffer, small, starts))


def _has_numbers(buffer: Buffer) -> bool:
    return all(known(scalar) is not None for scalar in (*buffer.strides, *buffer.shape[1:])) or (
        not buffer.strides
    )


def _strides(old: Buffer, shape: Sequence[Scalar]) -> tuple[Scalar, ...] | None:
    """The strides of a smaller buffer: rows that were further apart than they need be still are.

    They meet in the same banks of memory as before.
    """
    if not old.strides:
        return ()
    scalars: list[Scalar] = []
    dense, was = 1, 1
    for stride, size, before in zip(
        reversed(old.strides), reversed(shape), reversed(old.shape), strict=True
    ):
        step, count, whole = known(stride), known(size), known(before)
        if step is None or count is None or whole is None or step < was:
            return None
        new = dense + (step - dense) % BANKS if step > was else dense
        scalars.append(index(new))
        dense, was = new * count, step * whole
    return tuple(reversed(scalars))


@frozen(eq=False)
class AxisSpan:
    """Along an axis: from `start`, `extent` places."""

    start: Scalar
    extent: Scalar


@frozen(eq=False)
class _Place:
    """The touched range of a buffer along its axes, and the context."""

    first: tuple[Scalar, ...]
    last: tuple[Scalar, ...]
    context: Context
    terms: tuple[ScalarVar, ...] = ()  # the axes of sums around it


def _places(
    root: st.Stmt, buffer: Buffer, start: Context, *, guards: bool = True
) -> list[_Place] | None:
    """All accesses to a buffer in a statement, or None if one is unknown.

    Without `guards` what those say is not known.
    """
    places: list[_Place] = []
    seen: set[tuple[st.Stmt, Context]] = set()
    stack: list[tuple[st.Stmt, Context]] = [(root, start)]
    while stack:
        stmt, context = stack.pop()
        if (stmt, context) in seen or buffer not in free_vars(stmt):
            continue
        seen.add((stmt, context))
        inside = st.substatements(stmt)
        own = [term for term in stmt._children if term not in inside and buffer in free_vars(term)]
        for node, here, terms in _parts(own, buffer, context):
            match node:
                case Load(target, indices) if target is buffer:
                    places.append(_Place(indices, indices, here, terms))
                case st.Region(target, starts, extents) if target is buffer:
                    ends = [s + e - 1 for s, e in zip(starts, extents, strict=True)]
                    places.append(_Place(starts, tuple(ends), here, terms))
                case _:
                    pass
        if isinstance(stmt, st.Store) and stmt.buffer is buffer:
            places.append(_Place(stmt.indices, stmt.indices, context))
        known_inside = contexts(stmt, context)
        if isinstance(stmt, st.Branch) and not guards:
            known_inside = (context,) * len(inside)
        stack.extend(zip(inside, known_inside, strict=True))
    return places


def _parts(
    own: Iterable[Term], buffer: Buffer, context: Context
) -> Iterator[tuple[Term, Context, tuple[ScalarVar, ...]]]:
    """The parts of terms that touch a buffer, with the context of enclosing reduction axes."""
    seen: set[tuple[Term, Context]] = set()
    stack: list[tuple[Term, Context, tuple[ScalarVar, ...]]] = [(e, context, ()) for e in own]
    while stack:
        node, here, terms = stack.pop()
        if (node, here) in seen or buffer not in free_vars(node):
            continue
        seen.add((node, here))
        yield node, here, terms
        if isinstance(node, Reduce):
            stack += [(extent, here, terms) for extent in node.extents]
            node, loops = opened_sum(node, len(terms))
            for var, size in loops:
                here, terms = here.loop(var, size), (*terms, var)
            stack.append((node, here, terms))
        else:
            stack += [(child, here, terms) for child in node._children]


@lru_cache(maxsize=1024)  # kernels that differ in an epilogue have the same stages before it
def _spans(
    buffer: Buffer,
    body: st.Stmt,
    context: Context,
    lanes: frozenset[ScalarVar],
    dims: frozenset[ScalarVar],
) -> tuple[AxisSpan | None, ...] | None:
    if not (places := _places(body, buffer, context)):
        return None
    loops = [each.var for each in st.statements(body) if isinstance(each, st.For | st.Bind)]
    inner, plain = lanes.union(loops, *[place.terms for place in places]), context
    context = context.without(lanes)
    spans: list[AxisSpan | None] = []
    own = scope(buffer.scope).reach == "thread" and any(
        isinstance(statement, st.Branch) for statement in st.statements(body)
    )
    alike: list[_Place] | None = None
    for at, size in enumerate(buffer.shape):
        span = _span_along(at, places, inner, size, context, dims)
        if span is None and own:
            # Behind a guard a place may be a number that is a variable elsewhere.
            if alike is None:
                alike = _places(body, buffer, plain, guards=False) or places
            span = _span_along(at, alike, inner, size, context, dims)
        spans.append(span)
    return tuple(spans)


def _span_along(  # noqa: PLR0917  # an axis, and what is known of it
    at: int,
    places: Sequence[_Place],
    inner: frozenset[ScalarVar],
    size: Scalar,
    context: Context,
    dims: frozenset[ScalarVar],
) -> AxisSpan | None:
    span = _span(_outermost(at, places), inner, size, context)
    # An extent that varies between iterations is unchanged.
    return span if span is not None and free_vars(span.extent) <= dims else None


def _outermost(at: int, places: Sequence[_Place]) -> list[tuple[Scalar, Scalar, Context]]:
    """The first and the last of places along an axis, of those that differ in a number alone."""
    ends: dict[object, tuple[tuple[int, Scalar], tuple[int, Scalar], Context]] = {}
    for each in dict.fromkeys([(each.first[at], each.last[at], each.context) for each in places]):
        first, last, context = each
        low, high = polynomial(first), polynomial(last)
        below, above = (low.constant, first), (high.constant, last)
        key = low.form, high.form, context
        if key in ends:
            below = min(below, ends[key][0], key=lambda end: end[0])
            above = max(above, ends[key][1], key=lambda end: end[0])
        ends[key] = below, above, context
    return [(first, last, context) for (_, first), (_, last), context in ends.values()]


def _span(
    places: Sequence[tuple[Scalar, Scalar, Context]],
    inner: frozenset[ScalarVar],
    size: Scalar,
    context: Context,
) -> AxisSpan | None:
    """The range of one axis, or None if it is unchanged."""
    low: Polynomial | None = None
    high: Polynomial | None = None
    whole = known(size)
    for first, last, here in places:
        below, above = reach(first, inner, here, False), reach(last, inner, here, True)
        if below is None or above is None:
            return None
        low = below if low is None else _extreme(low, below, False)
        high = above if high is None else _extreme(high, above, True)
        if low is None or high is None:
            return None
        if whole is not None and _is_number(low) and _is_number(high):
            count = _constant(high) - _constant(low) + 1
            if count >= whole:
                return None  # further places make it no smaller
    assert low is not None
    assert high is not None
    start = simple(from_polynomial(low), context)
    extent = simple(from_polynomial(high) - start + 1, context)
    length = known(extent)
    if length is not None and length < 1:
        return None  # nothing is touched, or nothing is known
    if length is not None and whole is not None:
        return AxisSpan(start, extent) if length < whole else None
    if extent is simple(size, context):
        return None
    if can_prove(Le(extent, size), context):
        return AxisSpan(start, extent)
    if length is not None:  # all that is touched is in there, wherever that begins
        return AxisSpan(start, extent)
    return AxisSpan(start, Min(extent, size)) if can_prove(Le(index(0), start), context) else None


def _extreme(a: Polynomial, b: Polynomial, upper: bool) -> Polynomial | None:
    """The lesser or greater of two places that differ by a number."""
    if a is b:
        return a
    if {key: count for key, (_, count) in a.items() if key} != {
        key: count for key, (_, count) in b.items() if key
    }:
        return None
    difference = _constant(a) - _constant(b)
    return a if (difference >= 0) == upper else b


def _is_number(of: Polynomial) -> bool:
    return not any(of)  # the key of a constant is empty


def _constant(of: Polynomial) -> int:
    return sum([count for key, (_, count) in of.items() if not key])


def _moved(body: st.Stmt, old: Buffer, new: Buffer, starts: Sequence[Scalar | None]) -> st.Stmt:
    """The statement with places counted from the starts."""

    def places(indices: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple(
            [
                scalar if start is None else simple(scalar - start)
                for scalar, start in zip(indices, starts, strict=True)
            ]
        )

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if buffer is old:
                return Load(new, places(indices))
            case st.Store(buffer, indices, value) if buffer is old:
                return st.Store(new, places(indices), value)
            case st.Region(buffer, first, extents) if buffer is old:
                return st.Region(new, places(first), extents)
            case _:
                return node

    return map_within(change, body, lambda node: old in free_vars(node))
