"""Rows of control flow: branches, loops and scans.

A condition that is known chooses its branch at once, and a loop whose count is known is written
out.  Otherwise a branch is the language's own `if`, and a loop is a function that calls itself, or
needs the values of the inputs that decide its length where such functions are not wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from plica.core.name import Name
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, Row, as_scalar, axis_in, is_one, rank, shape
from plica.frontend.onnx.value import Array, TensorValue
from plica.ir.graph.expression import Call, Expr, Function, If, Let, Project, Tuple, Var, const
from plica.ir.op.comparison import less, logical_and
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add
from plica.ir.op.join import stack
from plica.ir.op.shape import reshape
from plica.ir.type.dim import known
from plica.ir.type.dtype import i64
from plica.ir.type.infer import same_type
from plica.ir.type.term import FuncType, TensorType, TupleType, static_shape, tensor

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
    then, orelse = (node.run(each) for each in branches)
    if len(then) != len(orelse):
        node.malformed("Branches have one number of outputs.", str(len(then)), str(len(orelse)))
    for yes, no in zip(then, orelse, strict=True):
        if not same_type(yes.type, no.type):
            node.undecided(f"The type that If gives ({yes.type} or {no.type})", condition)
    chosen = as_scalar(condition.expr)
    if len(then) == 1:
        return If(chosen, then[0].expr, orelse[0].expr)
    both = [Tuple(tuple(each.expr for each in side)) for side in (then, orelse)]
    whole = If(chosen, both[0], both[1])
    return [Project(whole, at) for at in range(len(then))]


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
    if scans:
        if count is not None and most is None:
            node.numbers(0)  # says which inputs the count depends on
        if going is not None and start is None:
            node.numbers(1)
        node.unsupported("A loop of unknown length gives no tensor of known length.")
    if not node.may_recurse:
        for at, each in enumerate((count, going)):
            if each is not None:
                node.numbers(at)
        node.unsupported("The loop has too many turns to be written out.", f"{MOST_TURNS} turns")
    return _recursive(node, count, going, state)


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
    if most is not None and most > MOST_TURNS and not scans and _never_ends(body):
        return None
    while most is None or turn < most:
        if turn >= MOST_TURNS:
            if scans:
                node.unsupported("The loop has too many turns.", f"at most {MOST_TURNS}")
            return None
        given = [TensorValue(const(turn, i64)), TensorValue(const(True)), *state]
        found = node.run(body, *given)
        going = found[0].numbers()
        if going is None and not node.may_recurse:
            node.undecided("Whether the loop goes on", found[0])
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
        return [*state, *(_no_rows(node, each, 0) for each in items)]
    return [*state, *(stack(tuple(row), axis=0) for row in rows)]


def _no_rows(node: OnnxNode, item: TensorValue, axis: int) -> Expr:
    """What stacking no items gives: the item that is not made says the other sizes."""
    sizes = static_shape(item.type)
    if sizes is None:
        node.unsupported("A loop without turns gives tensors of unknown shape.")
    whole = (*sizes[:axis], 0, *sizes[axis:])
    return const(np.zeros(whole, item.type.dtype.numpy), item.type.dtype)


def _never_ends(body: GraphProto) -> bool:
    """Whether a body hands on the condition it is given."""
    plain = [each for each in body.node if len(each.input) == len(each.output) == 1]
    copied = {each.output[0]: each.input[0] for each in plain if each.op_type == "Identity"}
    name = body.output[0].name
    for _ in range(len(copied)):
        name = copied.get(name, name)
    return bool(name == body.input[1].name)


def _recursive(
    node: OnnxNode, count: TensorValue | None, going: TensorValue | None, state: list[TensorValue]
) -> list[Expr]:
    """A function that calls itself as long as the loop goes on."""
    bool_ = tensor((), "bool")
    number = tensor((), i64)
    types: list[TensorType] = [number, bool_, *(each.type for each in state)]
    result = TupleType(tuple(each.type for each in state))
    params = [Var(Name(node.fresh("loop")), of) for of in types]
    itself = Var(Name(node.fresh("loop")), FuncType((), (), tuple(types), result))
    turn, alive, *held = params
    found = node.run(node.graph("body"), *[TensorValue(each) for each in params])
    after = found[1:]
    for before, value in zip(state, after, strict=True):
        if not same_type(before.type, value.type):
            message = "A loop changes the type of what it carries."
            node.unsupported(message, str(before.type), str(value.type))
    next_ = Call(
        itself,
        (
            add(turn, const(1, i64)),
            as_scalar(found[0].expr),
            *(each.expr for each in after),
        ),
    )
    limit = alive if count is None else logical_and(less(turn, as_scalar(count.expr)), alive)
    body = If(limit, next_, Tuple(tuple(held)))
    start = const(True) if going is None else as_scalar(going.expr)
    first = Call(itself, (const(0, i64), start, *(each.expr for each in state)))
    whole = Let(itself, Function((), (), tuple(params), result, body), first)
    return [Project(whole, at) for at in range(len(state))]


# --- scans ---------------------------------------------------------------------------------------


def _scan(node: OnnxNode) -> Made:
    if node.opset < 9:
        node.unsupported("Scan of version 8 is not supported.", "version 9 or later")
    body = node.graph("body")
    count = node.integer("num_scan_inputs")
    inputs = [node.need(at) for at in range(len(node.inputs))]
    states = len(inputs) - count
    outputs = len(body.output) - states
    if states < 0 or count < 1 or outputs < 0 or len(body.input) != len(inputs):
        node.malformed("The body does not fit the scan.", str(len(inputs)), str(len(body.input)))
    state, given = inputs[:states], inputs[states:]
    axes = node.integers("scan_input_axes") or (0,) * count
    turned = node.integers("scan_input_directions") or (0,) * count
    out_axes = node.integers("scan_output_axes") or (0,) * outputs
    out_turned = node.integers("scan_output_directions") or (0,) * outputs
    if (len(axes), len(turned)) != (count, count) or (
        (len(out_axes), len(out_turned)) != (outputs, outputs)
    ):
        node.malformed("There is not one axis for each input and output.", str(count), str(axes))
    places = [axis_in(node, axis, len(value.type.shape))
              for axis, value in zip(axes, given, strict=True)]  # fmt: skip
    lengths = {known(value.type.shape[axis]) for axis, value in zip(places, given, strict=True)}
    length = lengths.pop()
    if lengths:
        node.malformed("The inputs of a scan have one length.", str(length), str(lengths))
    if length is None or length > MOST_TURNS:
        found = str(given[0].type)
        node.unsupported("A scan needs a known length.", f"at most {MOST_TURNS}", found)
    rows: list[list[Expr]] = [[] for _ in range(outputs)]
    for turn in range(length):
        items = [
            TensorValue(_item(value.expr, axis, length - 1 - turn if back else turn))
            for value, axis, back in zip(given, places, turned, strict=True)
        ]
        made = node.run(body, *state, *items)
        state = made[:states]
        for row, value in zip(rows, made[states:], strict=True):
            row.append(value.expr)
    if not length:
        return [*state, *_none_scanned(node, state, given, places, out_axes)]
    ends: list[Expr] = []
    for row, axis, back in zip(rows, out_axes, out_turned, strict=True):
        items_ = tuple(reversed(row)) if back else tuple(row)
        ends.append(stack(items_, axis=axis_in(node, axis, rank(row[0]) + 1)))
    return [*state, *ends]


def _none_scanned(
    node: OnnxNode,
    state: list[TensorValue],
    given: list[TensorValue],
    places: list[int],
    out_axes: tuple[int, ...],
) -> list[Expr]:
    """The outputs of a scan without turns, whose body is only asked for its types."""
    items = []
    for value, axis in zip(given, places, strict=True):
        of = value.type
        item = TensorType((*of.shape[:axis], *of.shape[axis + 1 :]), of.dtype)
        items.append(TensorValue(Var(Name(node.fresh("scan")), item)))
    made = node.run(node.graph("body"), *state, *items)[len(state) :]
    return [
        _no_rows(node, value, axis_in(node, axis, len(value.type.shape) + 1))
        for value, axis in zip(made, out_axes, strict=True)
    ]


def _item(x: Expr, axis: int, at: int) -> Expr:
    rest = (*shape(x)[:axis], *shape(x)[axis + 1 :])
    return reshape(slice_(x, (at,), (at + 1,), None, (axis,)), rest)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "If":   _if,
    "Loop": _loop,
    "Scan": _scan,
}
# fmt: on
