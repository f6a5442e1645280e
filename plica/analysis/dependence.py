"""Dependence: which blocks of a scope feed which, and which loops have independent iterations.

A scope is the body of a block, or that of the kernel.  Its children are the outermost blocks inside
it, in the order of the text.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Kernel, Store, block, seq
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, z = (buffer(name, (3,), f32) for name in "xyz")
>>> i, j, v, w = (axis(name) for name in "ijvw")
>>> first = For(i, x.shape[0], "serial", block("y", (v,), (3,), "s", (i,), Store(y, (v,), x[v])))
>>> then = For(j, x.shape[0], "serial", block("z", (w,), (3,), "s", (j,), Store(z, (w,), y[w])))
>>> kernel = Kernel((), (x, y, z), 1, seq(first, then))
>>> [str(each.label) for each in producers(kernel.body, Name("z"))], conflicts(first)
(['y'], ())
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from attrs import frozen

from plica.analysis.access import Access, accesses
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY
from plica.analysis.index.iteration import iteration_map
from plica.analysis.region import block_boxes
from plica.analysis.site import Site
from plica.core import Name, free_vars
from plica.ir.loop.scalar import And, Buffer, Scalar, ScalarVar
from plica.ir.loop.statement import TRUE, Alloc, Block, For, Kernel, Seq, Stmt, substatements
from plica.ir.type import dim_var, i64, known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.analysis.meeting import IndexedAccess, never_meet


@frozen(eq=False)
class Child:
    """A block of a scope, and the buffers an instance of it reads and writes."""

    block: Block
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]


@lru_cache(maxsize=1024)
def children(scope: Stmt) -> tuple[Child, ...]:
    """The outermost blocks inside a statement, in the order of the text."""
    found = []
    stack: list[Stmt] = [scope]
    while stack:
        if isinstance(stmt := stack.pop(), Block):
            found.append(_child(stmt))
        else:
            stack.extend(reversed(substatements(stmt)))
    return tuple(found)


@lru_cache(maxsize=2048)
def _child(block: Block) -> Child:
    reads, writes = block_boxes(block)
    return Child(
        block, tuple([each.buffer for each in reads]), tuple([each.buffer for each in writes])
    )


@lru_cache(maxsize=1024)
def stranger(scope: Stmt) -> Stmt | None:
    """A statement of a scope, outside its blocks, that is no loop, block or allocation."""
    stack: list[Stmt] = [scope]
    while stack:
        if isinstance(stmt := stack.pop(), Block):
            continue
        if not isinstance(stmt, For | Seq | Alloc):
            return stmt
        stack.extend(reversed(substatements(stmt)))
    return None


def scope_of(kernel: Kernel, site: Site[Block] | Site[For]) -> Stmt:
    """The body in which a block or a loop stands: that of the block around, or the kernel's."""
    for stmt, position in reversed(site.above):
        if isinstance(stmt, Block):
            return substatements(stmt)[position]
    return kernel.body


def producers(scope: Stmt, label: Name) -> tuple[Block, ...]:
    """The blocks of a scope that come before one of them and write what it reads."""
    before, of, _ = _around(scope, label)
    return tuple([each.block for each in before if not set(each.writes).isdisjoint(of.reads)])


def consumers(scope: Stmt, label: Name) -> tuple[Block, ...]:
    """The blocks of a scope that come after one of them and read what it writes."""
    _, of, after = _around(scope, label)
    return tuple([each.block for each in after if not set(of.writes).isdisjoint(each.reads)])


def _around(scope: Stmt, label: Name) -> tuple[tuple[Child, ...], Child, tuple[Child, ...]]:
    every = children(scope)
    at = next(at for at, each in enumerate(every) if each.block.label == label)
    return every[:at], every[at], every[at + 1 :]


def outputs(kernel: Kernel) -> tuple[Block, ...]:
    """The outermost blocks that write a parameter of the kernel."""
    params = frozenset(kernel.params)
    return tuple(
        [each.block for each in children(kernel.body) if not params.isdisjoint(each.writes)]
    )


@lru_cache(maxsize=1024)
def conflicts(loop: For) -> tuple[Buffer, ...]:
    """The buffers through which one iteration of a loop may meet another.

    A buffer is none where the iteration follows from the element in one and the same way for every
    access, so that two iterations never touch the same element; or where each pair of accesses is
    shown to lie apart, as those of disjoint parts do.
    """
    if known(loop.extent) in (0, 1):
        return ()
    touched = accesses(loop.body)
    written = {each.buffer for each in touched if each.written}
    found: dict[Buffer, None] = {}
    ways: dict[Buffer, Scalar] = {}
    for access in touched:
        buffer = access.buffer
        if buffer not in written or buffer in found:
            continue
        way = iteration_of(access, loop)
        if way is None or ways.setdefault(buffer, way) is not way:
            found[buffer] = None
    return tuple([each for each in found if not _lie_apart(loop, each, touched)])


MAX_ACCESSES: Final = 6  # of so many accesses of one buffer all pairs are looked into


def _lie_apart(loop: For, buffer: Buffer, touched: tuple[Access, ...]) -> bool:
    """Whether no two iterations touch one element, shown for each pair of accesses of which one
    writes, with what is known of the places of both."""
    mine = dict.fromkeys([each for each in touched if each.buffer is buffer])
    if not 1 < len(mine) <= MAX_ACCESSES:
        return False  # of one access, what it says of the iteration was asked
    places = [indexed(each, (loop,)) for each in mine]
    if any(each.indices is None or not _mentions(each, loop.var) for each in places):
        return False
    return all(
        never_meet(one, two, loop.var, ())
        for at, one in enumerate(places)
        for two in places[at:]
        if one.written or two.written
    )


def _mentions(access: IndexedAccess, var: ScalarVar) -> bool:
    """Whether it depends on a variable where an access is; if not, iterations meet there."""
    terms = (*(access.indices or ()), *access.context.facts)
    return any(var in free_vars(each) for each in terms)


def indexed(access: Access, around: tuple[For, ...]) -> IndexedAccess:
    """An access in an iteration of loops: its places, and what the predicates around it say."""
    context = EMPTY
    for var, extent in (*[(each.var, each.extent) for each in around], *access.inner):
        context = context.loop(var, extent)
    places: list[Scalar] | None = []
    for number, (start, extent) in enumerate(zip(access.starts, access.extents, strict=True)):
        if start is None or places is None:
            places = None
        elif known(extent) == 1:
            places.append(start)
        else:
            offset = ScalarVar(Name("an offset", number), i64)
            context = context.loop(offset, extent)
            places.append(start + offset)
    context = context.where(*access.facts)
    indices = None if places is None else tuple(places)
    return IndexedAccess(access.buffer, indices, context, access.written)


def meets_nowhere(site: Site[For], buffer: Buffer) -> bool:
    """Whether an element of a buffer tells the iterations of a loop and of all loops around it."""
    loop, around = site.node, site.loops
    ways = {
        iteration_of(each, loop, around) for each in accesses(loop.body) if each.buffer is buffer
    }
    return len(ways) == 1 and None not in ways


def iteration_of(access: Access, loop: For, around: tuple[For, ...] = ()) -> Scalar | None:
    """The loop's variable in terms of the place of the element accessed, if it follows.

    Loops around may be told by the element, too.
    """
    outer = [(each.var, each.extent) for each in around]
    inner = {var for var, _ in (*outer, *access.inner)}
    loops = [*outer, (loop.var, loop.extent), *access.inner]
    values: list[Scalar] = []
    bindings: list[Scalar] = []
    for number, (start, extent) in enumerate(zip(access.starts, access.extents, strict=True)):
        if start is None or loop.var not in free_vars(start):
            continue
        values.append(dim_var(Name("the element", number)))
        if known(extent) != 1:
            offset = ScalarVar(Name("an offset", number), loop.var.dtype)
            loops.append((offset, extent))
            start = start + offset
        bindings.append(start)
    free = frozenset().union(*[free_vars(each) for each in bindings])
    loops = [each for each in loops if each[0] in free]
    if loop.var not in free:
        return None
    predicate: Scalar = TRUE
    for fact in access.facts:
        if free_vars(fact).isdisjoint(free):
            continue
        predicate = fact if predicate is TRUE else And(predicate, fact)
    way = _recovered(loop.var, loops, bindings, values, predicate)
    if way is None:  # digits of digits may be digits
        context = EMPTY
        for var, extent in loops:
            context = context.loop(var, extent)
        plain = [simple(each, context) for each in bindings]
        if plain != bindings:
            way = _recovered(loop.var, loops, plain, values, predicate)
    if way is None or not free_vars(way).isdisjoint(inner | {loop.var}):
        return None
    return way


def _recovered(
    var: ScalarVar,
    loops: list[tuple[ScalarVar, Scalar]],
    bindings: list[Scalar],
    values: list[Scalar],
    predicate: Scalar,
) -> Scalar | None:
    return iteration_map(loops, bindings, values, predicate).recovered(tuple(values)).get(var)


def is_private(loop: For, buffer: Buffer) -> bool:
    """Whether a buffer is made inside a loop, so that every iteration has its own."""
    stack: list[Stmt] = [loop.body]
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, Alloc) and stmt.buffer is buffer:
            return True
        stack.extend(substatements(stmt))
    return False
