"""Splitting: what the processor does between launches, in stages.

    level(launch)  =  1 + the most of the launches that what it reads depends on
    level(value)   =  the least of its users; a launch needs what it reads one level earlier

All values of one level are computed together, in a stage: after the launches of that level, before
those of the next.  So there are no more stages than the longest chain of launches has links, and a
copy that somebody needs later is made then.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> (only,) = stages(Packed((x,), (), (x * 2.0,)))
>>> [str(each.name) for each in only.inputs], only.level, len(only.results)
(['x'], 0, 1)

A stage is a function of its own, from tensors to tensors; what it gives that others need is found
by the term it is.
"""

from __future__ import annotations

from attrs import frozen

from plica.codegen.accel.packing import Packed, tensors
from plica.core import Name
from plica.ir.graph import Module, expression as ex, module
from plica.ir.type import TensorType, TupleType, infer, type_of
from plica.rewrite.graph.walk import NameSupply, expressions, operands, with_operands
from plica.runtime.error import Diagnostic, UnsupportedError


@frozen
class HostStage:
    """What is computed at one level: from which terms, which terms, and how."""

    level: int
    inputs: tuple[ex.Expr, ...]
    results: tuple[ex.Expr, ...]
    module: Module


def flat_inputs(of: Packed) -> tuple[ex.Expr, ...]:
    """The tensors of the parameters, in order."""
    return tuple([each for param in of.params for each in tensors(param)])


def levels(of: Packed) -> dict[ex.Expr, int]:
    """The level of every value: launches as early as can be, all else as late as it is needed."""
    found: dict[ex.Expr, int] = {}
    results = {each.result for each in of.launches}
    for launch in of.launches:  # in order: what one reads, earlier ones give
        _rise(launch.data, found, results)
        found[launch.result] = found[launch.data] + 1
    last = max((found[each.result] for each in of.launches), default=0)
    late: dict[ex.Expr, int] = {each.result: found[each.result] for each in of.launches}
    for each in of.outputs:
        late[each] = min(last, late.get(each, last))
    for launch in of.launches:
        if launch.data not in results:
            before = late[launch.result] - 1
            late[launch.data] = min(before, late.get(launch.data, before))
    roots = (*(each.data for each in of.launches), *of.outputs)
    for node in reversed(expressions(*roots)):  # wholes before parts
        for part in operands(node):
            if part not in results:
                late[part] = min(late[node], late.get(part, last))
    return late


def _rise(root: ex.Expr, found: dict[ex.Expr, int], results: set[ex.Var]) -> None:
    """Find the earliest level of all that is below a term."""
    for node in expressions(root):
        if node not in found and node not in results:
            found[node] = max((found[part] for part in operands(node)), default=0)


def stages(of: Packed) -> tuple[HostStage, ...]:
    """What the processor does, by level; a level at which there is nothing to do has no stage."""
    level = levels(of)
    given = set(flat_inputs(of)) | {each.result for each in of.launches}
    whole = {param for param in of.params if isinstance(type_of(param), TupleType)}
    wanted: dict[ex.Expr, None] = {}
    for launch in of.launches:
        if launch.data not in given:
            wanted[launch.data] = None
    roots = (*(each.data for each in of.launches), *of.outputs)
    for node in expressions(*roots):
        for part in operands(node):
            crosses = level[part] < level[node] and not _is_free(part)
            if crosses and part not in given and part not in whole:
                wanted[part] = None
    wanted |= dict.fromkeys(of.outputs)  # even one that is an input: what is given out is new
    if wrong := [each for each in wanted if not isinstance(type_of(each), TensorType)]:
        message = "Between two launches only tensors are kept."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "tensors", str(type_of(wrong[0])))
        )
    by_level: dict[int, list[ex.Expr]] = {}
    for each in wanted:
        by_level.setdefault(level[each], []).append(each)
    return tuple([_stage(at, by_level[at], wanted, level, given) for at in sorted(by_level)])


def _is_free(node: ex.Expr) -> bool:
    """Whether a term costs nothing, so that each stage has its own."""
    return isinstance(node, ex.Const | ex.Literal | ex.Constructor)


def _stage(
    at: int,
    results: list[ex.Expr],
    wanted: dict[ex.Expr, None],
    level: dict[ex.Expr, int],
    given: set[ex.Expr],
) -> HostStage:
    """The function that computes some terms from those that are known by then."""
    supply = NameSupply(*results)
    become: dict[ex.Expr, ex.Expr] = {}
    inputs: dict[ex.Expr, ex.Var] = {}
    stack: list[tuple[ex.Expr, bool]] = [(each, False) for each in reversed(results)]
    while stack:
        node, leaving = stack.pop()
        if node in become:
            continue
        if leaving:
            parts = tuple([become[part] for part in operands(node)])
            become[node] = with_operands(node, parts)
        elif node in given or (node in wanted and level[node] < at):
            inputs[node] = ex.Var(supply.name(_hint(node)), type_of(node))
            become[node] = inputs[node]
        else:
            stack.append((node, True))
            stack += [(part, False) for part in reversed(operands(node))]
    body = ex.Tuple(tuple([become[each] for each in results]))
    main = ex.Var(Name("main"), None)
    function = ex.Function((), (), tuple(inputs.values()), None, body)
    return HostStage(at, tuple(inputs), tuple(results), infer(module({main: function}, main)))


def _hint(node: ex.Expr) -> str:
    if isinstance(node, ex.Project) and isinstance(node.value, ex.Var):
        return node.value.name.hint
    return node.name.hint if isinstance(node, ex.Var) else "value"
