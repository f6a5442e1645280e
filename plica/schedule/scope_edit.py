"""Scope edits: replacing or removing blocks of a scope, and inserting a statement.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, block, statements
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, i, v = buffer("x", (3,), f32), axis("i"), axis("v")
>>> nest = st.For(i, x.shape[0], "serial", block("x", (v,), (3,), "s", (i,), Store(x, (v,), x[v])))
>>> len(list(statements(reworked(nest, lambda found: None))))
1

Empty loops and allocations are removed with their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import frozen

from plica.analysis import site as sites
from plica.analysis.enclosing import shown, simple
from plica.analysis.index import Context
from plica.analysis.region import Box
from plica.core import Name, Term, map_bottom_up
from plica.ir.loop import statement as st
from plica.ir.loop.scalar import And, Buffer, Le, Load, Lt, Scalar, ScalarVar, index
from plica.ir.type import i64, known


@frozen(eq=False)
class InsertionPoint:
    """Before the part number `at` of a statement: of its parts if it is a `Seq`, else of itself."""

    host: st.Stmt
    at: int


def reworked(
    scope: st.Stmt,
    change: Callable[[st.Block], st.Stmt | None],
    place: InsertionPoint | None = None,
    new: st.Stmt = st.NOTHING,
) -> st.Stmt:
    """The scope with each of its blocks transformed (None: removed), and an additional
    statement."""
    done: list[st.Stmt] = []
    stack: list[tuple[st.Stmt, bool]] = [(scope, False)]
    while stack:
        stmt, leaving = stack.pop()
        parts = st.substatements(stmt)
        if isinstance(stmt, st.Block):
            statement = change(stmt) or st.NOTHING
        elif not leaving:
            stack.append((stmt, True))
            stack.extend([(part, False) for part in reversed(parts)])
            continue
        else:
            inside = done[len(done) - len(parts) :]
            del done[len(done) - len(parts) :]
            statement = _remade(stmt, inside, place, new)
        if place is not None and stmt is place.host and not isinstance(stmt, st.Seq):
            statement = st.seq(new, statement) if place.at == 0 else st.seq(statement, new)
        done.append(statement)
    return done[0]


def _remade(
    stmt: st.Stmt, inside: list[st.Stmt], place: InsertionPoint | None, new: st.Stmt
) -> st.Stmt:
    if isinstance(stmt, st.Seq):
        if place is not None and stmt is place.host:
            inside.insert(place.at, new)
        return stmt if inside == list(stmt.stmts) else st.seq(*inside)
    if isinstance(stmt, st.For | st.Alloc) and inside[0] is st.NOTHING:
        return st.NOTHING
    for at, (old, now) in enumerate(zip(st.substatements(stmt), inside, strict=True)):
        if old is not now:
            stmt = sites.with_inside(stmt, at, now)
    return stmt


def parts_of(stmt: st.Stmt) -> tuple[st.Stmt, ...]:
    """The statements of a sequence; a single one for other statements."""
    return stmt.stmts if isinstance(stmt, st.Seq) else (stmt,)


def front_of(scope: st.Stmt) -> InsertionPoint:
    """Where a scope begins, inside its allocations."""
    while isinstance(scope, st.Alloc):
        scope = scope.body
    return InsertionPoint(scope, 0)


def with_scope(
    kernel: st.Kernel, site: sites.Site[st.Block] | sites.Site[st.For], body: st.Stmt
) -> st.Kernel:
    """The kernel with another body of the scope that contains a block or a loop."""
    above: sites.Above = site.above
    last = max((at for at, (stmt, _) in enumerate(above) if isinstance(stmt, st.Block)), default=-1)
    return sites.with_body(kernel, sites.rebuilt(above[: last + 1], body))


def with_alloc(
    kernel: st.Kernel, buffer: Buffer, change: Callable[[st.Alloc], st.Stmt]
) -> st.Kernel:
    """The kernel with another statement where a buffer is allocated, if it is."""
    stack: list[tuple[st.Stmt, sites.Above]] = [(kernel.body, ())]
    while stack:
        stmt, above = stack.pop()
        if isinstance(stmt, st.Alloc) and stmt.buffer is buffer:
            return sites.with_body(kernel, sites.rebuilt(above, change(stmt)))
        for at, substatement in enumerate(st.substatements(stmt)):
            stack.append((substatement, (*above, (stmt, at))))
    return kernel


def without_buffer(kernel: st.Kernel, buffer: Buffer) -> st.Kernel:
    """The kernel without the allocation of a buffer."""
    return with_alloc(kernel, buffer, lambda alloc: alloc.body)


@frozen
class ValueSpan:
    """The values `start, start + 1, …` of a block's variable, `extent` of them."""

    start: Scalar
    extent: Scalar


def spans_over(box: Box) -> list[ValueSpan | None]:
    """The places of a box along each dimension of its buffer."""
    sizes = zip(box.starts, box.extents, box.buffer.shape, strict=True)
    return [
        None if known(start) == 0 and extent is size else ValueSpan(start, extent)
        for start, extent, size in sizes
    ]


def nest_of(
    kernel: st.Kernel, block: st.Block, spans: Sequence[ValueSpan | None], context: Context
) -> st.Stmt:
    """The block in new loops, over these values of its variables (None: over all of them).

    If a range may exceed the valid values, the block gets a predicate.
    """
    names = sites.fresh_names(kernel, [Name("ax", at) for at in range(len(block.vars))])
    predicate: Scalar = st.TRUE
    bindings: list[Scalar] = []
    loops: list[tuple[ScalarVar, Scalar]] = []
    guards: list[tuple[Scalar, Scalar]] = []
    for name, extent, span in zip(names, block.extents, spans, strict=True):
        var = ScalarVar(name, i64)
        wide = extent if span is None else span.extent
        if known(wide) == 1:
            value: Scalar = index(0) if span is None else span.start
        else:
            loops.append((var, wide))
            value = var if span is None else simple(span.start + var, context)
        bindings.append(value)
        if span is not None:
            guards.append((value, extent))
    for var, wide in loops:
        context = context.loop(var, wide)
    for value, extent in guards:
        for condition in (Le(index(0), value), Lt(value, extent)):
            if not shown(condition, context, quick=True):
                predicate = condition if predicate is st.TRUE else And(predicate, condition)
    nest: st.Stmt = sites.with_parts(block, bindings=tuple(bindings), predicate=predicate)
    for var, wide in reversed(loops):
        nest = st.For(var, wide, "serial", nest)
    return nest


def copy_block(
    label: Name,
    target: tuple[Buffer, Sequence[Scalar]],
    source: tuple[Buffer, Sequence[Scalar]],
    variables: Iterable[tuple[ScalarVar, Scalar]],
    annotations: st.Annotations = (),
) -> st.Block:
    """`target[…] = source[…]` for all values of variables with these extents; not bound yet."""
    pairs = list(variables)
    vars_, extents = tuple([v for v, _ in pairs]), tuple([size for _, size in pairs])
    spatial: tuple[st.IterKind, ...] = tuple(["spatial" for _ in pairs])
    store = st.Store(target[0], tuple(target[1]), Load(source[0], tuple(source[1])))
    return st.Block(
        label, vars_, extents, spatial, vars_, st.TRUE, None, store, annotations=annotations
    )


def fresh_vars(kernel: st.Kernel, hint: str, count: int) -> tuple[ScalarVar, ...]:
    """Variables that the kernel does not have."""
    return named_vars(kernel, [Name(hint, at) for at in range(count)])


def named_vars(kernel: st.Kernel, like: Iterable[Name]) -> tuple[ScalarVar, ...]:
    """Variables that the kernel does not have, one for each name, which is like it."""
    return tuple([ScalarVar(name, i64) for name in sites.fresh_names(kernel, like)])


def staged_buffer(kernel: st.Kernel, like: Buffer, scope: str) -> Buffer:
    """A fresh row-major buffer with the shape of another, in a memory scope."""
    (name,) = sites.fresh_names(kernel, [Name(f"{like.name}_{scope.replace('.', '_')}")])
    return Buffer(name, like.shape, like.dtype, scope)


def with_elements(block: st.Block, change: Callable[[Load | st.Store], Term | None]) -> st.Block:
    """The block with loads and stores changed (None: left); declared regions then follow."""

    def each(node: Term) -> Term:
        return (change(node) or node) if isinstance(node, Load | st.Store) else node

    bare = sites.with_parts(block, reads=(), writes=())
    new = map_bottom_up(each, bare)
    return block if new is bare else new


def with_buffer(block: st.Block, old: Buffer, new: Buffer) -> st.Block:
    """The block with another buffer of the same shape in place of one."""

    def each(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if buffer is old:
                return Load(new, indices)
            case st.Store(buffer, indices, value) if buffer is old:
                return st.Store(new, indices, value)
            case st.Region(buffer, starts, extents) if buffer is old:
                return st.Region(new, starts, extents)
            case _:
                return node

    return map_bottom_up(each, block)
