"""Rows of control flow: branches, loops and scans.

A condition that is known chooses its branch at once, and a loop whose count is known is written
out.  Otherwise a branch is the language's own `if`, whose sizes are measured where its sides
differ, and a loop is a function that calls itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from plica.core.binding import free_vars
from plica.frontend.onnx.node import OnnxNode, Region, measuring
from plica.frontend.onnx.row.repeat import carried, collecting, no_rows, repeated
from plica.frontend.onnx.row.word import (
    Made,
    Row,
    as_scalar,
    is_one,
    to,
)
from plica.frontend.onnx.run_time import amount, at_least_zero, matched, size_from
from plica.frontend.onnx.value import Array, TensorValue
from plica.ir.graph.expression import Expr, If, Project, Tuple, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.comparison import less, logical_and
from plica.ir.op.elementwise import add
from plica.ir.op.join import stack
from plica.ir.op.relation import Shape
from plica.ir.type.dim import same_dim
from plica.ir.type.dtype import i64

if TYPE_CHECKING:
    from onnx import GraphProto

MOST_TURNS: Final = 4096
"""Loops of more turns are not written out."""


def _if(node: OnnxNode) -> Made:
    condition = node.need(0)
    if not is_one(condition.expr):
        node.malformed("A condition is one bool.", "one element", str(condition.type))
    numbers = condition.numbers()
    branches = [node.graph(name) for name in ("then_branch", "else_branch")]
    if numbers is not None:
        return node.run(branches[0 if bool(numbers.reshape(-1)[0]) else 1])
    (then, inside), (orelse, outside) = (node.region(each) for each in branches)
    if len(then) != len(orelse):
        node.malformed("Branches have one number of outputs.", str(len(then)), str(len(orelse)))
    chosen = as_scalar(condition.expr)
    shapes = []
    for yes, no in zip(then, orelse, strict=True):
        if yes.type.dtype is not no.type.dtype or len(yes.type.shape) != len(no.type.shape):
            node.undecided(f"The type that If gives ({yes.type} or {no.type})", condition)
        shapes.append(_joined(node, chosen, (yes, inside), (no, outside)))
    sides = []
    for values, region in ((then, inside), (orelse, outside)):
        parts = [matched(e.expr, of) for e, of in zip(values, shapes, strict=True)]
        sides.append(measuring(region, parts[0] if len(parts) == 1 else Tuple(tuple(parts))))
    whole = If(chosen, *sides)
    if len(then) == 1:
        return whole
    return [Project(whole, at) for at in range(len(then))]


def _joined(
    node: OnnxNode, chosen: Expr, yes: tuple[TensorValue, Region], no: tuple[TensorValue, Region]
) -> Shape:
    """The shape of what a branch gives: sizes in which its sides differ are measured."""
    local = {*yes[1].values(), *no[1].values()}
    sizes: list[Scalar] = []
    for at, (a, b) in enumerate(zip(yes[0].type.shape, no[0].type.shape, strict=True)):
        if same_dim(a, b) and local.isdisjoint(free_vars(a)):
            sizes.append(a)
            continue
        ways = [measuring(region, amount(size)) for size, (_, region) in ((a, yes), (b, no))]
        sizes.append(node.measured(If(chosen, *ways), at))
    return tuple(sizes)


# --- loops ---------------------------------------------------------------------------------------


def _loop(node: OnnxNode) -> Made:
    count, going = node.value(0), node.value(1)
    body = node.graph("body")
    state = [node.need(at) for at in range(2, len(node.inputs))]
    scans = len(body.output) - 1 - len(state)
    if len(body.input) != len(state) + 2 or scans < 0:
        node.malformed("The body does not fit the loop.", str(len(state) + 2), str(len(body.input)))
    turns = None if count is None else count.numbers()
    start = np.ones(1, bool) if going is None else going.numbers()
    if start is not None and not _first(node, start):
        turns = np.zeros(1, np.int64)
    most = None if turns is None else int(_first(node, turns))
    # Whether there is a first turn must be known to write it out.
    if start is not None and (most is not None or count is None):
        found = _written_out(node, most, state, scans)
        if found is not None:
            return found
    return _recursive(node, count, going, state, scans)


def _first(node: OnnxNode, numbers: Array) -> int | bool:
    """The one number that a count or a condition is."""
    if numbers.size != 1:
        node.malformed("A count or a condition is one number.", "one", str(numbers.shape))
    found: int | bool = numbers.reshape(-1)[0].item()
    return found


def _written_out(
    node: OnnxNode, most: int | None, state: list[TensorValue], scans: int
) -> Made | None:
    """Every turn of a loop, None where its end depends on what it computes."""
    body = node.graph("body")
    rows: list[list[Expr]] = [[] for _ in range(scans)]
    turn = 0
    if most is not None and most > MOST_TURNS and _never_ends(body):
        return None
    while most is None or turn < most:
        if turn >= MOST_TURNS:
            return None
        given = [TensorValue(const(turn, i64)), TensorValue(const(True)), *state]
        found = node.run(body, *given)
        going = found[0].numbers()
        if going is None:
            return None
        state = found[1 : 1 + len(state)]
        for row, value in zip(rows, found[1 + len(state) :], strict=True):
            row.append(value.expr)
        turn += 1
        if not _first(node, going):
            break
    if scans and not turn:
        given = [TensorValue(const(0, i64)), TensorValue(const(True)), *state]
        items = node.run(body, *given)[1 + len(state) :]
        return [*state, *(no_rows(node, each, 0) for each in items)]
    return [*state, *(stack(tuple(row), axis=0) for row in rows)]


def _never_ends(body: GraphProto) -> bool:
    """Whether a body hands on the condition it is given."""
    plain = [each for each in body.node if len(each.input) == len(each.output) == 1]
    copied = {each.output[0]: each.input[0] for each in plain if each.op_type == "Identity"}
    name = body.output[0].name
    for _ in range(len(copied)):
        name = copied.get(name, name)
    return bool(name == body.input[1].name)


def _recursive(
    node: OnnxNode,
    count: TensorValue | None,
    going: TensorValue | None,
    state: list[TensorValue],
    scans: int,
) -> list[Expr]:
    """A function that calls itself as long as the loop goes on.

    Where it collects tensors, how many is known before: by the count, where nothing else ends the
    loop, otherwise by a loop that only counts its turns.
    """
    body = node.graph("body")
    start = [const(0, i64), const(True) if going is None else as_scalar(going.expr)]
    start += [each.expr for each in state]
    limit = None if count is None else to(as_scalar(count.expr), i64)

    def test(turn: Expr, alive: Expr, *_: Expr) -> Expr:
        return alive if limit is None else logical_and(less(turn, limit), alive)

    region: Region = {}

    def turn_of(turn: Expr, alive: Expr, *held: Expr) -> tuple[list[Expr], list[Expr]]:
        given = [TensorValue(each) for each in (turn, alive, *held[: len(state)])]
        found, inside = node.region(body, *given)
        region.update(inside)
        after = []
        for before, value in zip(held, found[1 : 1 + len(state)], strict=False):
            after.append(carried(node, before, value.expr))
        next_ = [add(turn, const(1, i64)), as_scalar(found[0].expr), *after]
        return next_, [each.expr for each in found[1 + len(state) :]]

    if not scans:
        return repeated(node, start, test, lambda *e: turn_of(*e)[0], region)[2:]
    if limit is not None and _never_ends(body) and going is None:
        turns = at_least_zero(limit)
    else:
        turns = repeated(node, start, test, lambda *e: turn_of(*e)[0], region)[0]
        region = {}
    rows = size_from(node, turns, "turns")
    return collecting(node, start, test, turn_of, region, rows)[2:]


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "If":   _if,
    "Loop": _loop,
}
# fmt: on
