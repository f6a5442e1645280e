"""Rows of recurrent layers: RNN, GRU and LSTM as torch has them, layer by layer and both ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs

from plica.frontend.measured import matched
from plica.frontend.recurrence import SequenceSteps, State, parts
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import dtype, like, select, shape
from plica.ir.graph.expression import Expr
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType


@attrs.frozen
class RecurrentWeights:
    """The parameters of one direction of a layer, as torch lists them."""

    inputs: Expr  # (gates * hidden, inputs)
    recurrent: Expr  # (gates * hidden, hidden)
    biases: Sequence[Expr]  # of both products, (gates * hidden,), or none
    projection: Expr | None  # (output, hidden): an LSTM may give less than it keeps


Step = Callable[[RecurrentWeights, Expr, State], State]


def _plain_step(
    function: Callable[[Expr], Expr], weights: RecurrentWeights, gates: Expr, state: State
) -> State:
    return (function(gates + op.nn.dense(state[0], weights.recurrent)),)


def _gru_step(weights: RecurrentWeights, gates: Expr, state: State) -> State:
    (h,) = state
    inner = op.nn.dense(h, weights.recurrent)
    inner = inner + weights.biases[1] if weights.biases else inner
    (xr, xz, xn), (hr, hz, hn) = parts(gates, 3), parts(inner, 3)
    reset, update = op.nn.sigmoid(xr + hr), op.nn.sigmoid(xz + hz)
    new = op.tanh(xn + reset * hn)
    return ((like(1, update) - update) * new + update * h,)


def _lstm_step(weights: RecurrentWeights, gates: Expr, state: State) -> State:
    h, c = state
    i, f, g, o = parts(gates + op.nn.dense(h, weights.recurrent), 4)
    cell = op.nn.sigmoid(f) * c + op.nn.sigmoid(i) * op.tanh(g)
    given = op.nn.sigmoid(o) * op.tanh(cell)
    return given if weights.projection is None else op.nn.dense(given, weights.projection), cell


def _row(step: Step, gates: int, states: int) -> Row:
    """A row of layers whose step has a given number of gates and states."""

    def row(node: TorchNode) -> list[Expr | None]:
        x = node.x("input")
        inner = opmath(dtype(x))
        given = node.xs("hx") if states > 1 else (node.x("hx"),)
        starts = [casted(expr, inner) for expr in given]
        ways = 2 if node.flag("bidirectional") else 1
        layers, batch_first = node.integer("num_layers"), node.flag("batch_first")
        if node.flag("train") and node.number("dropout") and layers > 1:
            message = f"{node.kind} drops out at random between its layers."
            hint = "Export the model in its mode of inference (model.eval())."
            node.unsupported(
                message, "dropout=0, or train=False", str(node.number("dropout")), hint
            )
        node.number("dropout")
        weights = _weights(node, layers * ways, inner)
        level = casted(op.transpose(x, (1, 0, 2)) if batch_first else x, inner)
        ends: list[State] = []
        for layer in range(layers):
            outputs: list[Expr] = []
            for way in range(ways):
                at = layer * ways + way
                state = tuple(select(start, at) for start in starts)
                steps = _steps(node, step, gates, weights[at], level, backwards=way == 1)
                all_, end = steps.gone_through(state)
                outputs.append(all_)
                ends.append(end)
            level = outputs[0] if ways == 1 else op.concat(tuple(outputs), axis=2)
        y = op.transpose(level, (1, 0, 2)) if batch_first else level
        last = [op.stack(tuple(end[at] for end in ends), axis=0) for at in range(states)]
        return [casted(expr, node.dtype(at)) for at, expr in enumerate((y, *last))]

    return row


def _steps(  # noqa: PLR0917  # what a direction is made of
    node: TorchNode, step: Step, gates: int, weights: RecurrentWeights, x: Expr, backwards: bool
) -> SequenceSteps:
    """The steps of one direction of a layer."""
    products = op.nn.dense(x, weights.inputs)
    # The second bias of a GRU is inside the reset gate's product.
    for bias in weights.biases[:1] if gates == 3 else weights.biases:
        products = products + bias
    return SequenceSteps(
        products,
        partial(step, weights),
        shape(x)[0],
        backwards,
        node.new_name,
        lambda before, after: matched(after, shape(before)),
    )


def _weights(node: TorchNode, directions: int, of: DType) -> list[RecurrentWeights]:
    """The parameters of each direction of each layer."""
    given = node.xs("params")
    each = len(given) // directions
    plain = 4 if node.flag("has_biases") else 2
    if each * directions != len(given) or each not in (plain, plain + 1):
        message = f"The parameters of {node.kind} are not those of its layers."
        node.unsupported(message, f"{plain} or {plain + 1} for each direction", str(len(given)))
    found = []
    for at in range(0, len(given), each):
        inputs, recurrent, *rest = (casted(part, of) for part in given[at : at + each])
        projection = rest.pop() if each > plain else None
        found.append(RecurrentWeights(inputs, recurrent, tuple(rest), projection))
    return found


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "rnn_tanh.input": _row(partial(_plain_step, op.tanh), 1, 1),
    "rnn_relu.input": _row(partial(_plain_step, op.nn.relu), 1, 1),
    "gru.input":      _row(_gru_step, 3, 1),
    "lstm.input":     _row(_lstm_step, 4, 2),
}
# fmt: on
