"""Extracts the reductions inside a scalar: each becomes a tensor.

    x[i, j] / sum over k of x[i, k]     -->  sum[i] = sum over k of x[i, k];  x[i, j] / sum[i]

A tensor for a reduction has those axes that the reduction depends on, among them those of
reductions around it.  A reduction that is evaluated only under a guard gives its combiner's start
where the guard does not hold, so that nothing is read there.  One over an empty box is a number.

A reduction under several guards, or with extents that depend on axes, is not extracted.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer, reduce
>>> x, i, j = buffer("x", (2, 3), f32), axis("i"), axis("j")
>>> share = x[i, j] / reduce("sum", (3,), lambda k: x[i, k])
>>> value, (found,) = taken_out(share, dict(zip((i, j), x.shape)), lambda hint: hint)
>>> str(found.buffer.name), [str(each.name) for each in found.axes]
('sum', ['i'])
>>> value is x[i, j] / found.buffer[i]
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from attrs import frozen

from plica.core import (
    Name,
    Term,
    all_of,
    free_vars,
    fresh,
    map_bottom_up,
    post_order,
    reached,
    rebuild,
    substitute,
)
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.type.dim import known

MAX_GUARDS: Final = 16  # a reduction under more guards than this is not extracted

Axes: TypeAlias = Mapping[sc.ScalarVar, sc.Scalar]


@frozen(eq=False)
class TakenOut:
    """`buffer[axes]` is `body` combined over the box of `terms`."""

    buffer: sc.Buffer
    axes: tuple[sc.ScalarVar, ...]
    combiner: sc.Combiner
    terms: tuple[sc.ScalarVar, ...]
    extents: tuple[sc.Scalar, ...]
    body: sc.Scalar
    runs: sc.Runs = ""

    @property
    def value(self) -> sc.Reduce:
        """The reduction."""
        return sc.Reduce(self.combiner, self.terms, self.extents, self.body, self.runs)


def taken_out(
    value: sc.Scalar, axes: Axes, name: Callable[[Name], Name]
) -> tuple[sc.Scalar, tuple[TakenOut, ...]]:
    """A scalar without its reductions, and these, in an order in which they can be computed.

    `name` returns a fresh name similar to the given one.
    """
    value, sizes = _apart(value, axes)
    order = post_order(value)
    guards = _guards(value, order)
    new: dict[Term, Term] = {}
    extracted: list[TakenOut] = []
    for node in order:
        if isinstance(node, sc.Reduce):
            if isinstance(made := _single(node, guards[node], new, sizes, name), TakenOut):
                extracted.append(made)
                made = sc.Load(made.buffer, made.axes)
            if made is not None:
                new[node] = made
                continue
        kids = tuple([new[kid] for kid in node._children])
        new[node] = node if kids == node._children else rebuild(node, kids)
    result = new[value]
    assert isinstance(result, sc.Scalar)
    return result, tuple(extracted)


def exposed(body: sc.Scalar) -> list[sc.Reduce]:
    """The reductions that are evaluated whenever `body` is, and inside no other reduction."""

    def evaluated(node: Term) -> tuple[Term, ...]:
        match node:
            case sc.Reduce():
                return ()
            case sc.Select(first, _, _) | sc.And(first, _) | sc.Or(first, _):
                return (first,)
            case _:
                return node._children if isinstance(node, sc.Scalar) else ()

    root: Term = body
    return [node for node in reached(evaluated, root) if isinstance(node, sc.Reduce)]


def _single(
    node: sc.Reduce,
    guard: _Guard | None,
    new: Mapping[Term, Term],
    sizes: Axes,
    name: Callable[[Name], Name],
) -> TakenOut | sc.Scalar | None:
    """A reduction as a tensor, as a number, or None if it cannot be extracted."""
    start, _ = MEANING[node.combiner]
    if any(known(extent) == 0 for extent in node.extents):
        return start(sc.dtype_of(node))
    if guard is None or any(var in free_vars(size) for size in node.extents for var in sizes):
        return None
    body = new[node.body]
    assert isinstance(body, sc.Scalar)
    condition: sc.Scalar | None = None
    for said, holds in guard.known:
        here = new[said]
        assert isinstance(here, sc.Scalar)
        here = here if holds else sc.Not(here)
        condition = here if condition is None else sc.And(condition, here)
    if condition is not None:
        body = sc.Select(condition, body, start(sc.dtype_of(node)))
    inside = free_vars(body).difference(node.axes)
    axes = tuple([var for var in sizes if var in inside])
    shape = tuple([sizes[axis] for axis in axes])
    if any(not free_vars(dim).isdisjoint(sizes) for dim in shape):
        return None
    buffer = sc.Buffer(name(Name(node.combiner)), shape, sc.dtype_of(node))
    return TakenOut(buffer, axes, node.combiner, node.axes, node.extents, body, node.runs)


def _apart(value: sc.Scalar, axes: Axes) -> tuple[sc.Scalar, dict[sc.ScalarVar, sc.Scalar]]:
    """The value where no axis has two extents, and the extent of each."""
    sizes = dict(axes)
    clash = False
    for node in all_of(sc.Reduce, value):
        for var, extent in zip(node.axes, node.extents, strict=True):
            clash = clash or var in axes or sizes.setdefault(var, extent) is not extent
    if not clash:
        return value, sizes
    used = {node.name for node in all_of(sc.ScalarVar, value)}
    used.update(axis.name for axis in axes)
    sizes = dict(axes)

    def renamed(node: Term) -> Term:
        if not isinstance(node, sc.Reduce):
            return node
        moved: dict[Term, Term] = {}
        for var, extent in zip(node.axes, node.extents, strict=True):
            own = sc.ScalarVar(fresh(var.name, used), var.dtype)
            used.add(own.name)
            moved[var], sizes[own] = own, extent
        body = substitute(node.body, moved)
        own_axes = tuple(moved[axis] for axis in node.axes)
        return sc.Reduce(node.combiner, own_axes, node.extents, body, node.runs)  # type: ignore[arg-type]  # a term keeps its sort

    apart = map_bottom_up(renamed, value)
    return apart, sizes


@frozen
class _Guard:
    """The conditions under which a term is evaluated, outermost first, with their values."""

    known: tuple[tuple[sc.Scalar, bool], ...] = ()

    def also(self, condition: sc.Scalar, holds: bool) -> _Guard | None:
        if len(self.known) == MAX_GUARDS:
            return None
        return _Guard((*self.known, (condition, holds)))


_FREE: Final = _Guard()


def _either(a: _Guard | None, b: _Guard | None) -> _Guard | None:
    """The common guard of two guards, or None if neither contains the other."""
    if a == b or (a is not None and not a.known):
        return a
    if a is None or b is None:
        return b if b is not None and not b.known else None
    short, long = (a, b) if len(a.known) <= len(b.known) else (b, a)
    return short if long.known[: len(short.known)] == short.known else None


def _guards(value: sc.Scalar, order: list[Term]) -> dict[Term, _Guard | None]:
    """The guard of each part, or None if there is no unique one."""
    guards: dict[Term, _Guard | None] = {value: _FREE}

    def reach(kid: Term, guard: _Guard | None) -> None:
        guards[kid] = _either(guards[kid], guard) if kid in guards else guard

    for node in reversed(order):
        guard = guards[node]
        match node:
            case sc.Select(condition, then, orelse):
                reach(condition, guard)
                reach(then, None if guard is None else guard.also(condition, True))
                reach(orelse, None if guard is None else guard.also(condition, False))
            case sc.And(left, right) | sc.Or(left, right):
                reach(left, guard)
                holds = isinstance(node, sc.And)
                reach(right, None if guard is None else guard.also(left, holds))
            case _:
                for kid in node._children:
                    reach(kid, guard)
    return guards
