"""Joined branches: the results of two parts of a model, selected by a condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from plica.core.binding import free_vars
from plica.frontend.measured import Region, amount, matched, measuring
from plica.frontend.onnx.branch_specialisation import BranchAnswer, BranchPoint
from plica.frontend.onnx.convert import ModelReading, NodeConverter, has_no_meaning
from plica.frontend.onnx.node import OnnxNode, Side
from plica.frontend.onnx.ragged import as_any_rank, as_option, as_ragged
from plica.frontend.onnx.run_time import demanded
from plica.frontend.onnx.value import (
    AnyRankValue,
    ListedValue,
    OptionValue,
    RaggedValue,
    SequenceValue,
    TensorValue,
)
from plica.frontend.word import as_scalar, rank
from plica.ir.graph.expression import Expr, If, Project, Tuple
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type.dim import same_dim
from plica.runtime.error import Diagnostic

Again: TypeAlias = "Callable[[tuple[Expr, ...]], TensorValue]"


def differ_in_rank(yes: TensorValue, no: TensorValue) -> bool:
    """Whether two sides give tensors that one type does not hold."""
    if isinstance(yes, ListedValue) or isinstance(no, ListedValue):
        return False
    return yes.type.dtype is not no.type.dtype or len(yes.type.shape) != len(no.type.shape)


def joined_sides(node: OnnxNode, chosen: Expr, yes: Side, no: Side) -> list[TensorValue]:
    """The selection between two branches, with the sizes measured inside each."""
    pairs = [_alike(node, *each) for each in zip(yes[0], no[0], strict=True)]
    then = [part for one, _, _ in pairs for part in one]
    orelse = [part for _, other, _ in pairs for part in other]
    shapes = [
        _joined(node, chosen, (a, yes[1]), (b, no[1])) for a, b in zip(then, orelse, strict=True)
    ]
    sides = []
    for values, region in ((then, yes[1]), (orelse, no[1])):
        parts = [matched(e, of) for e, of in zip(values, shapes, strict=True)]
        sides.append(measuring(region, parts[0] if len(parts) == 1 else Tuple(tuple(parts))))
    whole = If(chosen, *sides)
    found = [whole] if len(then) == 1 else [Project(whole, at) for at in range(len(then))]
    tensor_values: list[TensorValue] = []
    for yes_parts, _, again in pairs:
        tensor_values.append(again(tuple(found[: len(yes_parts)])))
        del found[: len(yes_parts)]
    return tensor_values


def _alike(
    node: OnnxNode, yes: TensorValue, no: TensorValue
) -> tuple[Sequence[Expr], Sequence[Expr], Again]:
    """The results of two branches as tensors, and how to rebuild the selected value."""
    if any(isinstance(value, AnyRankValue) for value in (yes, no)) or differ_in_rank(yes, no):
        one, other = (as_any_rank(node.place, tensor_value) for tensor_value in (yes, no))
        return _parts(node, one, other)
    if not isinstance(yes, ListedValue) and not isinstance(no, ListedValue):
        return [yes.expr], [no.expr], lambda parts: TensorValue(parts[0])
    if isinstance(yes, SequenceValue) and isinstance(no, SequenceValue):
        ranks = [[rank(item) for item in side.items] for side in (yes, no)]
        if ranks[0] == ranks[1]:
            return yes.items, no.items, lambda parts: SequenceValue.holding(parts, yes.of)
    option = next((each for each in (yes, no) if isinstance(each, OptionValue)), None)
    if option is None:
        return _parts(node, *(as_ragged(node.place, tensor_value) for tensor_value in (yes, no)))
    return _parts(node, *(as_option(node.place, value, option.holds_list) for value in (yes, no)))


def _parts(
    node: OnnxNode, yes: RaggedValue, no: RaggedValue
) -> tuple[Sequence[Expr], Sequence[Expr], Again]:
    if yes.word != no.word:
        node.malformed("Branches give values of one type.", yes.word, no.word)
    like = attrs.evolve(yes, rank=yes.rank if yes.rank == no.rank else None)
    return yes.parts, no.parts, lambda parts: attrs.evolve(like, expr=Tuple(parts))


def _joined(
    node: OnnxNode, chosen: Expr, yes: tuple[Expr, Region], no: tuple[Expr, Region]
) -> Shape:
    """The shape of a selection: sizes that differ between the branches are measured."""
    local = {*yes[1].values(), *no[1].values()}
    sizes: list[Scalar] = []
    shapes = (TensorValue(yes[0]).type.shape, TensorValue(no[0]).type.shape)
    for at, (a, b) in enumerate(zip(*shapes, strict=True)):
        if same_dim(a, b) and local.isdisjoint(free_vars(a)):
            sizes.append(a)
            continue
        ways = [measuring(region, amount(size)) for size, (_, region) in ((a, yes), (b, no))]
        sizes.append(node.measured(If(chosen, *ways), at))
    return tuple(sizes)


# --- readings ------------------------------------------------------------------------------------


def joined_readings(
    first: ModelReading,
    read: Callable[[tuple[BranchAnswer, ...]], ModelReading],
    outputs: Sequence[str],
) -> ModelReading:
    """A model read for each answer at its branch points, as one; `outputs` are the model's."""
    found, points = first, first.converter.branch_points
    if points is None:
        return found
    start = len(points.answers)
    while start and not points.answers[start - 1].answer:
        start -= 1  # from here on the reading was free
    for at in reversed(range(start, len(points.points))):
        answers = (*points.answers[:at], found.converter.other_answer)
        other = joined_readings(read(answers), read, outputs)
        found = _joined_pair(points.points[at], other, found, outputs)
    return found


def _joined_pair(
    point: BranchPoint, yes: ModelReading, no: ModelReading, outputs: Sequence[str]
) -> ModelReading:
    """Two readings that diverge at a branch point; if the model is invalid one way, calls must go
    the other."""
    refused = [each for each in (yes, no) if each.converter.errors]
    # A way without meaning says nothing of the model: the other may only need to know more.
    for each in refused:
        if not has_no_meaning(each.converter.errors):
            return each
    if len(refused) == 2:
        return yes
    if refused:
        holds = point.condition if refused[0] is no else op.logical_not(point.condition)
        fault = refused[0].converter.errors[0].diagnostics[0]
        return _demanded(yes if refused[0] is no else no, holds, outputs[0], fault)
    made: list[list[TensorValue]] = []
    regions: list[Region] = []
    for each in (yes, no):
        made.append([value for name in outputs if (value := each.scope.get(name)) is not None])
        if len(made[-1]) < len(outputs):
            return each  # an output is made by nothing, which is said of it
        regions.append(dict(list(each.converter.measured_here.items())[point.measured :]))
    # A term common to both comes from before the branch point, because later names are fresh.
    apart = [at for at, (a, b) in enumerate(zip(*made, strict=True)) if a.expr is not b.expr]
    if not apart:
        return no
    whole = no.converter.joining(point, yes.converter)
    names = [outputs[at] for at in apart]
    sides = [
        ([values[at] for at in apart], behind) for values, behind in zip(made, regions, strict=True)
    ]
    tensor_values = joined_sides(_whole_model(names, whole), as_scalar(point.condition), *sides)
    return ModelReading(whole, no.scope.new_child(dict(zip(names, tensor_values, strict=True))))


def _demanded(of: ModelReading, holds: Expr, output: str, fault: Diagnostic) -> ModelReading:
    """A reading for calls in which a condition holds; others are refused."""
    if (value := of.scope.get(output)) is None:
        return of
    node = _whole_model((output,), of.converter)
    tensor_value = only_where(node, value, holds, fault)
    return ModelReading(of.converter, of.scope.new_child({output: tensor_value}))


def only_where(node: OnnxNode, value: TensorValue, holds: Expr, fault: Diagnostic) -> TensorValue:
    """A value in calls where a condition holds; other calls are refused with `fault`."""
    if not isinstance(value, ListedValue):
        return TensorValue(demanded(node, value.expr, holds, "meaning", fault))
    parts = [demanded(node, part, holds, "meaning", fault) for part in value.parts]
    return attrs.evolve(value, expr=Tuple(tuple(parts)))


def _whole_model(outputs: Sequence[str], converter: NodeConverter) -> OnnxNode:
    """The branch that a model is which is read several ways."""
    from onnx import helper

    return OnnxNode(helper.make_node("If", [], list(outputs)), 0, (), None, converter)
