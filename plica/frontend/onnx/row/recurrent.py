"""Recurrent networks: the steps; `plica.frontend.recurrence` iterates them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs

from plica.core.name import Name
from plica.frontend.measured import ZERO, amount, matched
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.repeat import carry
from plica.frontend.onnx.row.word import Made, Row, dtype, like, rank, shape, to
from plica.frontend.recurrence import SequenceSteps, State, parts
from plica.frontend.word import select
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.type import f32, i32, i64, known
from plica.runtime.late import late

dynamically = late("plica.frontend.onnx.row.quantised:dynamically")  # few networks have integers

# fmt: off
_ACTIVATIONS: Final[dict[str, tuple[Callable[..., Expr], dict[str, float]]]] = {
    "sigmoid":     (op.nn.sigmoid,      {}),
    "tanh":        (op.tanh,         {}),
    "relu":        (op.nn.relu,         {}),
    "softsign":    (op.nn.softsign,     {}),
    "softplus":    (op.nn.softplus,     {}),
    "hardsigmoid": (op.nn.hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "leakyrelu":   (op.nn.leaky_relu,   {"alpha": 0.01}),
    "elu":         (op.nn.elu,          {"alpha": 1.0}),
}
# fmt: on
"""The gate activations, with their default parameters."""


@attrs.frozen
class RecurrentDirection:
    """One direction of a network: the parameters of a step."""

    gates: Expr  # (steps, batch, gates * hidden): the products with the inputs and both biases
    recurrent: Expr  # (gates * hidden, hidden)
    state_bias: Expr | None  # of the recurrent product, (gates * hidden,)
    functions: Sequence[Callable[[Expr], Expr]]
    peepholes: Sequence[Expr] | None = None
    turn: Callable[[Expr, Expr], Expr] = op.nn.dense  # the product of a state with the weight


Step = Callable[[OnnxNode, RecurrentDirection, Expr, State], State]


def _clipped(node: OnnxNode, x: Expr) -> Expr:
    if not node.has("clip"):
        return x
    most = node.real("clip", 0.0)
    return op.minimum(op.maximum(x, like(-most, x)), like(most, x))


def _plain_step(node: OnnxNode, cell: RecurrentDirection, gates: Expr, state: State) -> State:
    (f,) = cell.functions
    return (f(_clipped(node, gates + op.nn.dense(state[0], cell.recurrent))),)


def _gru_step(node: OnnxNode, cell: RecurrentDirection, gates: Expr, state: State) -> State:
    f, g = cell.functions
    (h,) = state
    xz, xr, xh = parts(gates, 3)
    if node.flag("linear_before_reset"):
        inner = op.nn.dense(h, cell.recurrent)
        inner = inner if cell.state_bias is None else inner + cell.state_bias
        hz, hr, hh = parts(inner, 3)
        z = f(_clipped(node, xz + hz))
        r = f(_clipped(node, xr + hr))
        new = g(_clipped(node, xh + r * hh))
    else:
        size = known(shape(h)[1])
        assert size is not None
        rows = op.slice(cell.recurrent, (0,), (2 * size,))
        last = op.slice(cell.recurrent, (2 * size,), (3 * size,))
        hz, hr = parts(op.nn.dense(h, rows), 2)
        z = f(_clipped(node, xz + hz))
        r = f(_clipped(node, xr + hr))
        new = g(_clipped(node, xh + op.nn.dense(r * h, last)))
    return ((like(1, z) - z) * new + z * h,)


def _lstm_step(node: OnnxNode, cell: RecurrentDirection, gates: Expr, state: State) -> State:
    f, g, out = cell.functions
    h, c = state
    xi, xo, xf, xc = parts(gates + cell.turn(h, cell.recurrent), 4)
    if cell.peepholes is not None:
        pi, po, pf = cell.peepholes
        xi, xf = xi + pi * c, xf + pf * c
    i = f(_clipped(node, xi))
    forget = like(1, i) - i if node.flag("input_forget") else f(_clipped(node, xf))
    cell_state = forget * c + i * g(_clipped(node, xc))
    if cell.peepholes is not None:
        xo = xo + po * cell_state
    o = f(_clipped(node, xo))
    return o * out(cell_state), cell_state


def _functions(
    node: OnnxNode, count: int, default: Sequence[str], directions: int
) -> list[list[Callable[[Expr], Expr]]]:
    names = node.texts("activations") or tuple(default) * directions
    if len(names) != count * directions:
        node.malformed("There is not one activation for each gate.", str(count), str(names))
    if unknown := [name for name in names if name.lower() not in _ACTIVATIONS]:
        node.unsupported("An activation is not supported.", ", ".join(_ACTIVATIONS), unknown[0])
    # Settings are given one after another, to those functions alone that have such a one.
    given = {each: [*(node.reals(f"activation_{each}") or ())] for each in ("alpha", "beta")}
    found: list[Callable[[Expr], Expr]] = []
    for name in names:
        function, usual = _ACTIVATIONS[name.lower()]
        told = {each: given[each].pop(0) if given[each] else usual[each] for each in usual}
        found.append(partial(function, **told))
    return [found[at * count : (at + 1) * count] for at in range(directions)]


def _row(gates: int, states: int, default: Sequence[str], step: Step) -> Row:
    def row(node: OnnxNode) -> Made:
        direction = node.text("direction", "forward")
        if direction not in ("forward", "reverse", "bidirectional"):
            node.malformed("There is no such direction.", "forward", repr(direction))
        ways = 2 if direction == "bidirectional" else 1
        batch_first = node.flag("layout")
        x = node.x(0)
        if node.rank(0) != 3 or node.rank(1) != 3 or node.rank(2) != 3:
            node.malformed("A sequence has three axes.", "rank 3", str(node.type(0)))
        x = op.transpose(x, (1, 0, 2)) if batch_first else x
        length, batch = shape(x)[:2]
        # The weights of integers have their axes exchanged.
        hidden = known(node.shape(2)[1 if node.proto.op_type == "DynamicQuantizeLSTM" else 2])
        if hidden is None or node.integer("hidden_size", hidden) != hidden:
            node.malformed("'hidden_size' is not the weight's.", str(hidden), str(node.type(2)))
        functions = _functions(node, len(default), default, ways)
        lengths = None if node.value(4) is None else _within(node.x(4), length)
        starts = [node.maybe(5 + at) for at in range(states)]
        if any(start is not None and rank(start) != 3 for start in starts):
            node.malformed("A state has three axes.", "rank 3", str(node.type(5)))
        for start in starts:  # as many examples as there are states, where those are known
            many = None if start is None else shape(start)[0 if batch_first else 1]
            if many is not None and known(batch) is None and known(many) is not None:
                batch = many
                x = matched(x, (length, batch, shape(x)[2]))
        nothing = op.zeros(shape=(batch, hidden), dtype=dtype(x))
        everything: list[Expr] = []
        ends: list[State] = []
        for way in range(ways):
            cell = _cell(node, way, gates, hidden, x, functions[way])
            state = tuple(_start(start, way, batch_first, nothing) for start in starts)
            backwards = direction == "reverse" or way == 1
            steps_of = SequenceSteps(
                cell.gates,
                partial(step, node, cell),
                length,
                backwards,
                lambda hint: Name(node.reading.fresh(hint)),
                partial(carry, node),
                lengths,
            )
            outputs, state = steps_of.gone_through(state)
            everything.append(outputs)
            ends.append(state)
        y = op.stack(tuple(everything), axis=1)  # (steps, ways, batch, hidden)
        last = [op.stack(tuple(end[at] for end in ends), axis=0) for at in range(states)]
        if batch_first:
            y = op.transpose(y, (2, 0, 1, 3))
            last = [op.transpose(expr, (1, 0, 2)) for expr in last]
        return [y, *last]

    return row


def _cell(  # noqa: PLR0917  # what a direction is made of
    node: OnnxNode, way: int, gates: int, hidden: int, x: Expr,
    functions: Sequence[Callable[[Expr], Expr]],
) -> RecurrentDirection:  # fmt: skip
    weight, recurrent = (select(node.x(at), way) for at in (1, 2))
    bias = node.maybe(3)
    by_inputs, by_state = products_of(node, way)
    products = by_inputs(x, weight)
    state_bias = None
    if bias is not None:
        whole = select(bias, way)
        inputs = op.slice(whole, (0,), (gates * hidden,))
        state_bias = op.slice(whole, (gates * hidden,), (2 * gates * hidden,))
        products = products + inputs
        if not (node.proto.op_type == "GRU" and node.flag("linear_before_reset")):
            products = products + state_bias
    peepholes = None
    if node.proto.op_type.endswith("LSTM") and node.value(7) is not None:
        whole = select(node.x(7), way)
        peepholes = [op.slice(whole, (at * hidden,), ((at + 1) * hidden,)) for at in range(3)]
    return RecurrentDirection(products, recurrent, state_bias, functions, peepholes, by_state)


def products_of(node: OnnxNode, way: int) -> Sequence[Callable[[Expr, Expr], Expr]]:
    """The products with inputs and with states; those of integers quantise what they multiply."""
    if node.proto.op_type != "DynamicQuantizeLSTM":
        return op.nn.dense, op.nn.dense

    def by(scale_at: int) -> Callable[[Expr, Expr], Expr]:
        scale, zero = (_of_way(node, node.x(at), way) for at in (scale_at, scale_at + 1))

        def product(x: Expr, weight: Expr) -> Expr:
            whole, step = dynamically(x)
            expr = op.matmul(whole, to(weight, i32) - to(zero, i32))
            scaled: Expr = to(expr, f32) * (step * scale)
            return scaled

        return product

    return by(8), by(10)


def _of_way(node: OnnxNode, x: Expr, way: int) -> Expr:
    """A scale or a zero point of one direction: one, or one for each column."""
    if rank(x) == 2:
        return select(x, way)
    return op.reshape(select(x, way), ())


def _start(given: Expr | None, way: int, batch_first: bool, otherwise: Expr) -> Expr:
    if given is None:
        return otherwise
    return select(op.transpose(given, (1, 0, 2)) if batch_first else given, way)


def _within(lengths: Expr, steps: Scalar) -> Expr:
    """The sequence lengths, each within 0 to `steps`, or undefined."""
    all_of_them, given = amount(steps + 1), to(lengths, i64)
    return op.take(
        op.iota(shape=(steps + 1,), dtype=i64), op.where(given < ZERO, all_of_them, given)
    )


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "RNN":  _row(1, 1, ("Tanh",), _plain_step),
    "GRU":  _row(3, 1, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": _row(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
}
# fmt: on

DYNAMIC_LSTM: Final = TABLE["LSTM"]  # the same with integer weights, taken from its node
