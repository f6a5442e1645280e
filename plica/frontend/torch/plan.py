"""Plans: which nodes of a traced graph Plica computes, which torch, and in what order."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import attrs

from plica.core.binding import free_vars
from plica.core.name import Name
from plica.frontend.torch.dtype import constant_of, dtype_of
from plica.frontend.torch.exported import assembled
from plica.frontend.torch.node import place_of, shape_of
from plica.frontend.torch.reader import CONTROL, UNKNOWN, Reader, gives_complex
from plica.frontend.torch.symbol import Symbols
from plica.frontend.torch.view import ending_views, is_made_last
from plica.ir.graph.expression import Expr, Tuple, Var
from plica.ir.graph.module import Module
from plica.ir.loop.scalar import ScalarVar
from plica.ir.op.namespace import op
from plica.ir.type import TensorType, dim
from plica.runtime.error import Diagnostic, PlicaError, UnsupportedError

if TYPE_CHECKING:
    from torch import fx

GPU = "cuda:0"  # the GPU that code is made for, as torch calls it


@attrs.frozen(eq=False)
class TorchPart:
    """Nodes that become one module: its parameters and its outputs, as nodes of the graph."""

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


@attrs.frozen(eq=False)
class TorchPlan:
    """Parts and single nodes of torch, in the order in which they run."""

    steps: tuple[TorchPart | fx.Node, ...]
    refused: tuple[Diagnostic, ...]


def device_of(root: fx.GraphModule) -> str:
    """The device of a graph: the first GPU with a tensor."""
    every = {str(tensor.device) for node in root.graph.nodes for tensor in _tensors(node)}
    return GPU if GPU in every else "cpu"


def _tensors(node: fx.Node) -> list[Any]:
    """What torch knows of the tensors that a node gives."""
    said = node.meta.get("val")
    every = said if isinstance(said, list | tuple) else [said]
    return [each for each in every if hasattr(each, "device")]


def plan(root: fx.GraphModule, symbols: Symbols) -> TorchPlan:
    """Divide the nodes of a graph; the symbols have numbers."""
    refused: list[Diagnostic] = []
    ours = _ours(root, symbols, refused)
    levels: dict[fx.Node, int] = {}
    drawn = 0
    for node in root.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            levels[node] = 0
            continue
        if node.op != "call_function":
            continue
        odd = int(node not in ours)
        needs = [each for each in node.all_input_nodes if odd or not is_number(each)]
        level = max([levels[need] + (levels[need] % 2 != odd) for need in needs], default=odd)
        level = max(level, odd)
        if odd and draws(node):
            level = drawn = max(level, drawn)
        levels[node] = level
    levels = _put_off(levels)
    order: dict[int, list[fx.Node]] = {}
    for node, level in levels.items():
        if node.op == "call_function":
            order.setdefault(level, []).append(node)
    steps: list[TorchPart | fx.Node] = []
    for level in sorted(order):
        steps += order[level] if level % 2 else [_part(order[level])]
    return TorchPlan(tuple(steps), tuple(refused))


def _put_off(early: dict[fx.Node, int]) -> dict[fx.Node, int]:
    """Levels at which what only a later part reads is computed there, instead of stored before it.

    That pays if the tensors kept instead take no more bytes: none, if they are all inputs of the
    graph or results of an earlier part.
    """
    kept: dict[fx.Node, int] = {}
    for node, level in early.items():
        inside = [each for each in node.all_input_nodes
                  if each.op == "call_function" and early.get(each) == level]  # fmt: skip
        kept[node] = sum(kept[each] if len(each.users) == 1 else _bytes(each) for each in inside)
    late = dict(early)
    for node in reversed(early):
        is_one = hasattr(node.meta.get("val"), "dtype") and node.target is not operator.getitem
        is_read = node.users and all(user.op == "call_function" for user in node.users)
        if early[node] % 2 or node.op != "call_function" or not is_one or not is_read:
            continue
        level = min(late[user] - late[user] % 2 for user in node.users)
        if level > early[node] and kept[node] <= _bytes(node):
            late[node] = level
    return late


def _bytes(node: fx.Node) -> int:
    """How many bytes a node's tensors take, as far as their sizes are known."""
    return sum(
        prod([size for size in tensor.shape if isinstance(size, int)]) * tensor.dtype.itemsize
        for tensor in _tensors(node)
    )


def _part(nodes: Sequence[fx.Node]) -> TorchPart:
    inside = set(nodes)
    inputs: dict[fx.Node, None] = {}
    for node in nodes:
        inputs |= dict.fromkeys(
            each for each in node.all_input_nodes if each not in inside and not is_number(each)
        )
    outputs = [
        node
        for node in nodes
        if hasattr(node.meta.get("val"), "dtype") and any(user not in inside for user in node.users)
    ]
    return TorchPart(tuple(nodes), tuple(inputs), tuple(outputs))


def _ours(root: fx.GraphModule, symbols: Symbols, refused: list[Diagnostic]) -> set[fx.Node]:
    """The nodes that the table reads; with a node that gives many go those that take one of it."""
    nodes: set[fx.Node] = set()
    on = device_of(root)
    for node in root.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem or is_number(node):
            continue
        if is_made_last(node):
            continue
        if gives_complex(node.meta.get("val")):
            refused.append(_left(node, "it gives complex numbers"))
            continue
        tensors = [tensor for one in (node, *node.all_input_nodes) for tensor in _tensors(one)
                   if one.op != "get_attr"]  # fmt: skip
        if elsewhere := {str(tensor.device) for tensor in tensors} - {on}:
            refused.append(_left(node, f"it has to do with {min(elsewhere)}, not with {on} alone"))
            continue
        group = [node]
        if not hasattr(node.meta.get("val"), "dtype"):
            group += [user for user in node.users if user.target is operator.getitem]
            if len(group) != len(node.users) + 1:
                refused.append(_left(node, "it gives a list as a whole"))
                continue
        given = dict.fromkeys(each for each in node.all_input_nodes)
        try:
            _read(root, group, list(given), symbols)
        except PlicaError as error:
            refused += error.diagnostics
        else:
            nodes.update(group)
    ends = ending_views(root)
    for node in root.graph.nodes:  # what torch has computed it views without a copy
        base = node.all_input_nodes[0] if node in ends else None
        if base is not None and base.op == "call_function" and base not in nodes:
            nodes.discard(node)
    return nodes


def _left(node: fx.Node, why: str) -> Diagnostic:
    message = f"{node.target} is left to torch: {why}."
    return Diagnostic("unsupported", message, place_of(node), None, str(node.target))


def is_number(node: fx.Node) -> bool:
    """Whether a node gives a size or another number, and no tensor."""
    said = node.meta.get("val")
    symbolic = type(said).__name__ in ("SymInt", "SymBool", "SymFloat")
    return symbolic or isinstance(said, bool | int | float)


def draws(node: fx.Node) -> bool:
    """Whether a node's result depends on when it runs."""
    import torch

    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags or changes(node)


def changes(node: fx.Node) -> bool:
    """Whether a node changes its arguments."""
    if str(node.target) in CONTROL:
        return False  # torch takes no branch or body that does
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (
        bool(schema.is_mutable) if schema is not None else node.target is not operator.getitem
        and getattr(node.target, "__module__", "") not in ("_operator", "math", "builtins", "torch")
    )  # fmt: skip


# --- from parts to modules -----------------------------------------------------------------------


def module_of(root: fx.GraphModule, part: TorchPart, symbols: Symbols, frozen: Any) -> Module:
    """The module of a part; `frozen` says which inputs are constants: nodes to tensors.

    A tensor that is dense up to the order of axes is passed directly, and transposed inside.
    """
    params: list[Var] = []
    values = _values(root, part.inputs, symbols, params, frozen)
    for at, node in enumerate(given_inputs(part, frozen)):
        if (order := memory_order(node)) is not None:
            known = params[at].type
            assert isinstance(known, TensorType)  # as `_values` has made it
            sizes = tuple([known.shape[axis] for axis in order])
            params[at] = Var(params[at].name, TensorType(sizes, known.dtype))
            values[node] = op.transpose(params[at], (*map(order.index, range(len(order))),))
    made = _run(root, part.nodes, values, symbols)
    outputs = [made[node] for node in part.outputs]
    body: Expr = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    types = [param.type for param in params if param.type is not None]
    sizes_known = {var for of in types for var in free_vars(of)}
    if unknown := sorted(str(var.name) for var in free_vars(body)
                         if isinstance(var, ScalarVar) and var not in sizes_known):  # fmt: skip
        message = "A part of a graph computes with sizes that none of its tensors has."
        found = ", ".join(unknown)
        raise UnsupportedError.of("unsupported", message, None, "sizes of inputs", found)
    return assembled(params, body, [node.name for node in part.outputs])


def given_inputs(part: TorchPart, frozen: Any) -> list[fx.Node]:
    """The inputs of a part that it is called with."""
    return [node for node in part.inputs if node not in frozen and node.op != "get_attr"]


def memory_order(node: fx.Node) -> tuple[int, ...] | None:
    """The axes of a tensor as they lie in memory, where it is dense but for their order."""
    said: Any = node.meta.get("val")
    if not hasattr(said, "dtype") or not all(isinstance(s, int) and s for s in said.shape):
        return None
    sizes, strides = list(said.shape), list(said.stride())
    if not all(isinstance(stride, int) for stride in strides):
        return None
    order = sorted(range(len(sizes)), key=lambda axis: -strides[axis])
    step = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != step:
            return None
        step *= sizes[axis]
    long = [axis for axis in order if sizes[axis] != 1]
    return None if long == sorted(long) else tuple(order)


def _read(
    root: fx.GraphModule, nodes: Sequence[fx.Node], inputs: Iterable[fx.Node], symbols: Symbols
) -> None:
    """Try whether nodes can be read on inputs of which only the types are known."""
    _run(root, nodes, _values(root, inputs, symbols, [], {}), symbols)


def _values(
    root: fx.GraphModule, inputs: Iterable[fx.Node], symbols: Symbols, params: list[Var],
    frozen: Any,
) -> dict[fx.Node, Any]:  # fmt: skip
    values: dict[fx.Node, Any] = {}
    for node in inputs:
        said = node.meta.get("val")
        if node in frozen:
            values[node] = constant_of(frozen[node], place_of(node))
        elif node.op == "get_attr":
            stored = _attribute(root, str(node.target))
            is_graph = hasattr(stored, "graph")  # a branch, or the body of a loop
            values[node] = stored if is_graph else constant_of(stored, place_of(node))
        elif hasattr(said, "dtype"):
            values[node] = Var(Name(node.name), _type(node, said, symbols))
            params.append(values[node])
        elif isinstance(said, list | tuple):
            values[node] = [Var(Name(f"{node.name}_{at}"), _type(node, each, symbols))
                            for at, each in enumerate(said)]  # fmt: skip
        # Numbers are read from torch's metadata, in `_run`.
    return values


def _type(node: fx.Node, said: Any, symbols: Symbols) -> TensorType:
    of, sizes = dtype_of(said.dtype), shape_of(said, symbols)
    if of is None or sizes is None:
        found = f"{said.dtype} of shape {tuple(said.shape)} on {said.device}"
        message = "A tensor is of a kind that Plica does not have."
        raise UnsupportedError.of("unsupported", message, place_of(node), None, found)
    return TensorType(tuple(dim(size) for size in sizes), of)


def _run(
    root: fx.GraphModule, nodes: Sequence[fx.Node], values: dict[fx.Node, Any], symbols: Symbols
) -> dict[fx.Node, Any]:
    reader = Reader(symbols)
    for node in nodes:
        for each in node.all_input_nodes:
            if is_number(each) and each not in values:
                values[each] = reader.number(each)
        values[node] = reader.guarded(root, node, values)
        if values[node] is UNKNOWN:
            raise reader.errors[0]
    return values


def _attribute(root: fx.GraphModule, path: str) -> Any:
    found: Any = root
    for name in path.split("."):
        found = getattr(found, name)
    return found
