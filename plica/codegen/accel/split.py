"""Host stages: the computations on the processor between launches of the accelerator.

    level(launch)  =  1 + the greatest level of the launches that its input depends on
    level(value)   =  the least level of its users; the input of a launch is one level lower

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> (only,) = stages(Packed((x,), (), (x * 2.0,)))
>>> [str(each.name) for each in only.inputs], only.level, len(only.results)
(['x'], 0, 1)

Each stage is a separate function from tensors to tensors; later stages find its results by their
terms.
"""

from __future__ import annotations

from attrs import frozen

from plica.codegen.accel.packing import Packed, tensors
from plica.ir.graph import Module, expression as ex, main_module
from plica.ir.type import TensorType, TupleType, infer, type_of
from plica.rewrite.graph.walk import NameSupply, expressions, operands, with_operands
from plica.runtime.error import Diagnostic, UnsupportedError


@frozen
class HostStage:
    """The computation of one level: its input terms, its result terms, and a function."""

    level: int
    inputs: tuple[ex.Expr, ...]
    results: tuple[ex.Expr, ...]
    module: Module


def flat_inputs(of: Packed) -> tuple[ex.Expr, ...]:
    """The tensors of the parameters, in order."""
    return tuple([tensor for param in of.params for tensor in tensors(param)])


def levels(of: Packed) -> dict[ex.Expr, int]:
    """The level of every value: launches as early, other values as late as possible."""
    earliest: dict[ex.Expr, int] = {}
    results = {layer_launch.result for layer_launch in of.launches}
    for launch in of.launches:  # in topological order
        _set_earliest(launch.data, earliest, results)
        earliest[launch.result] = earliest[launch.data] + 1
    late: dict[ex.Expr, int] = {each.result: earliest[each.result] for each in of.launches}
    last = max(late.values(), default=0)
    for output in of.outputs:
        late[output] = min(last, late.get(output, last))
    for launch in of.launches:
        if launch.data not in results:
            before = late[launch.result] - 1
            late[launch.data] = min(before, late.get(launch.data, before))
    roots = (*(layer_launch.data for layer_launch in of.launches), *of.outputs)
    for node in reversed(expressions(*roots)):  # users before operands
        for part in operands(node):
            if part not in results:
                late[part] = min(late[node], late.get(part, last))
    return late


def _set_earliest(root: ex.Expr, earliest: dict[ex.Expr, int], results: set[ex.Var]) -> None:
    """Compute the earliest level of a term and of all that it uses."""
    for node in expressions(root):
        if node not in earliest and node not in results:
            earliest[node] = max((earliest[part] for part in operands(node)), default=0)


def stages(of: Packed) -> tuple[HostStage, ...]:
    """The stages in order of level; a level without work has none."""
    level = levels(of)
    given = set(flat_inputs(of)) | {layer_launch.result for layer_launch in of.launches}
    whole = {param for param in of.params if isinstance(type_of(param), TupleType)}
    wanted: dict[ex.Expr, None] = {}
    for launch in of.launches:
        if launch.data not in given:
            wanted[launch.data] = None
    roots = (*(layer_launch.data for layer_launch in of.launches), *of.outputs)
    for node in expressions(*roots):
        for part in operands(node):
            crosses = level[part] < level[node] and not _is_free(part)
            if crosses and part not in given and part not in whole:
                wanted[part] = None
    wanted |= dict.fromkeys(of.outputs)  # inputs too: an output is a new tensor
    if wrong := [expr for expr in wanted if not isinstance(type_of(expr), TensorType)]:
        message = "Between two launches only tensors are kept."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "tensors", str(type_of(wrong[0])))
        )
    by_level: dict[int, list[ex.Expr]] = {}
    for expr in wanted:
        by_level.setdefault(level[expr], []).append(expr)
    return tuple([_stage(at, by_level[at], wanted, level, given) for at in sorted(by_level)])


def _is_free(node: ex.Expr) -> bool:
    """Whether a term costs nothing, so that every stage recomputes it."""
    return isinstance(node, ex.Const | ex.Literal | ex.Constructor)


def _stage(
    at: int,
    results: list[ex.Expr],
    wanted: dict[ex.Expr, None],
    level: dict[ex.Expr, int],
    given: set[ex.Expr],
) -> HostStage:
    """The stage of a level: its results as a function of inputs and earlier results."""
    supply = NameSupply(*results)
    become: dict[ex.Expr, ex.Expr] = {}
    inputs: dict[ex.Expr, ex.Var] = {}
    stack: list[tuple[ex.Expr, bool]] = [(result, False) for result in reversed(results)]
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
    body = ex.Tuple(tuple([become[result] for result in results]))
    function = ex.Function((), (), tuple(inputs.values()), None, body)
    return HostStage(at, tuple(inputs), tuple(results), infer(main_module(function)))


def _hint(node: ex.Expr) -> str:
    if isinstance(node, ex.Project) and isinstance(node.value, ex.Var):
        return node.value.name.hint
    return node.name.hint if isinstance(node, ex.Var) else "value"
