"""Pictures of graphs: the operators of a module in layers, values above their uses.

A node is as far down as the longest way to it; what is in one layer stands side by side in the
order of the program.  Fused groups are one box that names what is in it.

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

from collections.abc import Callable
from typing import Final

from attrs import frozen

from plica.ir.graph.expression import Apply, Call, Const, Expr, Function, If, Literal, Var
from plica.ir.graph.module import Module
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape
from plica.report.svg import element, joined, raw
from plica.rewrite.fuse import is_primitive
from plica.rewrite.graph.walk import operands

MOST: Final = 500
"""More nodes than this are not drawn; the page says so."""

WIDTH: Final = 190
HEIGHT: Final = 34
GAP: Final = 18


@frozen(eq=False)
class NodeBox:
    """A node of a picture."""

    term: Expr
    label: str
    note: str
    kind: str
    below: tuple[Expr, ...]  # the boxes it reads


def boxes(module: Module) -> list[NodeBox]:
    """The operators, calls, choices and inputs of the main function, values before uses."""
    main = module.main_function()
    found: list[NodeBox] = []
    reach: dict[Expr, tuple[Expr, ...]] = {}  # the boxes that a value comes from
    stack: list[tuple[Expr, bool]] = [(main.body, False)]
    while stack:
        node, leaving = stack.pop()
        if not leaving:
            if node not in reach and not (isinstance(node, Function)):
                stack.append((node, True))
                stack += [(each, False) for each in reversed(operands(node))]
            continue
        if node in reach:
            continue
        below: dict[Expr, None] = {}
        for each in operands(node):
            below |= dict.fromkeys(reach.get(each, ()))
        made = _box(node, tuple(below))
        if made is None:
            reach[node] = tuple(below)
        else:
            found.append(made)
            reach[node] = (node,)
    return found


def _box(node: Expr, below: tuple[Expr, ...]) -> NodeBox | None:
    match node:
        case Var():
            return NodeBox(node, str(node.name), _type(node), "input", below)
        case Call(callee, _) if is_primitive(callee):
            assert isinstance(callee, Function)
            return NodeBox(node, _inside(callee), _type(node), "fused", below)
        case Call():
            return NodeBox(node, "call", _type(node), "call", below)
        case Apply(op, _, _):
            return NodeBox(node, op, _type(node), "operator", below)
        case If():
            return NodeBox(node, "if", _type(node), "choice", below)
        case Const() | Literal() | _:
            return None


def _inside(function: Function) -> str:
    names: list[str] = []
    stack: list[tuple[Expr, bool]] = [(function.body, False)]
    seen: set[Expr] = set()
    while stack:
        node, leaving = stack.pop()
        if leaving:
            if isinstance(node, Apply):
                names.append(node.op.removeprefix("nn."))
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(each, False) for each in reversed(operands(node))]
    return " + ".join(names)


def _type(node: Expr) -> str:
    of = type_of(node)
    shape = static_shape(of) if isinstance(of, TensorType) else None
    if shape is None or not isinstance(of, TensorType):
        return ""
    return f"{' x '.join(map(str, shape)) or 'scalar'} {of.dtype}"


def draw(module: Module, mark: Callable[[Expr], str]) -> raw:
    """The picture of a module; `mark` gives the words by which a node is found on the page."""
    every = boxes(module)
    shown = every[:MOST]
    layer: dict[Expr, int] = {}
    for box in shown:
        layer[box.term] = 1 + max([layer[each] for each in box.below if each in layer], default=-1)
    counts: dict[int, int] = {}
    place: dict[Expr, tuple[int, int]] = {}
    for box in shown:
        row = layer[box.term]
        column = counts.get(row, 0)
        counts[row] = column + 1
        place[box.term] = GAP + column * (WIDTH + GAP), GAP + row * (HEIGHT + GAP)
    wide = GAP + max(counts.values(), default=1) * (WIDTH + GAP)
    high = GAP + len(counts) * (HEIGHT + GAP)
    parts: list[str] = []
    for box in shown:
        x, y = place[box.term]
        for each in box.below:
            if each in place:
                fx, fy = place[each][0] + WIDTH / 2, place[each][1] + HEIGHT
                tx, ty = x + WIDTH / 2, y
                bend = (ty - fy) / 2
                way = f"M{fx:g} {fy:g}C{fx:g} {fy + bend:g} {tx:g} {ty - bend:g} {tx:g} {ty:g}"
                parts.append(element("path", d=way, class_="edge"))
    for box in shown:
        x, y = place[box.term]
        words = mark(box.term)
        parts.append(
            element(
                "g",
                element("title", f"{box.label}\n{box.note}\n{words}".strip()),
                element("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=5),
                element("text", _cut(box.label, 30), x=x + 8, y=y + 15, class_="label"),
                element("text", _cut(box.note, 34), x=x + 8, y=y + 28, class_="note"),
                class_=f"box {box.kind}",
                data_nodes=words or None,
            )
        )
    picture = element(
        "svg",
        *map(raw, parts),
        viewBox=f"0 0 {wide} {high}",
        width=wide,
        height=high,
        class_="graph",
    )
    left = len(every) - len(shown)
    return (
        picture
        if not left
        else joined(picture, element("p", f"{left} more nodes are not drawn.", class_="left"))
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
