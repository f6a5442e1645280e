"""Nodes of graphs: the operators, calls, choices and inputs of a module, values before uses.

>>> from plica.core.name import Name
>>> from plica.ir.type.infer import infer
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2,), "f32")), Var(Name("main"), None)
>>> of = infer(module({main: Function((), (), (x,), None, (x + 1.0) * x)}, main))
>>> [(box.label, box.note, len(box.below)) for box in boxes(of)]
[('x', '2 f32', 0), ('add', '2 f32', 1), ('multiply', '2 f32', 2)]
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from plica.core import parts_first
from plica.ir.graph.expression import Apply, Call, Const, Expr, Function, If, Literal, Var
from plica.ir.graph.module import Module
from plica.ir.type import TensorType, static_shape, type_of
from plica.rewrite.fuse import is_primitive
from plica.rewrite.graph.walk import operands


@frozen(eq=False)
class NodeBox:
    """A node of a picture."""

    term: Expr
    label: str
    kind: str
    below: tuple[Expr, ...]  # the boxes it reads

    @property
    def note(self) -> str:
        """Its type, which costs something to find."""
        return _type(self.term)


Reach: TypeAlias = "dict[Expr, tuple[Expr, ...]]"
"""The boxes that each value comes from; a box itself maps to itself."""


def boxes(module: Module) -> list[NodeBox]:
    """The operators, calls, choices and inputs of the main function, values before uses."""
    return boxes_in(module.main_function().body, {})


def boxes_in(root: Expr, reach: Reach) -> list[NodeBox]:
    """The new boxes of an expression, which are added to `reach`."""
    node_boxes: list[NodeBox] = []
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        if not leaving:
            if node not in reach and not (isinstance(node, Function)):
                stack.append((node, True))
                stack += [(operand, False) for operand in reversed(operands(node))]
            continue
        if node in reach:
            continue
        below: dict[Expr, None] = {}
        for operand in operands(node):
            below |= dict.fromkeys(reach.get(operand, ()))
        if (node_box := _box(node, tuple(below))) is None:
            reach[node] = tuple(below)
        else:
            node_boxes.append(node_box)
            reach[node] = (node,)
    return node_boxes


def _box(node: Expr, below: tuple[Expr, ...]) -> NodeBox | None:
    match node:
        case Var():
            return NodeBox(node, str(node.name), "input", below)
        case Call(callee, _) if is_primitive(callee):
            assert isinstance(callee, Function)
            return NodeBox(node, _inside(callee), "fused", below)
        case Call():
            return NodeBox(node, "call", "call", below)
        case Apply(op, _, _):
            return NodeBox(node, op, "operator", below)
        case If():
            return NodeBox(node, "if", "choice", below)
        case Const() | Literal() | _:
            return None


def _inside(function: Function) -> str:
    order = parts_first(operands, function.body)
    return " + ".join([node.op.removeprefix("nn.") for node in order if isinstance(node, Apply)])


def _type(node: Expr) -> str:
    of = type_of(node)
    shape = static_shape(of) if isinstance(of, TensorType) else None
    if shape is None or not isinstance(of, TensorType):
        return ""
    return f"{' x '.join(map(str, shape)) or 'scalar'} {of.dtype}"
