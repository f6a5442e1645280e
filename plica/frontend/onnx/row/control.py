"""Rows of control flow: branches, loops and scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import numpy as np

from plica.frontend.measured import Region, amount, matched
from plica.frontend.onnx.join import differ_in_rank, joined_sides, only_where
from plica.frontend.onnx.node import OnnxNode, Side
from plica.frontend.onnx.order import MOST_NODES
from plica.frontend.onnx.ragged import as_ragged, empty_rows, growing, put_behind, ragged, rows
from plica.frontend.onnx.row import repeat
from plica.frontend.onnx.row.loop_carried import LoopCarriedValues
from plica.frontend.onnx.row.word import Made, Row, as_scalar, is_one, rank, shape, to
from plica.frontend.onnx.run_time import at_least_zero, size_from
from plica.frontend.onnx.storage import Array
from plica.frontend.onnx.value import (
    AnyRankValue,
    GrowingValue,
    ListedValue,
    OptionValue,
    RaggedValue,
    TensorValue,
)
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.type import i64, known, product
from plica.runtime.error import Diagnostic

if TYPE_CHECKING:
    from onnx import GraphProto

V = TypeVar("V")


def _if(node: OnnxNode) -> Made:
    condition = node.need(0)
    if not is_one(condition.expr):
        node.malformed("A condition is one bool.", "one element", str(condition.type))
    numbers = condition.numbers()
    branches = [node.graph(name) for name in ("then_branch", "else_branch")]
    if numbers is not None:
        return node.run(branches[0 if bool(numbers.reshape(-1)[0]) else 1])
    yes, no = node.reading.branches(node, branches)
    chosen = as_scalar(condition.expr)
    if isinstance(yes, Diagnostic) or isinstance(no, Diagnostic):
        return _only_side(node, chosen, yes, no)
    (then, inside), (orelse, outside) = yes, no
    if len(then) != len(orelse):
        node.malformed("Branches have one number of outputs.", str(len(then)), str(len(orelse)))
    if any(map(differ_in_rank, then, orelse)):
        if (way := node.decided(chosen)) is None:
            types = next(f"{a.type} or {b.type}" for a, b in zip(then, orelse, strict=True)
                         if differ_in_rank(a, b))  # fmt: skip
            node.undecided(f"The type that If gives ({types})", condition)
        return node.run(branches[0 if way else 1])
    return joined_sides(node, chosen, (then, inside), (orelse, outside))


def _only_side(node: OnnxNode, chosen: Expr, yes: Side | Diagnostic, no: Side | Diagnostic) -> Made:
    """The result of one branch if the other is invalid: calls that take the other are refused.

    The condition is looked at before sizes of the branch are measured.
    """
    if isinstance(yes, Diagnostic):
        assert not isinstance(no, Diagnostic)
        (values, inside), fault, holds = no, yes, op.logical_not(chosen)
    else:
        assert isinstance(no, Diagnostic)
        (values, inside), fault, holds = yes, no, chosen
    tensor_values = [only_where(node, value, holds, fault) for value in values]
    node.reading.absorb(inside)
    return tensor_values


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
    # Unrolling needs to know whether there is a first iteration.
    if start is not None and (most is not None or count is None):
        found = _written_out(node, most, state, scans)
        if found is not None:
            return found
    return _recursive(node, going, state, scans)


def _first(node: OnnxNode, numbers: Array) -> int | bool:
    """The one number that a count or a condition is."""
    if numbers.size != 1:
        node.malformed("A count or a condition is one number.", "one", str(numbers.shape))
    found: int | bool = numbers.reshape(-1)[0].item()
    return found


def _written_out(
    node: OnnxNode, most: int | None, state: list[TensorValue], scans: int
) -> Made | None:
    """Unrolls a loop, or returns None if its end depends on data or it would be too long; nested
    loops count as unrolled."""
    body = node.graph("body")
    rows: list[list[Expr]] = [[] for _ in range(scans)]
    turn = 0
    if most is not None and _never_ends(body) and (
        most > repeat.MOST_TURNS or most * _written_nodes(node, body) > MOST_NODES
    ):  # fmt: skip
        return None
    while most is None or turn < most:
        if turn >= repeat.MOST_TURNS:
            return None
        given = [TensorValue(const(turn, i64)), TensorValue(const(True)), *state]
        tensor_values = _written_turn(node, body, given)
        going = tensor_values[0].numbers()
        if going is None:
            after = tensor_values[1 : 1 + len(state)]
            if scans or not any(map(_changes_rank, state, after)):
                return None
            # From here on it may carry tensors of one rank.
            return _recursive(node, tensor_values[0], after, 0, turn + 1)
        state = tensor_values[1 : 1 + len(state)]
        for row, value in zip(rows, tensor_values[1 + len(state) :], strict=True):
            row.append(value.expr)
        turn += 1
        if not _first(node, going):
            break
    if scans and not turn:
        given = [TensorValue(const(0, i64)), TensorValue(const(True)), *state]
        items, inside = node.region(body, *given)
        return [*state, *(repeat.no_rows(item, 0, inside) for item in items[1 + len(state) :])]
    return [*state, *(op.stack(tuple(row), axis=0) for row in rows)]


def _changes_rank(before: TensorValue, after: TensorValue) -> bool:
    """Whether a turn gives another rank than it is given."""
    listed = isinstance(before, ListedValue) or isinstance(after, ListedValue)
    return not listed and len(before.type.shape) != len(after.type.shape)


def _turn_of(node: OnnxNode, body: GraphProto, given: Sequence[TensorValue]) -> Side:
    """The results of a loop iteration, with the continuation condition as a scalar bool."""
    (going, *rest), inside = node.region(body, *given)
    if isinstance(going, AnyRankValue):
        going = TensorValue(op.reshape(matched(going.parts[0], (index(1),)), ()))
    return [going, *rest], inside


def _written_turn(
    node: OnnxNode, body: GraphProto, given: Sequence[TensorValue]
) -> list[TensorValue]:
    """The results of an unrolled iteration: at a branch point both ways, unless ranks differ."""
    tensor_values, inside = _turn_of(node, body, given)
    if any(isinstance(tensor_value, AnyRankValue) for tensor_value in tensor_values):
        return node.run(body, *given)
    node.reading.absorb(inside)
    return tensor_values


def _written_nodes(node: OnnxNode, body: GraphProto) -> int:
    """The nodes of a graph once the loops in it whose count is known here are written out."""
    total = 0
    for each in body.node:
        inner = [attribute.g for attribute in each.attribute if attribute.HasField("g")]
        nodes = sum(_written_nodes(node, graph) for graph in inner)
        if each.op_type == "Loop" and (count := node.scope[0].get(each.input[0])) is not None:
            turns = count.numbers()
            nodes *= 1 if turns is None or turns.size != 1 else max(1, int(turns.reshape(-1)[0]))
        total += 1 + nodes
    return total


def _never_ends(body: GraphProto) -> bool:
    """Whether a body hands on the condition it is given."""
    return _hands_on(body, 0, 1)


def _hands_on(body: GraphProto, result: int, given: int) -> bool:
    """Whether a body passes a value through unchanged."""
    plain = [each for each in body.node if len(each.input) == len(each.output) == 1]
    copied = {each.output[0]: each.input[0] for each in plain if each.op_type == "Identity"}
    name = body.output[result].name
    for _ in range(len(copied)):
        name = copied.get(name, name)
    return bool(name == body.input[given].name)


def _recursive(
    node: OnnxNode, going: TensorValue | None, state: list[TensorValue], scans: int, first: int = 0
) -> list[Expr | TensorValue]:
    """A function that calls itself while the loop continues, from iteration `first`.

    If it collects tensors, their number is known before: by the trip count, or by a loop that only
    counts iterations and appended elements.
    """
    body, count = node.graph("body"), node.value(0)
    lists = [
        at
        for at, each in enumerate(state)
        if isinstance(each, ListedValue) and not isinstance(each, OptionValue)
    ]
    # Exporters of other frameworks carry weights, too: what no turn changes is no state.
    same = {
        at: tensor_value
        for at, tensor_value in enumerate(state)
        if at not in lists and _hands_on(body, 1 + at, 2 + at)
    }
    moving = [each for at, each in enumerate(state) if at not in lists and at not in same]
    carried = LoopCarriedValues(node, moving)
    bases = [as_ragged(node.place, state[at]) for at in lists]
    start = [const(first, i64), const(True) if going is None else as_scalar(going.expr)]
    start += carried.start
    limit = None if count is None else to(as_scalar(count.expr), i64)

    def test(turn: Expr, alive: Expr, *_: Expr) -> Expr:
        return alive if limit is None else op.logical_and(turn < limit, alive)

    region: Region = {}
    ranks: list[set[int]] = [set() for _ in lists]

    def turn_of(turn: Expr, alive: Expr, *held: Expr) -> Turn:
        grown = {at: growing(slot, bases[slot].of) for slot, at in enumerate(lists)}
        given = _merged(carried.of(held[: len(start) - 2]), same | grown)
        values, inside = _turn_of(node, body, [TensorValue(turn), TensorValue(alive), *given])
        region.update(inside)
        after, added = [], []
        for at, (before, value) in enumerate(
            zip(given, repeat.of_known_ranks(node, values)[1 : 1 + len(state)], strict=True)
        ):
            if at in same:
                continue
            if isinstance(before, GrowingValue):
                added.append(_appended(node, before, value))
                ranks[before.slot].update(map(rank, added[-1]))
            else:
                after.append(value)
        next_ = [turn + const(1, i64), as_scalar(values[0].expr), *carried.after(after)]
        return Turn(next_, [tensor_value.expr for tensor_value in values[1 + len(state) :]], added)

    changing = repeat.changing_sizes(node, start, lambda *e: turn_of(*e).state)
    region.clear()
    if carried.open_ranks():
        changing = repeat.changing_sizes(node, start, lambda *e: turn_of(*e).state)
        region.clear()
    if not scans and not lists:
        whole = repeat.repeated(node, start, test, lambda *e: turn_of(*e).state, region, changing)
        return _merged(carried.ended(whole[2:]), same)
    ends: list[Expr] = []
    if lists or not (limit is not None and _never_ends(body) and going is None):
        sizes = [const(0, i64)] * (2 * len(lists))
        ends = repeat.repeated(
            node, [*start, *sizes], test, partial(_counted, turn_of), region, changing
        )
        region = {}
    turns = ends[0] if ends else at_least_zero(limit) if limit is not None else const(0, i64)
    wide = len(start)
    buffers: list[Expr] = []
    for slot, base in enumerate(bases):
        named = enumerate(("count", "total"))
        each = [size_from(node, ends[wide + 2 * slot + at], f"{name}_{slot}") for at, name in named]
        buffers += [const(0, i64), const(0, i64), *empty_rows(each[0], each[1], base.of)]
    filled = [*start, *buffers]
    fill = partial(_filled, turn_of, wide)
    if scans:
        rows = size_from(node, turns, "turns")
        whole = repeat.collecting(node, filled, test, fill, region, rows, changing)
    else:
        whole = repeat.repeated(node, filled, test, lambda *e: fill(*e)[0], region, changing)
    fixed: dict[int, Expr | TensorValue] = dict(same)
    for slot, at in enumerate(lists):
        elements, table = whole[wide + 4 * slot + 2 : wide + 4 * slot + 4]
        fixed[at] = _behind(bases[slot], elements, table, ranks[slot])
    return [*_merged(carried.ended(whole[2:wide]), fixed), *whole[wide + len(buffers) :]]


def _merged(values: Sequence[V], fixed: Mapping[int, V]) -> list[V]:
    """Values in order, with others at fixed positions."""
    rest = iter(values)
    whole = len(values) + len(fixed)
    return [fixed[at] if at in fixed else next(rest) for at in range(whole)]


@attrs.frozen(eq=False)
class Turn:
    """The results of a loop iteration: carried values, collected values, appended elements."""

    state: list[Expr]
    items: list[Expr]
    added: list[tuple[Expr, ...]]


def _appended(node: OnnxNode, before: GrowingValue, after: TensorValue) -> tuple[Expr, ...]:
    """The tensors that a turn adds to a sequence that it carries."""
    if not isinstance(after, GrowingValue) or after.slot != before.slot:
        message = "A loop of unknown length appends to the sequences that it carries; no more."
        node.unsupported(message, "SequenceInsert at the end", "another sequence")
    return after.parts[1:]


def _counted(turn_of: Callable[..., Turn], *held: Expr) -> list[Expr]:
    """A turn that counts what lists grow by, in tensors and in elements."""
    turn = turn_of(*held)
    sizes = list(held[len(turn.state) :])
    for slot, some in enumerate(turn.added):
        sizes[2 * slot] = sizes[2 * slot] + const(len(some), i64)
        for expr in some:
            sizes[2 * slot + 1] = sizes[2 * slot + 1] + amount(product(shape(expr)))
    return [*turn.state, *sizes]


def _filled(turn_of: Callable[..., Turn], wide: int, *held: Expr) -> tuple[list[Expr], list[Expr]]:
    """A turn that puts what lists grow by into the room for it."""
    turn = turn_of(*held[:wide])
    buffers = list(held[wide:])
    for slot, some in enumerate(turn.added):
        at, start, elements, table = buffers[4 * slot : 4 * slot + 4]
        for expr in some:
            flat = op.ravel(expr)
            elements, table = put_behind(elements, start, flat), put_behind(table, at, rows([expr]))
            at, start = at + const(1, i64), start + amount(shape(flat)[0])
        buffers[4 * slot : 4 * slot + 4] = [at, start, elements, table]
    return [*turn.state, *buffers], turn.items


def _behind(base: RaggedValue, elements: Expr, table: Expr, ranks: set[int]) -> RaggedValue:
    """A sequence to which a loop has appended."""
    old, lines = base.parts
    if known(shape(lines)[0]) != 0:
        ranks = {*ranks, -1 if base.rank is None else base.rank}
        elements, table = op.concat((old, elements), axis=0), op.concat((lines, table), axis=0)
    (axes,) = ranks if len(ranks) == 1 else (None,)
    return ragged(elements, table, base.of, None if axes == -1 else axes)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "If":   _if,
    "Loop": _loop,
}
# fmt: on
