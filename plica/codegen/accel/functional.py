"""The functional simulator: what a stream does to memory, exactly.

>>> import numpy as np
>>> from plica.codegen.accel.assembly import read_stream
>>> from plica.codegen.accel.vta import vta
>>> text = '''
... .tensor x acc 0 2
... .tensor y out 256 2
... load.acc y_size=1 x_size=2
... store.out dram=256 y_size=1 x_size=2
... finish
... '''
>>> stream = read_stream(vta(), text)
>>> run(vta(), stream, {"x": np.ones((2, 1, 16))})["y"].any()
np.False_

(A load of `acc` does not write `out`, as sums do.)  Instructions are executed in the order of the
stream, or in any order given (`order.legal_order`).  Integers wrap around.  An access outside of a
scope or of memory is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from plica.codegen.accel.declaration import Machine, Move, Scope, Sweep
from plica.codegen.accel.footprint import Footprint, Patch, Rows, Turns, footprint, out_of_range
from plica.codegen.accel.instruction import MICRO, Instruction, Stream, position
from plica.codegen.accel.meaning import Contraction, apply, contraction
from plica.core.diagnostic import did_you_mean
from plica.runtime.error import Diagnostic, InputError, Place

Array = np.ndarray[Any, Any]


def run(
    machine: Machine,
    stream: Stream,
    tensors: Mapping[str, Array],
    order: Sequence[int] | None = None,
) -> dict[str, Array]:
    """All tensors of the stream after it has run; those not given begin as zeros."""
    state = _State(machine, stream)
    known = {each.name for each in stream.tensors}
    for name in tensors:
        if name not in known:
            hint = did_you_mean(name, known)
            message = f"The stream has no tensor {name!r}."
            raise InputError(Diagnostic("input-unknown", message, None, None, name, hint))
    for each in stream.tensors:
        whole = state.view(machine.scope(each.scope))[each.at : each.at + each.elements]
        if each.name == MICRO:
            whole[: len(stream.micro)] = stream.micro
        elif each.name in tensors:
            given = np.asarray(tensors[each.name])
            if given.size != whole.size:
                place = Place(node=each.name)
                message = f"The tensor {each.name!r} has the wrong size."
                raise InputError(
                    Diagnostic("input-shape", message, place, str(whole.shape), str(given.shape))
                )
            whole[...] = given.reshape(whole.shape)
    for at in range(len(stream.code)) if order is None else order:
        state.step(stream.code[at])
        if stream.code[at].name == machine.finish:  # the host reads memory now
            break
    return {
        each.name: state.view(machine.scope(each.scope))[each.at : each.at + each.elements].copy()
        for each in stream.tensors
    }


@frozen(eq=False)
class _Group:
    """Turns that read the same elements on one side: `written[r, m] += left[m] * right[r]`."""

    left: Array
    right: Array
    written: Array
    apart: bool


class _State:
    """The scopes and the memory as a stream runs; local to `run`."""

    def __init__(self, machine: Machine, stream: Stream) -> None:
        self.machine = machine
        self.scopes = {
            each.name: np.zeros((each.depth, *each.shape), each.dtype.numpy)
            for each in machine.scopes
        }
        sizes = {each.name: each.bytes for each in machine.scopes}
        self.used = max(
            ((each.at + each.elements) * sizes[each.scope] for each in stream.tensors), default=0
        )
        whole = math.lcm(*sizes.values())
        self.memory = np.zeros(-(-self.used // whole) * whole, np.uint8)
        self.views: dict[str, Array] = {}
        self.footprints: dict[tuple[object, ...], Footprint] = {}
        self.groups: dict[Footprint, list[_Group]] = {}
        self.patches: dict[tuple[str, bytes], Patch] = {}

    def view(self, scope: Scope) -> Array:
        """The memory as elements of the scope's kind."""
        found = self.views.get(scope.name)
        if found is None:
            found = self.memory.view(scope.dtype.numpy).reshape(-1, *scope.shape)
            self.views[scope.name] = found
        return found

    def step(self, each: Instruction) -> None:
        """Execute one instruction."""
        machine = self.machine
        does = machine.operation(each.name).does
        words: Array | None = None
        key: tuple[object, ...] = (each.name, each.operands)
        if isinstance(does, Sweep) and does.micro and machine.micro:
            first, last = (each.operands[position(machine, each.name, w)] for w in does.micro)
            words = self.scopes[machine.micro.scope][first:last].astype(np.int64)
            key += (words.tobytes(),)
        known = self.footprints.get(key)
        if known is None:
            known = self.footprints[key] = footprint(machine, each, words, self.patches)
        if isinstance(does, Move) and known.memory is not None:
            self._move(each, does, known, known.memory)
        elif isinstance(does, Sweep) and known.turns is not None:
            self._sweep(each, does, known, known.turns)

    def _move(self, each: Instruction, does: Move, known: Footprint, rows: Rows) -> None:
        if rows.end > self.used:
            raise out_of_range(each.name, "memory", rows.end - 1, self.used)
        scope = self.machine.scope(does.scope)
        held = self.scopes[does.scope]
        size = scope.bytes
        start, width = rows.start // size, rows.size // size
        at = (start + np.arange(rows.rows) * (rows.stride // size))[:, None] + np.arange(width)
        memory = self.view(scope)
        if does.way == "out":
            first = int(known.reads[0].elements[0])
            total = rows.rows * width
            memory[at] = held[first : first + total].reshape(rows.rows, width, *scope.shape)
            return
        pads = [each.operands[position(self.machine, each.name, word)] for word in does.pads]
        top, bottom, left, right = pads or (0, 0, 0, 0)
        first, last = int(known.writes[0].elements[0]), int(known.writes[0].elements[-1])
        there = held[first : last + 1].reshape(
            top + rows.rows + bottom, left + width + right, *scope.shape
        )
        if known.pads:
            there[...] = 0
        there[top : top + rows.rows, left : left + width] = memory[at]

    def _sweep(self, each: Instruction, does: Sweep, known: Footprint, turns: Turns) -> None:
        target = self.scopes[does.writes.scopes[0]]
        product = contraction(does.meaning)
        if product is not None and does.reads[0].scopes[0] == does.writes.scopes[0]:
            self._contract(does, known, turns, product, target)
        else:
            given = {
                field.name: value
                for field, value in zip(
                    self.machine.operation(each.name).operands, each.operands, strict=True
                )
            }
            for some in _steps(does, turns):
                inputs = [
                    self.scopes[reach.scopes[0]][at[some]]
                    for reach, at in zip(does.reads, turns.read, strict=True)
                ]
                result = apply(does.meaning, inputs, given)
                target[turns.written[some]] = result.astype(target.dtype)
        written = known.writes[0].elements
        for name in does.writes.scopes[1:]:
            other = self.scopes[name]
            other[written] = target[written].astype(other.dtype)

    def _contract(
        self, does: Sweep, known: Footprint, turns: Turns, product: Contraction, target: Array
    ) -> None:
        a, b = product.operands
        groups = self.groups.get(known)
        if groups is None:
            groups = self.groups[known] = _grouped(turns.written, turns.read[a], turns.read[b])
        left = self.scopes[does.reads[a].scopes[0]]
        right = self.scopes[does.reads[b].scopes[0]]
        x, y, z = product.subscripts
        inner = [letter for letter in x if letter in y]
        free = [letter for letter in x if letter not in y]
        rest = [letter for letter in y if letter not in x]
        of_left = (0, *(1 + x.index(letter) for letter in free + inner))
        of_right = (*(1 + y.index(letter) for letter in inner), 0,
                    *(1 + y.index(letter) for letter in rest))  # fmt: skip
        spread = ["m", *free, "r", *rest]
        back = [spread.index(letter) for letter in ("r", "m", *z)]
        dtypes = does.meaning.inputs[a].dtype, does.meaning.inputs[b].dtype
        kind = product.exact(dtypes)
        for group in groups:
            some = left[group.left].transpose(of_left).astype(kind)
            other = right[group.right].transpose(of_right).astype(kind)
            depth = math.prod(other.shape[: len(inner)])
            made = some.reshape(-1, depth) @ other.reshape(depth, -1)
            shaped = made.reshape(
                *some.shape[: 1 + len(free)], *other.shape[len(inner) :]
            ).transpose(back)
            if group.apart:
                target[group.written] += shaped.astype(target.dtype)
            else:
                np.add.at(target, group.written, shaped.astype(target.dtype))


def _grouped(written: Array, left: Array, right: Array) -> list[_Group]:
    """Turns by what they read: first by the right side, then those whose left sides agree."""
    by = np.argsort(right, kind="stable")
    cuts = np.flatnonzero(np.diff(right[by])) + 1
    alike: dict[bytes, tuple[Array, list[int], list[Array]]] = {}
    for some in np.split(by, cuts):
        lefts = left[some]
        _, rights, targets = alike.setdefault(lefts.tobytes(), (lefts, [], []))
        rights.append(int(right[some[0]]))
        targets.append(written[some])
    groups: list[_Group] = []
    for lefts, rights, targets in alike.values():
        places = np.stack(targets)
        apart = len(np.unique(places)) == places.size
        groups.append(_Group(lefts, np.array(rights), places, apart))
    return groups


def _steps(does: Sweep, turns: Turns) -> list[Any]:
    """The turns in parts within which none reads or writes what another one writes."""
    written = turns.written
    count = len(written)
    places = [
        at
        for reach, at in zip(does.reads, turns.read, strict=True)
        if reach.scopes[0] in does.writes.scopes and at is not written
    ]
    others = [at for at in places if not np.array_equal(at, written)]
    if len(np.unique(written)) == count and not any(np.isin(at, written).any() for at in others):
        return [slice(None)]
    if any(np.isin(at, written).any() for at in others):
        return [slice(at, at + 1) for at in range(count)]
    nth = np.zeros(count, np.int64)
    seen: dict[int, int] = {}
    for turn, place in enumerate(written.tolist()):
        nth[turn] = seen[place] = seen.get(place, -1) + 1
    return [np.flatnonzero(nth == step) for step in range(int(nth.max()) + 1)]
