"""Dependences: producers and consumers among the blocks of a scope, and loop-carried conflicts.

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
from plica.analysis.index.context import conjunction
from plica.analysis.index.iteration import iteration_map
from plica.analysis.region import block_boxes
from plica.analysis.site import Site
from plica.core import Name, free_vars
from plica.ir.loop.scalar import Buffer, Scalar, ScalarVar
from plica.ir.loop.statement import Alloc, Block, For, Kernel, Seq, Stmt, statements, substatements
from plica.ir.type import dim_var, i64, known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.analysis.disjoint_access import IndexedAccess, are_disjoint


@frozen(eq=False)
class Child:
    """A block of a scope, and the buffers an instance of it reads and writes."""

    block: Block
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]


@lru_cache(maxsize=1024)
def children(scope: Stmt) -> tuple[Child, ...]:
    """The outermost blocks inside a statement, in the order of the text."""
    inside = statements(scope, lambda stmt: not isinstance(stmt, Block))
    return tuple([_child(stmt) for stmt in inside if isinstance(stmt, Block)])


@lru_cache(maxsize=2048)
def _child(block: Block) -> Child:
    reads, writes = block_boxes(block)
    return Child(
        block, tuple([read.buffer for read in reads]), tuple([write.buffer for write in writes])
    )


@lru_cache(maxsize=1024)
def unblocked_statement(scope: Stmt) -> Stmt | None:
    """A statement of a scope, outside its blocks, that is no loop, block or allocation."""
    inside = statements(scope, lambda stmt: isinstance(stmt, For | Seq | Alloc))
    return next((stmt for stmt in inside if not isinstance(stmt, For | Seq | Alloc | Block)), None)


def scope_of(kernel: Kernel, site: Site[Block] | Site[For]) -> Stmt:
    """The body that contains a block or a loop: that of the enclosing block, or the kernel's."""
    for stmt, position in reversed(site.above):
        if isinstance(stmt, Block):
            return substatements(stmt)[position]
    return kernel.body


def producers(scope: Stmt, label: Name) -> tuple[Block, ...]:
    """The earlier blocks of a scope that write a buffer the block reads."""
    before, consumer, _ = _split_at(scope, label)
    return tuple([each.block for each in before if not set(each.writes).isdisjoint(consumer.reads)])


def consumers(scope: Stmt, label: Name) -> tuple[Block, ...]:
    """The later blocks of a scope that read a buffer the block writes."""
    _, producer, after = _split_at(scope, label)
    return tuple([each.block for each in after if not set(producer.writes).isdisjoint(each.reads)])


def _split_at(scope: Stmt, label: Name) -> tuple[tuple[Child, ...], Child, tuple[Child, ...]]:
    blocks = children(scope)
    at = next(at for at, child in enumerate(blocks) if child.block.label == label)
    return blocks[:at], blocks[at], blocks[at + 1 :]


def outputs(kernel: Kernel) -> tuple[Block, ...]:
    """The outermost blocks that write a parameter of the kernel."""
    params = frozenset(kernel.params)
    return tuple(
        [child.block for child in children(kernel.body) if not params.isdisjoint(child.writes)]
    )


@lru_cache(maxsize=1024)
def conflicts(loop: For) -> tuple[Buffer, ...]:
    """The buffers that may carry a dependence between iterations of a loop.

    A buffer carries none if one function from element to iteration inverts every access to it, or
    if each pair of accesses is shown to be disjoint in different iterations.
    """
    if known(loop.extent) in (0, 1):
        return ()
    touched = accesses(loop.body)
    written = {each.buffer for each in touched if each.written}
    found: dict[Buffer, None] = {}
    inverses: dict[Buffer, Scalar] = {}
    for access in touched:
        buffer = access.buffer
        if buffer not in written or buffer in found:
            continue
        inverse = iteration_of(access, loop)
        if inverse is None or inverses.setdefault(buffer, inverse) is not inverse:
            found[buffer] = None
    return tuple([buffer for buffer in found if not _is_disjoint(loop, buffer, touched)])


MAX_ACCESSES: Final = 6  # of one buffer, whose pairs are compared


def _is_disjoint(loop: For, buffer: Buffer, touched: tuple[Access, ...]) -> bool:
    """Whether different iterations touch different elements, shown for each pair of accesses of
    which one writes."""
    distinct = dict.fromkeys([access for access in touched if access.buffer is buffer])
    if not 1 < len(distinct) <= MAX_ACCESSES:
        return False  # a single access has no inverse, as the caller has seen
    indexed_accesses = [indexed(access, (loop,)) for access in distinct]
    if any(each.indices is None or not _mentions(each, loop.var) for each in indexed_accesses):
        return False
    return all(
        are_disjoint(first, second, loop.var, ())
        for at, first in enumerate(indexed_accesses)
        for second in indexed_accesses[at:]
        if first.written or second.written
    )


def _mentions(access: IndexedAccess, var: ScalarVar) -> bool:
    """Whether the place of an access depends on a variable."""
    terms = (*(access.indices or ()), *access.context.facts)
    return any(var in free_vars(term) for term in terms)


def indexed(access: Access, around: tuple[For, ...]) -> IndexedAccess:
    """An access with its index expressions, in the context of loops and predicates around it."""
    context = EMPTY.loops((*[(loop.var, loop.extent) for loop in around], *access.inner))
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


def determines_iteration(site: Site[For], buffer: Buffer) -> bool:
    """Whether the element of a buffer determines the iteration of a loop, in one way for all
    accesses, and of the loops around it."""
    loop, around = site.node, site.loops
    inverses = {
        iteration_of(each, loop, around) for each in accesses(loop.body) if each.buffer is buffer
    }
    return len(inverses) == 1 and None not in inverses


def iteration_of(access: Access, loop: For, around: tuple[For, ...] = ()) -> Scalar | None:
    """The loop variable as a function of the element's indices, None if they do not determine it.

    Variables of loops `around` may be determined by them as well.
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
    free = frozenset().union(*[free_vars(binding) for binding in bindings])
    loops = [each for each in loops if each[0] in free]
    if loop.var not in free:
        return None
    predicate = conjunction([fact for fact in access.facts if not free_vars(fact).isdisjoint(free)])
    inverse = _inverted(loop.var, loops, bindings, values, predicate)
    if inverse is None:  # simplified, nested quotients and remainders may be invertible
        context = EMPTY.loops(loops)
        plain = [simple(binding, context) for binding in bindings]
        if plain != bindings:
            inverse = _inverted(loop.var, loops, plain, values, predicate)
    if inverse is None or not free_vars(inverse).isdisjoint(inner | {loop.var}):
        return None
    return inverse


def _inverted(
    var: ScalarVar,
    loops: list[tuple[ScalarVar, Scalar]],
    bindings: list[Scalar],
    values: list[Scalar],
    predicate: Scalar,
) -> Scalar | None:
    return iteration_map(loops, bindings, values, predicate).recovered(tuple(values)).get(var)


def is_private(loop: For, buffer: Buffer) -> bool:
    """Whether a buffer is allocated inside a loop."""
    return any(isinstance(s, Alloc) and s.buffer is buffer for s in statements(loop.body))
