"""Accesses: the buffer regions that a statement reads and writes, in terms of the enclosing
variables.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, o = buffer("x", (12,), f32), buffer("y", (12,), f32), axis("i"), axis("o")
>>> body = For(i, sc.index(4), "serial", Store(y, (o * 4 + i,), x[o * 4 + i]))
>>> [(str(each.buffer.name), each.written, len(each.inner)) for each in accesses(body)]
[('y', True, 1), ('x', False, 1)]

Block variables inside the statement are replaced by their bindings. Guards are ignored: a guarded
access counts. Buffers allocated inside are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from attrs import evolve, frozen

from plica.analysis.statement import reads_memory
from plica.core import Name, Term, fold_into, free_vars, fresh, substitute
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.loop.vector import has_vectors
from plica.ir.type import i64
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.loop.invocation import find_intrinsic

Inner: TypeAlias = "tuple[tuple[sc.ScalarVar, sc.Scalar], ...]"
Known: TypeAlias = "Mapping[Term, sc.Scalar | None]"

ZERO: Final = sc.index(0)
ONE: Final = sc.index(1)


@frozen(eq=False)
class Access:
    """A box of a buffer, at every point of the loops `inner`; None if it depends on data."""

    buffer: sc.Buffer
    starts: tuple[sc.Scalar | None, ...]
    extents: tuple[sc.Scalar, ...]
    inner: Inner
    written: bool
    facts: tuple[sc.Scalar, ...]  # predicates of blocks inside the statement
    certain: bool  # no guard is in the way inside the statement


@frozen(eq=False)
class _Place:
    """The state of a walk: the values of names, the loops inside the root, and local buffers."""

    known: Known
    inner: Inner
    own: frozenset[sc.Buffer]
    facts: tuple[sc.Scalar, ...] = ()
    certain: bool = True


NOWHERE: Final = _Place({}, (), frozenset())  # outside of everything: names mean themselves


_found: Final[WeakKeyDictionary[st.Stmt, tuple[Access, ...]]] = WeakKeyDictionary()
"""Accesses by statement: a schedule step leaves most statements unchanged."""


def accesses(root: st.Stmt) -> tuple[Access, ...]:
    """Every access of a statement, in the order of the text; a block's free of its bindings."""
    if (found := _found.get(root)) is None:
        found = fold_into(_found, root, _parts, _gathered)
    return found


def _parts(stmt: st.Stmt) -> tuple[st.Stmt, ...]:
    """The statements whose accesses say what those of a statement are."""
    return st.substatements(stmt) if isinstance(stmt, st.For | st.Seq | st.Alloc) else ()


def _gathered(stmt: st.Stmt) -> tuple[Access, ...]:
    """The accesses of a statement, whose parts have theirs."""
    match stmt:
        case st.Seq(stmts):
            return tuple([access for part in stmts for access in _found[part]])
        case st.Alloc(buffer, body):
            return tuple([access for access in _found[body] if access.buffer is not buffer])
        case st.For(var, extent, _, body) if not reads_memory(extent):
            loop = var, extent
            return tuple([evolve(access, inner=(loop, *access.inner)) for access in _found[body]])
        case st.Block():
            found = _bound(stmt)
            return _walked((stmt,), NOWHERE) if found is None else found
        case _:
            return _walked((stmt,), NOWHERE)


def _bound(block: st.Block) -> tuple[Access, ...] | None:
    """The accesses of a block, from those in terms of its variables; None if an inner name clashes
    with a binding, or if an iteration count depends on data."""
    values = zip(block.vars, block.bindings, strict=True)
    known: dict[Term, sc.Scalar | None] = {var: _value(value, {}) for var, value in values}
    around = frozenset[Term]().union(*map(free_vars, (*block.bindings, block.predicate)))
    predicate = () if block.predicate is st.TRUE else (block.predicate,)
    facts = tuple([scalar for scalar in predicate if not reads_memory(scalar)])
    found = _loads((block.predicate, *block.bindings), NOWHERE)
    for access in inside(block):
        inner: list[tuple[sc.ScalarVar, sc.Scalar]] = []
        for var, size in access.inner:
            if var in around or (outside := _value(size, known)) is None:
                return None
            inner.append((var, outside))
        sizes = [_value(size, known) for size in access.extents]
        extents = [size for size in sizes if size is not None]
        if len(extents) < len(sizes):
            return None
        starts = [None if start is None else _value(start, known) for start in access.starts]
        said = [fact for own in access.facts if (fact := _value(own, known)) is not None]
        here = _Place(known, tuple(inner), frozenset(), (*facts, *said))
        here = evolve(here, certain=access.certain and not predicate)
        found.append(_box(access.buffer, starts, extents, here.inner, here, written=access.written))
    return tuple(found)


@lru_cache(maxsize=1024)
def unbound(block: st.Block) -> st.Block:
    """The block without bindings and predicate.

    Facts about the unbound block are computed once, whatever loops enclose it later.
    """
    return evolve(block, bindings=(ZERO,) * len(block.vars), predicate=st.TRUE)


def inside(block: st.Block) -> tuple[Access, ...]:
    """The accesses of a block in terms of its own variables."""
    return _inside(unbound(block))


@lru_cache(maxsize=1024)
def _inside(block: st.Block) -> tuple[Access, ...]:
    roots: list[st.Stmt] = [block.body] if block.init is None else [block.init, block.body]
    return _walked(tuple(roots), NOWHERE)


def _walked(roots: tuple[st.Stmt, ...], start: _Place) -> tuple[Access, ...]:
    found: list[Access] = []
    stack = [(root, start) for root in reversed(roots)]
    while stack:
        stmt, here = stack.pop()
        deeper = here
        scalars: tuple[sc.Scalar, ...] = ()
        match stmt:
            case st.For(var, extent):
                scalars = (extent,)
                deeper = _looped(here, (var,), (extent,))
            case st.Block():
                scalars = (stmt.predicate, *stmt.bindings)
                values = zip(stmt.vars, stmt.bindings, strict=True)
                meant: dict[Term, sc.Scalar | None] = {
                    var: _value(value, here.known) for var, value in values
                }
                deeper = evolve(here, known={**here.known, **meant})
                if stmt.predicate is not st.TRUE:
                    fact = _value(stmt.predicate, here.known)
                    facts = here.facts if fact is None else (*here.facts, fact)
                    deeper = evolve(deeper, facts=facts, certain=False)
            case st.Bind(var, value):
                scalars = (value,)
                new = {**here.known, var: _value(value, here.known)}
                deeper = evolve(here, known=new)
            case st.Branch(condition) | st.While(condition):
                scalars = (condition,)
                deeper = evolve(here, certain=False)
            case st.Alloc(buffer):
                deeper = evolve(here, own=here.own | {buffer})
            case st.Store(buffer, indices, value):
                scalars = (value, *indices)
                if buffer not in here.own:
                    found.append(_element(buffer, indices, here, written=True))
            case st.Invoke():
                found += _invoked(stmt, here)
                for each in stmt.operands:
                    parts = (each,) if isinstance(each, sc.Scalar) else each.starts + each.extents
                    scalars += parts
            case _:
                pass
        found += _loads(scalars, here)
        stack.extend([(substatement, deeper) for substatement in reversed(st.substatements(stmt))])
    return tuple(found)


def _loads(roots: tuple[sc.Scalar, ...], here: _Place) -> list[Access]:
    found: list[Access] = []
    seen: set[tuple[sc.Scalar, Inner]] = set()
    stack = [(root, here) for root in reversed(roots)]
    while stack:
        node, place = stack.pop()
        if (node, place.inner) in seen or not reads_memory(node):
            continue
        seen.add((node, place.inner))
        match node:
            case sc.Load(buffer, indices):
                if buffer not in place.own:
                    found.append(_element(buffer, indices, place, written=False))
                stack.extend([(index, place) for index in reversed(indices)])
            case sc.Reduce(_, axes, extents, body):
                stack.append((body, _looped(place, axes, extents)))
            case _:
                kids = [kid for kid in node._children if isinstance(kid, sc.Scalar)]
                stack.extend([(kid, place) for kid in reversed(kids)])
    return found


def _element(
    buffer: sc.Buffer, indices: tuple[sc.Scalar, ...], here: _Place, *, written: bool
) -> Access:
    """An element, or the elements that an index of several lanes means."""
    inner = here.inner
    starts: list[sc.Scalar | None] = []
    for index in indices:
        start: sc.Scalar | None = index
        match index:
            case sc.Ramp(base, stride, lanes):
                lane = sc.ScalarVar(_unused(indices, inner), i64)
                inner = (*inner, (lane, sc.index(lanes)))
                start = base + stride * lane
            case sc.Broadcast(value, _):
                start = value
            case _:
                pass
        starts.append(None if start is None or has_vectors(start) else _value(start, here.known))
    return _box(buffer, starts, [ONE] * len(starts), inner, here, written=written)


def _invoked(stmt: st.Invoke, here: _Place) -> list[Access]:
    found = []
    meaning = find_intrinsic(stmt.name)
    params = None if meaning is None else meaning.meaning.params
    for at, operand in enumerate(stmt.operands):
        if not isinstance(operand, st.Region):
            continue
        modes = [False, True]
        if params is not None and meaning is not None and at < len(params):
            of = [a.written for a in accesses(meaning.meaning.body) if a.buffer is params[at]]
            modes = sorted(set(of))
        if operand.buffer in here.own:
            continue
        starts: list[sc.Scalar | None] = []
        extents: list[sc.Scalar] = []
        for start, extent in zip(operand.starts, operand.extents, strict=True):
            size = _value(extent, here.known)
            starts.append(None if size is None else _value(start, here.known))
            extents.append(ONE if size is None else size)
        for written in modes:
            found.append(_box(operand.buffer, starts, extents, here.inner, here, written=written))
    return found


def _box(
    buffer: sc.Buffer,
    starts: list[sc.Scalar | None],
    extents: list[sc.Scalar],
    inner: Inner,
    here: _Place,
    *,
    written: bool,
) -> Access:
    sizes = [
        size if start is None else extent
        for start, extent, size in zip(starts, extents, buffer.shape, strict=True)
    ]
    return Access(buffer, tuple(starts), tuple(sizes), inner, written, here.facts, here.certain)


def _value(term: sc.Scalar, known: Known) -> sc.Scalar | None:
    """The term in terms of outer variables, or None if it depends on data."""
    if reads_memory(term):
        return None
    if not known:
        return term
    mine: dict[Term, sc.Scalar] = {}
    for var in free_vars(term):
        if var in known:
            if (value := known[var]) is None:
                return None
            mine[var] = value
    return substitute(term, mine) if mine else term


def _looped(here: _Place, axes: tuple[sc.ScalarVar, ...], extents: tuple[sc.Scalar, ...]) -> _Place:
    """The place inside loops; a loop whose extent depends on data is itself such."""
    known, inner = dict(here.known), list(here.inner)
    for var, extent in zip(axes, extents, strict=True):
        if (size := _value(extent, here.known)) is None:
            known[var] = None
        else:
            known.pop(var, None)
            inner.append((var, size))
    return evolve(here, known=known, inner=tuple(inner))


def _unused(indices: tuple[sc.Scalar, ...], inner: Inner) -> Name:
    used = {var.name for var, _ in inner}
    for index in indices:
        used |= {var.name for var in free_vars(index) if isinstance(var, sc.ScalarVar)}
    return fresh(Name("lane"), used)
