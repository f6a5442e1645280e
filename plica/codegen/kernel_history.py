"""Kernel histories: a kernel from its blocks through its schedule and lowering, as one derivation.

Each step of its trace and each lowering pass is a step, so `at`, `fork` and `first_bad` work on
kernels as on graphs.  `statement_origins` says of every loop and store of the lowered kernel which
blocks it computes and which steps made it.

>>> from plica.codegen.llvm.toolchain import host
>>> from plica.demo.cnn_script import cnn
>>> from plica.ir.text.script import as_module
>>> from plica.pipeline import lower, pipeline_of
>>> from plica.rewrite.derivation import at
>>> program = lower(as_module(cnn), target=host()).program
>>> lowering = pipeline_of("cpu").of("lower")
>>> history = kernel_history(program.origins[0], lowering)
>>> at(history, len(history.steps)) is program.kernels[0]
True
>>> all(each.blocks for each in statement_origins(program.origins[0], lowering))
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import frozen

from plica.analysis.site import map_of
from plica.codegen.program import KernelOrigin
from plica.ir.contract import exact
from plica.ir.loop import Block, For, Kernel, Stmt, Store, statements
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import substatements
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.derivation import Derivation, DerivationStep
from plica.rewrite.history import rule_of
from plica.schedule.diff import described
from plica.schedule.handle import Output
from plica.schedule.replay import begin, states
from plica.schedule.trace import handles


@frozen(eq=False)
class StatementOrigin:
    """A loop or a store of a kernel: the blocks that it computes, and the steps that made it.

    A store whose block is ambiguous in its loops is assigned all candidate blocks.
    """

    statement: For | Store
    blocks: tuple[str, ...]
    steps: tuple[str, ...]


def kernel_history(origin: KernelOrigin, lowering: Pipeline) -> Derivation:
    """The derivation of a kernel; what changes nothing is a step too, so that numbers are those of
    the trace, followed by those of the passes."""
    source = kernel = begin(origin.kernel).kernel
    made: list[tuple[str, str, Kernel]] = []
    for step, state in zip(origin.trace.steps, states(origin.trace, origin.kernel), strict=True):
        kernel = state.kernel
        made.append((described(step), "A step of the schedule.", kernel))
    for lowering_pass in lowering:
        kernel = lowering_pass.run(kernel)
        made.append((lowering_pass.name, lowering_pass.why, kernel))
    kernels = [source, *[after for _, _, after in made]]
    return Derivation(source, tuple([
        DerivationStep(rule_of(Pass(name, why, _unchanged), exact), before, after)
        for before, (name, why, after) in zip(kernels, made, strict=False)
    ]))  # fmt: skip


def _unchanged(kernel: Kernel) -> Kernel:
    """A placeholder for a schedule step, whose effect is in its trace."""
    return kernel


def statement_origins(origin: KernelOrigin, lowering: Pipeline) -> tuple[StatementOrigin, ...]:
    """The origin of every loop and store of a lowered kernel, in the order of the text.

    Steps are followed by handles: a step made the loops and blocks that were not there before it,
    out of those that it was given, and changed those that it was given.
    """
    before = begin(origin.kernel)
    steps: dict[Output, tuple[str, ...]] = {}
    for step, state in zip(origin.trace.steps, states(origin.trace, origin.kernel), strict=True):
        if state.kernel is not before.kernel:
            given = [before.outputs[handle] for handle in handles(step.instruction)]
            old, new = _names(before.kernel), _names(state.kernel)
            path = _joined([*[steps.get(each, ()) for each in given], (described(step),)])
            steps |= dict.fromkeys([each for each in new if each not in old], path)
            for each in given:
                steps[each] = _joined([steps.get(each, ()), (described(step),)])
        before = state
    scheduled = kernel = before.kernel
    for lowering_pass in lowering:
        lowered: Kernel = lowering_pass.run(kernel)
        added = _loops(lowered).difference(_loops(kernel), steps) if lowered is not kernel else ()
        steps |= dict.fromkeys(added, (lowering_pass.name,))
        kernel = lowered
    blocks = [(node, _around(scheduled, node)) for node in map_of(scheduled).blocks.nodes.values()]
    return tuple(_origins(kernel, blocks, steps, _loops(scheduled)))


def _origins(
    kernel: Kernel,
    blocks: list[tuple[Block, frozenset[ScalarVar]]],
    steps: dict[Output, tuple[str, ...]],
    known: set[ScalarVar],
) -> Iterator[StatementOrigin]:
    stack: list[tuple[Stmt, frozenset[ScalarVar]]] = [(kernel.body, frozenset())]
    while stack:
        stmt, around = stack.pop()
        if isinstance(stmt, For) and stmt.var in known:
            around |= {stmt.var}
        stack.extend([(substatement, around) for substatement in substatements(stmt)[::-1]])
        if not isinstance(stmt, For | Store):
            continue
        here = [block for block, loops in blocks if around <= loops]
        names = {str(each.buffer.name) for each in statements(stmt) if isinstance(each, Store)}
        writing = [each for each in here if names.intersection(_written(each))]
        chosen = writing or here or [block for block, _ in blocks]
        made = [steps.get(stmt.var, ())] if isinstance(stmt, For) else []
        made += [steps.get(each.label, ()) for each in chosen] if isinstance(stmt, Store) else []
        yield StatementOrigin(stmt, tuple([str(each.label) for each in chosen]), _joined(made))


def _written(block: Block) -> Iterator[str]:
    """The names of the buffers that a block stores to."""
    return (str(each.buffer.name) for each in statements(block) if isinstance(each, Store))


def _around(kernel: Kernel, block: Block) -> frozenset[ScalarVar]:
    """The loops around a block, through all blocks around it."""
    above = map_of(kernel).blocks[block.label].above
    return frozenset([each.var for each, _ in above if isinstance(each, For)])


def _names(kernel: Kernel) -> dict[Output, None]:
    """The loops and blocks of a kernel that is being scheduled."""
    sites = map_of(kernel)
    return dict.fromkeys([*sites.loops.keys(), *sites.blocks.keys()])


def _loops(kernel: Kernel) -> set[ScalarVar]:
    return {statement.var for statement in statements(kernel.body) if isinstance(statement, For)}


def _joined(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """All names, each once, in order."""
    return tuple(dict.fromkeys([name for part in parts for name in part]))
