"""Rows of scans: a body for each place along axes, and what it gives, row by row."""

from __future__ import annotations

from typing import Final

from plica.core.name import Name
from plica.frontend.measured import Region, amount, matched
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.repeat import MOST_TURNS, carry, collecting, no_rows, of_known_ranks
from plica.frontend.onnx.row.word import Made, Row, axis_in, rank
from plica.frontend.onnx.value import TensorValue
from plica.frontend.recurrence import MOST_STEPS
from plica.frontend.word import select
from plica.ir.graph.expression import Expr, Var, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.type import TensorType, i64, known


def _scan(node: OnnxNode) -> Made:
    if node.opset >= 9:
        inputs = [node.need(at) for at in range(len(node.inputs))]
        return _turns(node, inputs, node.integers("scan_input_directions"))
    # Before version 9 the first axis of everything is a batch of separate scans.
    if node.value(0) is not None:
        node.unsupported("Scans of different lengths are not supported.", "no lengths", "lengths")
    inputs = [node.need(at) for at in range(1, len(node.inputs))]
    sizes = {known(value.type.shape[0]) if value.type.shape else None for value in inputs}
    batch = sizes.pop() if len(sizes) == 1 else None
    if batch is None or not 1 <= batch <= MOST_TURNS:
        node.unsupported("A scan has a batch of a known size.", f"1 to {MOST_TURNS}", str(batch))
    every = [
        _turns(node, [TensorValue(select(tensor_value.expr, at)) for tensor_value in inputs],
               node.integers("directions"))
        for at in range(batch)
    ]  # fmt: skip
    return [op.stack(rows, axis=0) for rows in zip(*every, strict=True)]


def _turns(
    node: OnnxNode, inputs: list[TensorValue], directions: tuple[int, ...] | None
) -> list[Expr]:
    """The results of a scan: states, then collected values."""
    body = node.graph("body")
    count = node.integer("num_scan_inputs")
    states = len(inputs) - count
    outputs = len(body.output) - states
    if states < 0 or count < 1 or outputs < 0 or len(body.input) != len(inputs):
        node.malformed("The body does not fit the scan.", str(len(inputs)), str(len(body.input)))
    state, given = inputs[:states], inputs[states:]
    axes = node.integers("scan_input_axes") or (0,) * count
    turned = directions or (0,) * count
    out_axes = node.integers("scan_output_axes") or (0,) * outputs
    out_turned = node.integers("scan_output_directions") or (0,) * outputs
    if (len(axes), len(turned)) != (count, count) or (
        (len(out_axes), len(out_turned)) != (outputs, outputs)
    ):
        node.malformed("There is not one axis for each input and output.", str(count), str(axes))
    places = [axis_in(node, axis, len(value.type.shape))
              for axis, value in zip(axes, given, strict=True)]  # fmt: skip
    whole = [value.type.shape[axis] for axis, value in zip(places, given, strict=True)]
    lengths = {known(scalar) for scalar in whole if known(scalar) is not None}
    length = known(whole[0])
    if len(lengths) > 1:
        node.malformed("The inputs of a scan have one length.", str(length), str(lengths))
    if length is None or None in map(known, whole) or length > MOST_STEPS:
        size = next((scalar for scalar in whole if known(scalar) is not None), whole[0])
        ends_ = _scanned(node, state, given, list(zip(places, turned, strict=True)), size)
        turned_ = [
            op.flip(value, axis=(0,)) if back else value
            for value, back in zip(ends_[states:], out_turned, strict=True)
        ]
        return [
            *ends_[:states],
            *(op.moveaxis(value, (0,), (axis_in(node, axis, rank(value)),))
              for value, axis in zip(turned_, out_axes, strict=True)),
        ]  # fmt: skip
    rows: list[list[Expr]] = [[] for _ in range(outputs)]
    for turn in range(length):
        items = [
            TensorValue(select(value.expr, length - 1 - turn if back else turn, axis))
            for value, axis, back in zip(given, places, turned, strict=True)
        ]
        tensor_values = node.run(body, *state, *items)
        state = tensor_values[:states]
        for row, value in zip(rows, tensor_values[states:], strict=True):
            row.append(value.expr)
    if not length:
        return [*_exprs(state), *_none_scanned(node, state, given, places, out_axes)]
    ends: list[Expr] = []
    for row, axis, back in zip(rows, out_axes, out_turned, strict=True):
        items_ = tuple(reversed(row)) if back else tuple(row)
        ends.append(op.stack(items_, axis=axis_in(node, axis, rank(row[0]) + 1)))
    return [*_exprs(state), *ends]


def _exprs(values: list[TensorValue]) -> list[Expr]:
    return [value.expr for value in values]


def _scanned(
    node: OnnxNode,
    state: list[TensorValue],
    given: list[TensorValue],
    ways: list[tuple[int, int]],
    rows: Scalar,
) -> list[Expr]:
    """A scan of open length as a loop over its places."""
    body, last = node.graph("body"), amount(rows) - const(1, i64)
    region: Region = {}
    sources = [
        matched(value.expr, (*value.type.shape[:axis], rows, *value.type.shape[axis + 1 :]))
        for value, (axis, _) in zip(given, ways, strict=True)
    ]

    def turn_of(turn: Expr, alive: Expr, *held: Expr) -> tuple[list[Expr], list[Expr]]:
        items = [
            op.take(source, last - turn if back else turn, axis=axis)
            for source, (axis, back) in zip(sources, ways, strict=True)
        ]
        given_ = [TensorValue(expr) for expr in (*held[: len(state)], *items)]
        values, inside = node.region(body, *given_)
        of_known_ranks(node, values)
        region.update(inside)
        after = [carry(node, a, b.expr) for a, b in zip(held, values[: len(state)], strict=False)]
        return [turn + const(1, i64), alive, *after], [e.expr for e in values[len(state) :]]

    def test(turn: Expr, *_: Expr) -> Expr:
        return turn < amount(rows)

    start = [const(0, i64), const(True), *(tensor_value.expr for tensor_value in state)]
    return collecting(node, start, test, turn_of, region, rows)[2:]


def _none_scanned(
    node: OnnxNode,
    state: list[TensorValue],
    given: list[TensorValue],
    places: list[int],
    out_axes: tuple[int, ...],
) -> list[Expr]:
    """The outputs of a scan without iterations, whose body only gives types."""
    items = []
    for value, axis in zip(given, places, strict=True):
        of = value.type
        item = TensorType((*of.shape[:axis], *of.shape[axis + 1 :]), of.dtype)
        items.append(TensorValue(Var(Name(node.reading.fresh("scan")), item)))
    tensor_values, inside = node.region(node.graph("body"), *state, *items)
    return [
        no_rows(value, axis_in(node, axis, len(value.type.shape) + 1), inside)
        for value, axis in zip(tensor_values[len(state) :], out_axes, strict=True)
    ]


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Scan": _scan,
}
# fmt: on
