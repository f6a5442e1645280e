"""Recurrences: the steps of RNN, GRU and LSTM layers over a sequence, for every frontend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import attrs

from plica.core.name import Name
from plica.frontend.measured import amount, matched
from plica.frontend.word import dtype, like, select, shape, to
from plica.ir.graph import expression as ex
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type import FuncType, TupleType, i64, known, lesser, type_of

State: TypeAlias = tuple[ex.Expr, ...]

MOST_STEPS: Final = 128
"""Longer sequences become a loop: each unrolled step takes as long to compile as any kernel, and a
loop's overhead is small relative to this many."""

BLOCK: Final = 16
"""This many steps of a known number are one turn of a loop, to whose cost each adds little then."""


def parts(x: ex.Expr, count: int) -> list[ex.Expr]:
    """The gates of a step, (batch, gates * hidden), one by one."""
    rows, wide = shape(x)
    size = wide // count
    return [op.slice(x, (0, at * size), (rows, (at + 1) * size)) for at in range(count)]


@attrs.frozen
class SequenceSteps:
    """What all steps of one direction of a layer share."""

    gates: ex.Expr  # (steps, batch, gates * hidden): what a step takes of the inputs
    step: Callable[[ex.Expr, State], State]
    """The state after a step: its output, and further values."""
    length: Scalar
    backwards: bool
    named: Callable[[str], Name]
    """A name that no variable has."""
    carry: Callable[[ex.Expr, ex.Expr], ex.Expr]
    """A step's transition from the previous state to the next."""
    lengths: ex.Expr | None = None
    """How many steps each sequence of the batch has, where they differ."""

    def gone_through(self, state: State) -> tuple[ex.Expr, State]:
        """The outputs of all steps, (steps, batch, hidden), and the last state."""
        steps = known(self.length)
        if steps is None or steps == 0:
            outputs, state = self._looped(self.length, 1, state)
        else:
            turns = steps // BLOCK if steps > MOST_STEPS else 0
            parts: list[ex.Expr] = []
            if turns:
                first, state = self._looped(index(turns), BLOCK, state)
                parts.append(first)
            rest: list[ex.Expr] = []
            for turn in range(turns * BLOCK, steps):
                at = steps - 1 - turn if self.backwards else turn
                gates = select(self.gates, at)
                given, state = self._one(ex.const(at, i64), gates, state)
                rest.append(given)
            if rest:
                parts.append(_joined(rest))
            outputs = parts[0] if len(parts) == 1 else op.concat(tuple(parts), axis=0)
        return op.flip(outputs, axis=(0,)) if self.backwards else outputs, state

    def _one(self, at: ex.Expr, gates: ex.Expr, state: State) -> tuple[ex.Expr, State]:
        """The output of a step, and the state after it."""
        new = self.step(gates, state)
        if self.lengths is None:
            return new[0], new
        return _while_there(at, self.lengths, new, state)

    def _looped(self, turns: Scalar, block: int, state: State) -> tuple[ex.Expr, State]:
        """The outputs of the first steps in the order they are made, this many in each turn."""
        count = turns * block
        begin = self.length - count if self.backwards else index(0)
        gates = op.slice(self.gates, (begin,), (begin + count,))
        blocks = op.reshape(gates, (turns, block, *shape(self.gates)[1:]))
        last = amount(turns) - ex.const(1, i64)
        order = range(block)[::-1] if self.backwards else range(block)

        def turn_of(turn: ex.Expr, before: State) -> tuple[ex.Expr, State]:
            place = last - turn if self.backwards else turn
            rows = op.take(blocks, place, axis=0)
            first = place * ex.const(block, i64) + amount(begin)
            after = before
            given: list[ex.Expr] = []
            for each in order:
                row = select(rows, each)
                one, after = self._one(first + ex.const(each, i64), row, after)
                given.append(one)
            return _joined(given), tuple(map(self.carry, before, after))

        like_all = turn_of(ex.const(0, i64), state)[0]  # what the first turn would give
        form, of = shape(like_all), dtype(like_all)
        empty = op.full(shape=(turns, *form), value=0.0, dtype=of)

        def turn(at: ex.Expr, *held: ex.Expr) -> list[ex.Expr]:
            row, after = turn_of(at, held[:-1])
            return [at + ex.const(1, i64), *after, with_row(held[-1], at, row, turns, form)]

        first, end = self._turns(turns)
        if self._begins_with_nothing(turns, state):
            row, state = self._first(state)
            empty = with_row(empty, first, row, turns, form)
            first = ex.const(1, i64)

        def test(at: ex.Expr, *_: ex.Expr) -> ex.Expr:
            return at < end

        _, *ends, outputs = repeated(
            self.named, [first, *state, empty], test, turn, (("inline", False),)
        )
        return op.reshape(outputs, (count, *shape(outputs)[2:])), tuple(ends)

    def _begins_with_nothing(self, turns: Scalar, state: State) -> bool:
        """Whether a loop of open length starts from zero states, with every iteration taken."""
        return known(turns) is None and self.lengths is None and all(map(_is_nothing, state))

    def _first(self, state: State) -> tuple[ex.Expr, State]:
        """The first step's output and state: products with zero states are omitted.

        It is taken from at most one of the rows, so that an empty sequence has a state, too: the
        initial one.
        """
        many = lesser(self.length, index(1))
        begin = self.length - many if self.backwards else index(0)
        new = self.step(op.sum(op.slice(self.gates, (begin,), (begin + many,)), axis=(0,)), state)
        there = ex.const(0, i64) < amount(self.length)
        after = map(self.carry, state, new)
        return _joined([new[0]]), tuple(
            [op.where(there, b, a) for a, b in zip(state, after, strict=True)]
        )

    def _turns(self, turns: Scalar) -> tuple[ex.Expr, ex.Expr]:
        """The first turn of a loop, and the one it ends before.

        An iteration without active sequences leaves states unchanged and outputs zeros, the initial
        content of all rows. With a static number of iterations, all are taken: targets without
        loops unroll them.
        """
        first, end = ex.const(0, i64), amount(turns)
        if self.lengths is None or known(turns) is not None:
            return first, end
        there = op.maximum(op.supremum(to(self.lengths, i64), axis=(0,)), first)
        return (end - there, end) if self.backwards else (first, there)


def repeated(
    named: Callable[[str], Name],
    start: Sequence[ex.Expr],
    test: Callable[..., ex.Expr],
    turn: Callable[..., Sequence[ex.Expr]],
    attrs: ex.Attrs = (),
) -> list[ex.Expr]:
    """The carried values once `test` fails, whose types no turn changes: a function that calls
    itself.  `named` gives names that no variable has."""
    types = tuple([type_of(expr) for expr in start])
    params = tuple([ex.Var(named(f"carried_{at}"), of) for at, of in enumerate(types)])
    itself = ex.Var(named("loop"), FuncType((), (), types, TupleType(types)))
    holds = test(*params)
    step = ex.If(holds, ex.Call(itself, tuple(turn(*params))), ex.Tuple(params))
    loop = ex.Function((), (), params, TupleType(types), step, attrs)
    whole = ex.Let(itself, loop, ex.Call(itself, tuple(start)))
    return [ex.Project(whole, at) for at in range(len(start))]


def with_row(whole: ex.Expr, at: ex.Expr, row: ex.Expr, rows: Scalar, form: Shape) -> ex.Expr:
    """The collected values with one iteration's row set."""
    here = op.equal(op.iota(shape=(rows, *[1] * len(form)), dtype=i64), at)
    return op.where(here, op.expand_dims(matched(row, form), (0,)), whole)


def _is_nothing(of: ex.Expr) -> bool:
    """Whether a tensor is made of zeros, as far as one sees at once."""
    return isinstance(of, ex.Apply) and of.op == "zeros"


def _joined(rows: Sequence[ex.Expr]) -> ex.Expr:
    """What steps give, one after the other.  Each is a part that its step writes where it belongs;
    stacked, all would be read, element by element, by one kernel of as many branches."""
    return op.concat(tuple([op.expand_dims(row, (0,)) for row in rows]), axis=0)


def _while_there(at: ex.Expr, lengths: ex.Expr, new: State, state: State) -> tuple[ex.Expr, State]:
    """The results of a step: ended sequences keep their state, and output zeros."""
    alive = op.expand_dims(at < to(lengths, i64), axis=(1,))
    kept = tuple(op.where(alive, a, b) for a, b in zip(new, state, strict=True))
    return op.where(alive, new[0], like(0, new[0])), kept
