"""Verifiers that prove: every access is inside its buffer, and inside the regions a block declares.

What cannot be proved is a finding, with the point where it fails if one is known.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
>>> off = st.Kernel((), (x, y), 1, st.For(i, x.shape[0], "serial", st.Store(y, (i,), x[i + 1])))
>>> [each.found for each in in_bounds(off)]
['dimension 0 where i = 2']

Not here: what needs no proof (`plica.ir.loop.verify`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from attrs import frozen

from plica.analysis.index import EMPTY, Context, Fails, Holds, can_prove, decide
from plica.analysis.statement import contexts
from plica.core import free_vars
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.loop.vector import store_lanes
from plica.runtime.error import Diagnostic, Place


@frozen(eq=False)
class VerifiedAccess:
    """An access to a buffer: its place, its statement, and its context."""

    buffer: sc.Buffer
    starts: tuple[sc.Scalar, ...]
    extents: tuple[sc.Scalar, ...]  # empty for a single element
    context: Context
    written: bool
    blocks: tuple[st.Block, ...]  # those around, outermost first

    def stays(self, at: int, low: sc.Scalar, high: sc.Scalar) -> sc.Scalar:
        """The condition that along a dimension the access is in `low <= … < high`."""
        start = self.starts[at]
        if not self.extents:
            return sc.And(sc.Le(low, start), sc.Lt(start, high))
        return sc.And(sc.Le(low, start), sc.Le(start + self.extents[at], high))

    def bound(self) -> Context:
        """The context with block variables equal to their bindings: predicates refer to loops,
        indices to block variables."""
        pairs = [
            pair for block in self.blocks for pair in zip(block.vars, block.bindings, strict=True)
        ]
        return self.context.where(*[sc.Eq(var, place) for var, place in pairs if not _reads(place)])


def in_bounds(kernel: st.Kernel, *, checked_reads: bool = False) -> tuple[Diagnostic, ...]:
    """The accesses and block bindings not shown to stay in their ranges.

    With `checked_reads` a read of which nothing is shown is no finding: code that checks such
    indices when it runs says where one was outside.
    """
    diagnostics = list(_bindings(kernel))
    for access in accesses(kernel):
        for at, size in enumerate(access.buffer.shape):
            stays = access.stays(at, sc.index(0), size)
            if can_prove(stays, access.context, quick=True):  # as most do, and at once
                continue
            answer = decide(stays, access.context)
            if not isinstance(answer, Holds) and access.blocks:
                answer = decide(stays, access.bound())
            refuted = _refutation(answer)
            if checked_reads and not access.written and refuted is None:
                continue
            if not isinstance(answer, Holds):
                name = str(access.buffer.name)
                how = "written" if access.written else "read"
                message = f"{name!r} is not shown to be {how} inside its bounds."
                point = "" if refuted is None else f" where {refuted}"
                diagnostics.append(
                    Diagnostic(
                        "index-out-of-bounds",
                        message,
                        Place(node=name),
                        None,
                        f"dimension {at}{point}",
                    )
                )
    return tuple(dict.fromkeys(diagnostics))


def regions_cover(kernel: st.Kernel) -> tuple[Diagnostic, ...]:
    """The accesses that are not shown to be inside the regions that blocks declare."""
    diagnostics: list[Diagnostic] = []
    for access in accesses(kernel):
        for block in access.blocks:
            if block.writes if access.written else block.reads:
                declared = block.writes if access.written else (*block.reads, *block.writes)
                if access.buffer in _made_inside(block):
                    continue
                if not _is_covered(access, declared):
                    label, name = str(block.label), str(access.buffer.name)
                    how = "writes" if access.written else "reads"
                    message = f"The block {label!r} {how} {name!r} outside what it declares."
                    diagnostics.append(Diagnostic("region-uncovered", message, Place(node=label)))
    return tuple(dict.fromkeys(diagnostics))


def _is_covered(access: VerifiedAccess, declared: Sequence[st.Region]) -> bool:
    any_of: sc.Scalar | None = None
    for region in declared:
        if region.buffer is not access.buffer:
            continue
        inside: sc.Scalar | None = None
        for at, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
            here = access.stays(at, start, start + extent)
            inside = here if inside is None else sc.And(inside, here)
        if inside is None or can_prove(inside, access.context):
            return True
        any_of = inside if any_of is None else sc.Or(any_of, inside)
    return any_of is not None and can_prove(any_of, access.context)


def bindings(kernel: st.Kernel) -> Iterator[tuple[str, sc.ScalarVar, sc.Scalar, Context]]:
    """For each block variable: the block's label, the variable, the claim that its binding is in
    range, and the context."""
    for stmt, context, _ in _places(kernel):
        if not isinstance(stmt, st.Block):
            continue
        here = context.where(stmt.predicate)
        for var, place, extent in zip(stmt.vars, stmt.bindings, stmt.extents, strict=True):
            claim = sc.And(sc.Le(sc.index(0), place), sc.Lt(place, extent))
            yield str(stmt.label), var, claim, here


def _bindings(kernel: st.Kernel) -> Iterator[Diagnostic]:
    for label, var, claim, context in bindings(kernel):
        answer = decide(claim, context)
        if not isinstance(answer, Holds):
            message = f"The variable {str(var.name)!r} of the block {label!r} leaves its range."
            point = _refutation(answer)
            yield Diagnostic("binding-out-of-range", message, Place(node=label), None, point)


@lru_cache(maxsize=64)
def accesses(kernel: st.Kernel) -> tuple[VerifiedAccess, ...]:
    """Every access of a kernel, in text order, with its context."""
    found: list[VerifiedAccess] = []
    for stmt, context, blocks in _places(kernel):
        scalars: tuple[sc.Scalar, ...] = ()
        match stmt:
            case st.For(_, extent):
                scalars = (extent,)
            case st.Block():
                scalars = (stmt.predicate, *stmt.bindings)
            case st.Branch(condition) | st.While(condition):
                scalars = (condition,)
            case st.Bind(_, value):
                scalars = (value,)
            case st.Store(buffer):
                scalars = store_lanes(stmt)
                width = len(stmt.indices) + 1
                for at in range(0, len(scalars), width):
                    indices = scalars[at : at + width - 1]
                    found.append(VerifiedAccess(buffer, indices, (), context, True, blocks))
            case st.Invoke(_, operands):
                for each in operands:
                    if isinstance(each, st.Region):
                        for written in (False, True):
                            found.append(
                                VerifiedAccess(each.buffer, each.starts, each.extents, context,
                                       written, blocks)
                            )  # fmt: skip
            case _:
                pass
        for load, inside in _loads(scalars, context):
            found.append(VerifiedAccess(load.buffer, load.indices, (), inside, False, blocks))
    return tuple(found)


def _places(kernel: st.Kernel) -> Iterator[tuple[st.Stmt, Context, tuple[st.Block, ...]]]:
    """Every statement with its context."""
    start = EMPTY.where(*[sc.Le(sc.index(0), dim) for dim in kernel.dims])
    stack: list[tuple[st.Stmt, Context, tuple[st.Block, ...]]] = [(kernel.body, start, ())]
    while stack:
        stmt, context, blocks = stack.pop()
        yield stmt, context, blocks
        if isinstance(stmt, st.Block):
            blocks = (*blocks, stmt)
        match stmt:
            case st.Bind(var, value):
                inside = context.without((var,))
                if not _reads(value) and var not in free_vars(value):
                    inside = inside.where(sc.Eq(var, value))
                below: Sequence[Context] = (inside,)
            case st.While(condition):
                below = (context if _reads(condition) else context.where(condition),)
            case _:
                below = contexts(stmt, context)
        parts = zip(st.substatements(stmt), below, strict=True)
        stack.extend(reversed([(part, inside, blocks) for part, inside in parts]))


def _reads(term: sc.Scalar) -> bool:
    return any(isinstance(var, sc.Buffer) for var in free_vars(term))


def _loads(roots: Sequence[sc.Scalar], context: Context) -> Iterator[tuple[sc.Load, Context]]:
    """The loads inside some scalars, each with the guards around it."""
    seen: set[tuple[sc.Scalar, Context]] = set()
    stack: list[tuple[sc.Scalar, Context]] = [(root, context) for root in reversed(roots)]
    while stack:
        node, known = stack.pop()
        if (node, known) in seen or not _reads(node):
            continue
        seen.add((node, known))
        match node:
            case sc.Load(_, indices):
                yield node, known
                stack.extend((index, known) for index in reversed(indices))
            case sc.Select(condition, then, orelse):
                stack.append((orelse, known.unless(condition)))
                stack.append((then, known.where(condition)))
                stack.append((condition, known))
            case sc.And(left, right):
                stack += [(right, known.where(left)), (left, known)]
            case sc.Or(left, right):
                stack += [(right, known.unless(left)), (left, known)]
            case sc.Reduce(_, axes, extents, body):
                inside = known
                for axis, extent in zip(axes, extents, strict=True):
                    inside = inside.loop(axis, extent)
                stack.append((body, inside))
            case _:
                kids = [kid for kid in node._children if isinstance(kid, sc.Scalar)]
                stack.extend((kid, known) for kid in reversed(kids))


@lru_cache(maxsize=256)
def _made_inside(block: st.Block) -> frozenset[sc.Buffer]:
    return frozenset(s.buffer for s in st.statements(block) if isinstance(s, st.Alloc))


def point_text(
    point: tuple[tuple[sc.Scalar, int], ...], data: Collection[sc.Scalar] = ()
) -> str | None:
    """The variables of a point with their values; None if it mentions data as well."""
    named = [
        f"{var.name} = {n}" for var, n in point if isinstance(var, sc.ScalarVar) and var not in data
    ]
    return ", ".join(named) if len(named) == len(point) else None


def _refutation(answer: object) -> str | None:
    """A counterexample of a claim, or None if it may hold for all data."""
    return point_text(answer.point) if isinstance(answer, Fails) else None
