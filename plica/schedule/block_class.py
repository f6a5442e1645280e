"""Block classes: constraints of a block's body on the execution order of its instances.

A complete block computes each element it writes in one instance, without looking at it.  A
reduction block begins an element where its reduce variables are 0 and updates it in each instance,
by an operation whose order does not matter.  A scan block does so in the order of its scan
variables, and what it stores elsewhere is the result so far: each such element once.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import block
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, v = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("v")
>>> complete_body(block("y", (v,), (3,), "s", (v,), Store(y, (v,), x[v]))) is None
True
>>> complete_body(block("y", (v,), (3,), "s", (v,), Store(y, (v // 2,), x[v]))).precondition
'distinct-writes'
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from plica.analysis.access import inside, unbound
from plica.analysis.index.iteration import iteration_map
from plica.analysis.reduction import reducer, update
from plica.analysis.region import Box, block_boxes, boxes
from plica.core import Name, free_vars, post_order
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar
from plica.ir.loop.statement import Barrier, Block, Seq, Stmt, Store, statements
from plica.ir.type import i64, known
from plica.schedule.problem import Problem

Corners: TypeAlias = tuple[tuple[Scalar, ...], tuple[Scalar, ...]]


def complete_body(block: Block) -> Problem | None:
    """Why a block is not complete, apart from who else writes its buffers."""
    return _complete_body(unbound(block))


@lru_cache(maxsize=2048)
def _complete_body(block: Block) -> Problem | None:
    for var, kind in zip(block.vars, block.kinds, strict=True):
        if kind != "spatial":
            return Problem("spatial-only", block, "spatial variables only", f"{var.name} is {kind}")
    reads, writes = block_boxes(block)
    read = {each.buffer for each in reads}
    for write in writes:
        if write.buffer in read:
            found = f"it reads {write.buffer.name} too"
            return Problem("no-self-read", block, "a block that does not read its output", found)
    return _waits(block) or _distinct(block)


def reduction_body(block: Block) -> Problem | None:
    """Why a block is no reduction, apart from who else writes its buffers."""
    return update_body(block) or _begins(unbound(block))


def update_body(block: Block) -> Problem | None:
    """Why a block is not the update of a reduction; it may leave the beginning to another one."""
    return _update_body(unbound(block))


@lru_cache(maxsize=2048)
def _update_body(block: Block) -> Problem | None:
    kinds = set(block.kinds)
    if not kinds <= {"spatial", "reduce"} or "reduce" not in kinds:
        found = ", ".join(block.kinds) or "none"
        return Problem("reduce-kinds", block, "spatial and reduce variables", found)
    if reducer(block) is None:
        expected = "updates of the form y = y + e, with + * min max and the like"
        return Problem("reducer", block, expected, "something else")
    return _waits(block) or _same_element(block) or _distinct(block)


def scan_body(block: Block) -> Problem | None:
    """Why a block is no scan, apart from who else writes its buffers; the beginning may be that of
    another block."""
    return _scan_body(unbound(block))


@lru_cache(maxsize=2048)
def _scan_body(block: Block) -> Problem | None:
    kinds = set(block.kinds)
    if not kinds <= {"spatial", "scan"} or "scan" not in kinds:
        found = ", ".join(block.kinds) or "none"
        return Problem("scan-kinds", block, "spatial and scan variables", found)
    carried = carried_by(block)
    if not carried:
        expected = "an update y = y + e, and stores that read no more of what is stored than y"
        return Problem("scanner", block, expected, "something else")
    begun = [] if block.init is None else _stores(block.init)
    if begun is None or (begun and {(s.buffer, s.indices) for s in begun} != set(carried.items())):
        return Problem("starts", block, "an init that stores each element it updates", "another")
    scanned = {var for var, kind in zip(block.vars, block.kinds, strict=True) if kind == "scan"}
    for buffer, place in carried.items():
        if any(not free_vars(each).isdisjoint(scanned) for each in place):
            expected = "one element for all values of the scan variables"
            found = f"an element of {buffer.name} that depends on them"
            return Problem("same-element", block, expected, found)
    return _waits(block) or _distinct(block, frozenset(carried))


def scan_begun(block: Block) -> Problem | None:
    """Why a block is no scan that begins what it carries itself."""
    problem = scan_body(block)
    if problem is None and block.init is None:
        return Problem("starts", block, "an init", "none")
    return problem


def carried_by(block: Block) -> dict[Buffer, tuple[Scalar, ...]]:
    """The buffers a scan block carries, with indices; empty if its body is no scan.

    Its stores update that by one operation, or store to other buffers what reads no other result.
    """
    every = _stores(block.body) or []
    found = {store.buffer: store.indices for store in every if update(store) is not None}
    written = {store.buffer for store in every}
    for store in every:
        terms = (*store.indices, store.value)
        if store.buffer in found:
            taken = update(store)
            terms = (*store.indices, *([] if taken is None else [taken]))
            if taken is None or store.indices != found[store.buffer]:
                return {}
        read = {load for load in post_order(*terms) if isinstance(load, Load)}
        read = {load for load in read if load.buffer in written}
        own = set() if store.buffer in found else {Load(b, p) for b, p in found.items()}
        if not read <= own:
            return {}
    return found if len(every) == len(written) else {}


def _stores(of: Stmt) -> list[Store] | None:
    """The stores of a statement that contains nothing else, or None."""
    parts = of.stmts if isinstance(of, Seq) else (of,)
    stores = [part for part in parts if isinstance(part, Store)]
    return stores if len(stores) == len(parts) else None


def _waits(block: Block) -> Problem | None:
    if any(isinstance(stmt, Barrier) for stmt in statements(block.body)):
        return Problem("no-barrier", block, "a block without barriers", "a barrier")
    return None


def _same_element(block: Block) -> Problem | None:
    """The elements an instance updates are the same for all values of the reduce variables."""
    pairs = zip(block.vars, block.kinds, strict=True)
    reduce = {var for var, kind in pairs if kind == "reduce"}
    touched = inside(block)
    written = {access.buffer for access in touched if access.written}
    for access in touched:
        if access.buffer not in written:
            continue
        terms = [*access.starts, *[size for _, size in access.inner], *access.extents]
        if any(term is None or not free_vars(term).isdisjoint(reduce) for term in terms):
            expected = "one element for all values of the reduce variables"
            found = f"an element of {access.buffer.name} that depends on them, or on data"
            return Problem("same-element", block, expected, found)
    return None


@lru_cache(maxsize=2048)
def _begins(block: Block) -> Problem | None:
    """An init that initialises the updated elements without reading them."""
    if block.init is None:
        return Problem("starts", block, "an init", "none")
    init, body = block.init, block.body
    if isinstance(init, Store) and isinstance(body, Store):
        same = init.buffer is body.buffer and init.indices == body.indices
        looks = any(body.buffer in free_vars(each) for each in (*init.indices, init.value))
    else:
        starts = _stored(init)
        same = starts is not None and starts == _stored(body)
        read = {each.buffer for each in boxes(init)[0]}
        looks = not read.isdisjoint(each.buffer for each in boxes(body)[1])
    if same and not looks:
        return None
    return Problem("starts", block, "an init that stores each element it updates", "another")


def _stored(stmt: Stmt) -> dict[Buffer, Corners] | None:
    """The exact boxes that a statement writes, by buffer; None if one may be larger than what is
    written."""
    _, writes = boxes(stmt)
    if not all(write.exact for write in writes):
        return None
    return {write.buffer: (write.starts, write.extents) for write in writes}


def _distinct(block: Block, carried: frozenset[Buffer] = frozenset()) -> Problem | None:
    """Instances that differ in spatial variables write different elements; in a scan, those that
    differ in scan variables too, except for carried buffers."""
    sizes = dict(zip(block.vars, block.extents, strict=True))
    both = list(zip(block.vars, block.kinds, strict=True))
    for box in block_boxes(block)[1]:
        apart = "scan" if carried and box.buffer not in carried else "spatial"
        spatial = [v for v, kind in both if kind in ("spatial", apart)]
        told = _told_by(box, [(var, sizes[var]) for var in spatial])
        if lost := [var for var in spatial if known(sizes[var]) != 1 and var not in told]:
            names = ", ".join(str(var.name) for var in lost)
            expected = "different elements for different spatial variables"
            found = f"an element of {box.buffer.name} does not tell {names}"
            return Problem("distinct-writes", block, expected, found)
    return None


def _told_by(box: Box, loops: list[tuple[ScalarVar, Scalar]]) -> frozenset[Scalar]:
    """The variables that follow from any one element of a box."""
    bindings: list[Scalar] = []
    for number, (start, extent) in enumerate(zip(box.starts, box.extents, strict=True)):
        place = start
        if known(extent) != 1:
            offset = ScalarVar(Name("an offset", number), i64)
            loops.append((offset, extent))
            place = start + offset
        bindings.append(place)
    shape = box.buffer.shape
    return frozenset(iteration_map(loops, bindings, shape).recovered(tuple(bindings)))
