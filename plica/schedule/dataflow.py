"""Dataflow between the stages of a scope, and its preservation.

A stage is an outermost block of a scope.  What it reads is *settled* where each buffer has one
writer before it that is through with an element when it is read, and that would write the same
value again: then the value of an element follows from the element alone, and the stage may run at
another time, or several times.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, block, seq
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, z = (buffer(name, (3,), f32) for name in "xyz")
>>> i, j, v, w = (axis(name) for name in "ijvw")
>>> first = For(i, x.shape[0], "serial", block("y", (v,), (3,), "s", (i,), Store(y, (v,), x[v])))
>>> then = For(j, x.shape[0], "serial", block("z", (w,), (3,), "s", (j,), Store(z, (w,), y[w])))
>>> unsettled(seq(first, then), Name("z")) is None
True

# Note [Settled values]
By induction along the text: a complete block computes an element from settled values, whenever it
runs, and a reduction runs all its updates of an element between two readers (`unfinished`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from attrs import frozen

from plica.analysis.access import inside
from plica.analysis.dependence import scope_of, unblocked_statement
from plica.analysis.index.context import conjuncts
from plica.analysis.index.iteration import iteration_map
from plica.analysis.site import Above, Site, map_of
from plica.core import Name, free_vars
from plica.ir.loop.scalar import Buffer, ScalarVar
from plica.ir.loop.statement import Block, For, Kernel, Stmt, substatements
from plica.schedule.block_class import carried_by, complete_body, reduction_body, scan_body
from plica.schedule.problem import Problem


@frozen(eq=False)
class FlowStage:
    """A block of a scope, its enclosing statements there, and the buffers it touches, in order."""

    block: Block
    path: Above
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple([stmt for stmt, _ in self.path if isinstance(stmt, For)])

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """What it reads and does not write."""
        return tuple([read for read in self.reads if read not in self.writes])


@lru_cache(maxsize=512)
def stages(scope: Stmt) -> Mapping[Name, FlowStage]:
    """The outermost blocks of a scope, in the order of the text."""
    found: dict[Name, FlowStage] = {}
    stack: list[tuple[Stmt, Above]] = [(scope, ())]
    while stack:
        stmt, path = stack.pop()
        if isinstance(stmt, Block):
            found[stmt.label] = FlowStage(stmt, path, *touched(stmt))
            continue
        parts = substatements(stmt)
        for at in range(len(parts) - 1, -1, -1):
            stack.append((parts[at], (*path, (stmt, at))))
    return found


@lru_cache(maxsize=2048)
def touched(block: Block) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """The buffers a block reads and those it writes, in the order of the text."""
    found: tuple[dict[Buffer, None], dict[Buffer, None]] = ({}, {})
    for each in inside(block):
        found[each.written][each.buffer] = None
    for term in (block.predicate, *block.bindings):
        names = [var for var in free_vars(term) if isinstance(var, Buffer)]
        found[0].update(dict.fromkeys(sorted(names, key=lambda each: each.name)))
    return tuple(found[0]), tuple(found[1])


def common(a: FlowStage, b: FlowStage) -> tuple[For, ...]:
    """The loops around both."""
    found = []
    for (stmt, here), (other, there) in zip(a.path, b.path, strict=False):
        if stmt is not other:
            break
        if isinstance(stmt, For):
            found.append(stmt)
        if here != there:
            break
    return tuple(found)


def depth_of(above: Above, shared: tuple[For, ...]) -> int:
    """The length of the path prefix enclosing the loops, or the scope."""
    last = 0
    for at, (stmt, _) in enumerate(above):
        if isinstance(stmt, Block) or stmt in shared:
            last = at + 1
    return last


def steady(block: Block) -> Problem | None:
    """A block whose writes depend only on its reads: complete, a reduction, or a scan."""
    if "scan" in block.kinds:
        return scan_body(block)
    reduces = block.init is not None or "reduce" in block.kinds
    return reduction_body(block) if reduces else complete_body(block)


def unsettled(scope: Stmt, label: Name) -> Problem | None:
    """Why a stage's inputs are not shown to be final."""
    return _unsettled(scope, label)[label]


@lru_cache(maxsize=512)
def _unsettled(scope: Stmt, last: Name) -> Mapping[Name, Problem | None]:
    """The answers for all stages up to one: those after it do not matter to it."""
    answers: dict[Name, Problem | None] = {}
    odd = unblocked_statement(scope)
    every = stages(scope)
    writers: dict[Buffer, list[FlowStage]] = {}
    for stage in every.values():
        for buffer in stage.writes:
            writers.setdefault(buffer, []).append(stage)
    for label, stage in every.items():
        where = f"the block {label}"
        if odd is not None:
            found = f"a {type(odd).__name__} outside any block"
            answers[label] = Problem("stage-pipeline", where, "only loops and blocks", found)
            continue
        answers[label] = None
        for buffer in stage.inputs:
            problem = _unsettled_input(stage, buffer, writers.get(buffer, []), answers)
            if problem is not None:
                answers[label] = problem
                break
        if label == last:
            break
    return answers


def _unsettled_input(
    reader: FlowStage,
    buffer: Buffer,
    writers: list[FlowStage],
    answers: Mapping[Name, Problem | None],
) -> Problem | None:
    if not writers:
        return None
    if len(writers) > 1:
        names = ", ".join(str(flow_stage.block.label) for flow_stage in writers)
        return Problem("sole-writer", reader.block, f"one writer of {buffer.name}", names)
    (writer,) = writers
    label = writer.block.label
    if label not in answers:
        expected = f"{buffer.name} to be written before it is read"
        return Problem("stage-pipeline", reader.block, expected, f"{label} comes after")
    if "scan" in writer.block.kinds and buffer in carried_by(writer.block):
        expected = f"results of {label}, not what it goes on from"
        return Problem("finished", reader.block, expected, str(buffer.name))
    return answers[label] or steady(writer.block) or unfinished(writer, common(writer, reader))


@lru_cache(maxsize=2048)
def unfinished(writer: FlowStage, shared: tuple[For, ...]) -> Problem | None:
    """Why a reduction may leave partial values after an iteration of the shared loops."""
    block = writer.block
    if "reduce" not in block.kinds:
        return None
    feeds: dict[str, set[ScalarVar]] = {"spatial": set(), "reduce": set()}
    around = {loop.var for loop in writer.loops}
    for kind, value in zip(block.kinds, block.bindings, strict=True):
        feeds[kind] |= {v for v in free_vars(value) if v in around}
    inner = writer.loops[len(shared) :]
    outside = {loop.var for loop in shared}
    if not feeds["reduce"].isdisjoint(outside):
        expected = "no loop of a reduction around its readers"
        names = ", ".join(str(loop.var.name) for loop in shared if loop.var in feeds["reduce"])
        return Problem("finished", block, expected, names)
    loops = [(loop.var, loop.extent) for loop in inner]
    run = iteration_map(loops, block.bindings, block.extents, block.predicate)
    if not shared and run.bijective:
        return None
    apart = feeds["reduce"].isdisjoint(feeds["spatial"]) and run.injective
    for each in [*conjuncts(block.predicate), *[loop.extent for loop in inner]]:
        mentioned = free_vars(each) & around
        if not mentioned.isdisjoint(feeds["reduce"]) and not mentioned <= feeds["reduce"]:
            apart = False
    for loop in inner:
        if loop.var in feeds["reduce"] and not free_vars(loop.extent).isdisjoint(around):
            apart = False
    if not apart:
        expected = "all updates of an element in one iteration of the shared loops"
        return Problem("finished", block, expected, "loops that are not shown to do so")
    return None


def users(kernel: Kernel, site: Site[Block], buffer: Buffer) -> Problem | None:
    """A buffer that is touched only by the blocks of a site's scope."""
    for stmt, _ in site.above:
        if not isinstance(stmt, Block):
            continue
        around = map_of(kernel).blocks[stmt.label]
        for label, stage in stages(scope_of(kernel, around)).items():
            if label != stmt.label and buffer in stage.reads + stage.writes:
                expected = f"{buffer.name} to be used in one scope"
                return Problem("same-scope", site, expected, f"{label}")
    return None
