"""Models in: from an ONNX file to a module of the graph language.

Names of inputs and outputs are kept; symbolic dims of the file become symbolic dims of the module.
A file is untrusted data: malformed parts are refused with the node's name, and unsupported
operators are listed all at once.

>>> from onnx import helper, TensorProto
>>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "xy")
>>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
>>> print(from_onnx(helper.make_model(graph)))
# plica 1
from __future__ import annotations
<BLANKLINE>
import plica
from plica.op import nn
from plica.script import Tensor, f32
<BLANKLINE>
<BLANKLINE>
@plica.function(attrs={"outputs": ("y",)})
def main(x: Tensor[("n", 3), f32]) -> Tensor[("n", 3), f32]:
    return nn.relu(x)
<BLANKLINE>
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from plica.core.binding import free_vars
from plica.core.collector import paused
from plica.core.diagnostic import Malformed
from plica.core.name import Name
from plica.frontend.measured import measuring
from plica.frontend.onnx.attribute import RefusedForGood, name_of
from plica.frontend.onnx.convert import ModelReading, NodeConverter, Scope, initialisers
from plica.frontend.onnx.dim import Dims
from plica.frontend.onnx.model import Opened, is_list, open_model
from plica.frontend.onnx.node import NeedsValue
from plica.frontend.onnx.order import check_expansion, every_node, opset_versions, ordered
from plica.frontend.onnx.storage import dtype_of
from plica.frontend.onnx.table import check_operators, check_versions
from plica.frontend.onnx.value import (
    InputTypes,
    ListedValue,
    TensorValue,
    array_given,
    fixed_value,
    replaced_value,
)
from plica.ir.graph.expression import Attrs, Const, Expr, Function, Tuple, Var
from plica.ir.graph.module import MADE_BY_NODES, MadeByNodes, Module, main_module
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import TensorType, infer
from plica.runtime.error import InputError, Place, PlicaError, UnsupportedError, wrong_argument
from plica.runtime.late import lazy_imports

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

with lazy_imports(__name__):  # few models have lists, or are read more than once
    from plica.frontend.onnx.branch_specialisation import BranchAnswer
    from plica.frontend.onnx.join import joined_readings
    from plica.frontend.onnx.sequence_port import sequence_input, sequence_output, sequence_ports


def from_onnx(
    source: str | PathLike[str] | bytes | ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Module:
    """The module that an ONNX model is: a path, the bytes of a file, or a `ModelProto`.

    `dims` gives numbers for symbolic dims, `fixed` values for inputs, which then are none: a shape
    or an axis that is an input of the model must be known when it is read.
    """
    words: dict[str, object] = {"dims": dims, "fixed": fixed}
    for word, given in words.items():
        if given is not None and not (
            isinstance(given, Mapping) and all(isinstance(each, str) for each in given)
        ):
            message = f"{word!r} gives a value for each name."
            raise wrong_argument(message, "a mapping of names", given)
    opened = open_model(source)
    try:
        return from_opened(opened, dims, fixed)
    except (NeedsValue, RefusedForGood, Malformed):
        raise
    except UnsupportedError:
        # A refusal due to a measured size may disappear once values are known.
        return from_opened(opened, dims, fixed, measures=False)


def from_opened(
    opened: Opened,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    measures: bool = True,
) -> Module:
    """The module of a model that was opened before: `from_onnx` once more, with other sizes.

    Where it does not measure, the values of inputs that decide sizes are needed.
    """
    with paused():
        return _imported(opened, dict(dims or {}), dict(fixed or {}), measures)


def _imported(
    opened: Opened, dims: dict[str, int], fixed: dict[str, Any], measures: bool
) -> Module:
    """The module of a model; its nodes tell what they made."""
    model, graph = opened.model, opened.model.graph
    functions = {
        ("" if each.domain == "ai.onnx" else each.domain, each.name, each.overload): each
        for each in model.functions
    }
    opsets = opset_versions(model.opset_import)
    check_versions(opsets, {node_proto.op_type for node_proto, _ in every_node(graph.node)})
    check_operators(graph, functions, opsets)
    check_expansion(graph, functions)
    stored = initialisers(graph, opened.folder, whole=True)
    for name in [name for name in fixed if name in stored]:
        stored[name] = replaced_value(name, fixed.pop(name), stored[name])
    declared = [each for each in graph.input if each.name not in stored]
    fixed = {name: array_given(name, each) for name, each in fixed.items()}
    shapes = InputTypes(declared, dims, fixed)
    params: list[Var] = []
    names = {*Dims(declared).names}
    scope: Scope = ChainMap({})
    scope.update(stored)
    for each in declared:
        if not each.name or (each.name in scope):
            message = "An input of the model has no name of its own."
            raise Malformed.of("bad-model", message, Place(node=each.name or "graph"))
        if is_list(each):
            made, value = sequence_input(each, names)
            params += made
            scope[each.name] = value
            continue
        of = shapes.type(each)
        if each.name in fixed:
            scope[each.name] = fixed_value(each.name, fixed.pop(each.name), of)
        else:
            params.append(Var(Name(each.name), of))
            scope[each.name] = TensorValue(params[-1])
    if fixed:
        unknown = ", ".join(sorted(fixed))
        message = "A value is fixed for an input that the model does not have."
        there = ", ".join(each.name for each in declared) or "no inputs"
        raise InputError.of("input-unknown", message, None, there, unknown)

    def read(answers: tuple[BranchAnswer, ...] = ()) -> ModelReading:
        converter = NodeConverter(
            opened.folder, functions, names, measures, answers, join=joined_readings
        )
        inside = scope.new_child()
        converter.nodes(graph.node, inside, opsets)
        return ModelReading(converter, inside)

    found = read()
    if found.converter.branch_points is not None:
        found = joined_readings(found, read, [each.name for each in graph.output])
    converter, values = found
    if converter.errors:
        raise combined(converter.errors)
    made_lists = [isinstance(values.get(each.name), ListedValue) for each in graph.output]
    listed = any(made_lists) or any(map(is_list, (*declared, *graph.output)))
    told = sequence_ports(declared, graph.output, values, params) if listed else ()
    whole = _module(graph, params, values, converter, told)
    MADE_BY_NODES[whole] = _made_by_nodes(graph, values)
    return whole


def _made_by_nodes(graph: GraphProto, scope: Scope) -> MadeByNodes:
    """What each node of a graph made, by its name."""
    outputs = {name for node in graph.node for name in node.output if name}
    made: list[tuple[str, tuple[Expr, ...]]] = []
    selecting: list[str] = []

    def values(names: Iterable[str]) -> list[TensorValue]:
        return [value for name in names if isinstance(value := scope.get(name), TensorValue)]

    for node in ordered(list(graph.node), {name for name in scope if name not in outputs}):
        made.append((name_of(node), tuple([value.expr for value in values(node.output)])))
        given = [value for value in values(node.input[1:]) if not isinstance(value.expr, Const)]
        tensors = [value for value in given if not isinstance(value, ListedValue)]
        if any(tensor.type.dtype.is_integer for tensor in tensors):  # may be indices into the first
            selecting.append(name_of(node))
    return MadeByNodes(tuple(made), tuple(selecting))


def _module(  # what a module is made of
    graph: GraphProto, params: list[Var], scope: Scope, converter: NodeConverter, told: Attrs
) -> Module:
    outputs: list[Expr] = []
    names: list[str] = []
    for each in graph.output:
        if (value := scope.get(each.name)) is None:
            message = f"Nothing makes the output {each.name!r}."
            raise Malformed.of("bad-model", message, Place(node=each.name or "graph"))
        if isinstance(value, ListedValue) or is_list(each):
            made = sequence_output(each, value)
            outputs += made.values()
            names += made
            continue
        _check_output(each, value)
        outputs.append(value.expr)
        names.append(each.name)
    if not outputs:
        message = "The model has no outputs."
        raise Malformed.of("bad-model", message, Place(node=graph.name or "graph"))
    body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    body = measuring(converter.measured_here, body)
    used: dict[ScalarVar, None] = {}
    for param in params:
        assert isinstance(param.type, TensorType)
        for size in param.type.shape:
            found = [var for var in free_vars(size) if isinstance(var, ScalarVar)]
            used |= dict.fromkeys(sorted(found, key=lambda each: each.name))
    free = free_vars(body)
    used |= dict.fromkeys(var for var in converter.sizes if var in free)
    attrs = (*told, ("outputs", tuple(names)))
    function = Function(tuple(used), (), tuple(params), None, body, attrs)
    return infer(main_module(function, converter.definitions))


def _check_output(info: ValueInfoProto, value: TensorValue) -> None:
    """An output that says its element type must have it."""
    said = info.type.tensor_type.elem_type if info.type.HasField("tensor_type") else 0
    if said and dtype_of(said, info.name) is not value.type.dtype:
        message = f"The output {info.name!r} is of another type than the model says."
        expected, found = str(dtype_of(said, info.name)), str(value.type)
        raise Malformed.of("bad-model", message, Place(node=info.name), expected, found)


def combined(errors: list[PlicaError]) -> PlicaError:
    """All errors as one: malformed if any is, for good if any is, a need for values if any is."""
    listed = [diagnostic for error in errors for diagnostic in error.diagnostics]
    if any(isinstance(error, Malformed) for error in errors):
        return Malformed(listed[0], *listed[1:])
    if any(isinstance(error, RefusedForGood) for error in errors):
        return RefusedForGood(listed[0], *listed[1:])
    if needs := [error for error in errors if isinstance(error, NeedsValue)]:
        inputs = sorted({name for error in needs for name in error.inputs})
        return NeedsValue(listed[0], *listed[1:], inputs=tuple(inputs))
    return UnsupportedError(listed[0], *listed[1:])
