"""Streams from flows: room for tiles and tensors, micro-operations, instructions, tokens.

    Flow --threads--> Flow --unroll--> leaves --moves, folds--> instructions --tokens--> Stream

>>> from plica.codegen.accel.encode import show
>>> from plica.codegen.accel.flow import ZERO
>>> from plica.codegen.accel.vta import vta
>>> from plica.ir.loop.scalar import index
>>> x, a = Memory("x", "inp", 8), Tile("a", "inp", 8)
>>> load = Transfer("load.inp", a, ZERO, x, ZERO, index(2), index(4), index(4))
>>> for each in build(vta(), Flow((x,), (a,), load)).code:
...     print(show(vta(), each))
load.inp y_size=1 x_size=8 x_stride=8 !push_next
load.uop !pop_prev
finish
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from attrs import evolve, field, frozen

from plica.codegen.accel import token, virtual_thread
from plica.codegen.accel.check import check
from plica.codegen.accel.declaration import Accelerator, Move, Operation, Sweep
from plica.codegen.accel.encode import encode_micro
from plica.codegen.accel.fitting import fit
from plica.codegen.accel.flow import Flow, Leaf, Memory, Tile, Transfer
from plica.codegen.accel.instruction import MICRO, AccelInstruction, Stream, Tensor, find, made
from plica.codegen.accel.micro import AffineAccess, OperationNest, instructions_of
from plica.codegen.accel.unroll import unroll
from plica.core import CompilerBug, Term
from plica.ir.driver import drive
from plica.ir.passes import Pass, Pipeline, exact_pass
from plica.runtime.error import Diagnostic, Place, UnsupportedError

Words: TypeAlias = tuple[int, ...]


@frozen
class _Step:
    """An instruction that still needs to know where its micro-operations are."""

    name: str
    values: tuple[tuple[str, int], ...]
    words: Words | None


NO_CODE: Final = Stream(())

Item: TypeAlias = "tuple[Leaf, tuple[int, ...]] | tuple[_Step, ...]"
"""A leaf of a flow with its numbers, or the instructions that it became."""


@frozen(eq=False)
class StreamState:
    """A flow on its way to a stream: what the passes of `STREAM` have found so far."""

    machine: Accelerator
    flow: Flow
    bases: Mapping[Term, int] = field(factory=dict[Term, int])
    tensors: tuple[Tensor, ...] = ()
    items: tuple[Item, ...] = ()
    stream: Stream = NO_CODE


def build(machine: Accelerator, flow: Flow, checked: bool = True) -> Stream:
    """The stream of a flow.

    A statement that is not for the machine, a tile that does not fit, or a number that no field
    holds, is refused.
    """
    pipeline = STREAM if checked else STREAM.without("check-tokens")
    return drive(pipeline, StreamState(machine, flow), _run).stream


def _run(each: Pass, state: StreamState) -> StreamState:
    made = each.run(state)
    assert isinstance(made, StreamState)
    return made


def fit_flow(of: StreamState) -> StreamState:
    """The flow as it is; refused where the machine has no such operation or scope."""
    fit(of.machine, of.flow)
    return of


def interleave_threads(of: StreamState) -> StreamState:
    """The flow without virtual threads."""
    return evolve(of, flow=virtual_thread.lower(of.machine, of.flow))


def lift_tiles(of: StreamState) -> StreamState:
    """Each tile has one place in its scope for the whole stream."""
    return evolve(of, bases=_tiles(of.machine, of.flow.tiles))


def place_tensors(of: StreamState) -> StreamState:
    """Each tensor has a place in memory."""
    return evolve(of, tensors=_tensors(of.machine, of.flow.tensors))


def unroll_loops(of: StreamState) -> StreamState:
    """The leaves of the flow in the order in which they happen."""
    return evolve(of, items=tuple(unroll(of.flow.body)))


def inject_moves(of: StreamState) -> StreamState:
    """Transfers are loads and stores; what copies nothing is left out."""
    at = {tensor.name: tensor.at for tensor in of.tensors}

    def made(leaf: Leaf, numbers: tuple[int, ...]) -> list[_Step] | None:
        if not isinstance(leaf, Transfer):
            return None
        return _transfer(of.machine, leaf, numbers, of.bases[leaf.tile], at[leaf.tensor.name])

    return _with_items(of, made)


def fold_loops(of: StreamState) -> StreamState:
    """Work is instructions with loops of the hardware, the rest of it micro-operations."""

    def made(leaf: Leaf, numbers: tuple[int, ...]) -> list[_Step] | None:
        return None if isinstance(leaf, Transfer) else _sweep(of.machine, leaf, numbers, of.bases)

    return _with_items(of, made)


def _with_items(
    of: StreamState, make: Callable[[Leaf, tuple[int, ...]], list[_Step] | None]
) -> StreamState:
    """The state with some leaves as instructions; equal ones are made once."""
    known: dict[Item, Item] = {}
    for item in of.items:
        if item not in known:
            known[item] = item
            if item and not isinstance(item[0], _Step):
                leaf, numbers = item
                assert isinstance(numbers, tuple)
                steps = make(leaf, numbers)
                known[item] = item if steps is None else tuple(steps)
    return evolve(of, items=tuple([known[item] for item in of.items]))


def share_micro(of: StreamState) -> StreamState:
    """The stream without tokens: equal sweeps share their micro-operations, which are loaded."""
    machine, tensors = of.machine, of.tensors
    steps = [step for item in of.items for step in item if isinstance(step, _Step)]
    micro, code = _with_micro(machine, steps, tensors)
    nothing = (0,) * len(find(machine, machine.finish).operands)
    code.append(AccelInstruction(machine.finish, nothing))
    if micro and machine.micro is not None:
        at = _micro_at(machine, tensors)
        tensors = (*tensors, Tensor(MICRO, machine.micro.scope, at, len(micro)))
    return evolve(of, stream=Stream(tuple(code), micro, tensors))


def insert_tokens(of: StreamState) -> StreamState:
    """The stream with the fewest tokens that keep its units in step."""
    return evolve(of, stream=token.insert(of.machine, of.stream))


def check_tokens(of: StreamState) -> StreamState:
    """The stream as it is; a `CompilerBug` where its tokens do not keep its units in step."""
    assure(of.machine, of.stream)
    return of


_pass: Final = partial(exact_pass, kind="lower")

STREAM: Final = Pipeline((
    _pass("fit-flow",        "Refuse what the machine has no operation or scope for.", fit_flow),
    _pass("interleave-threads", "Interleave virtual threads in one stream.", interleave_threads),
    _pass("lift-tiles",      "Allocate tiles for the whole stream.", lift_tiles),
    _pass("place-tensors",   "Lay tensors out in memory.", place_tensors),
    _pass("unroll-flow",     "Unroll loops over several units.", unroll_loops),
    _pass("inject-moves",    "Turn transfers into loads and stores; skip empty copies.",
          inject_moves),
    _pass("fold-loops",      "Turn work into hardware loops and micro-operations.", fold_loops),
    _pass("share-micro-ops", "Share equal micro-operations, and load them.", share_micro),
    _pass("insert-tokens",   "Insert the fewest tokens that order the units.", insert_tokens),
    _pass("check-tokens",    "Prove that the tokens order every conflict.", check_tokens),
))  # fmt: skip
"""From a flow to a stream, pass by pass."""


def assure(machine: Accelerator, stream: Stream) -> None:
    """Prove that the tokens of a stream keep its units in step."""
    if faults := check(machine, stream):
        raise CompilerBug(f"the tokens of a stream do not keep it in step: {faults[0].text}")


def _tiles(machine: Accelerator, tiles: Sequence[Tile]) -> dict[Term, int]:
    """Where each tile begins in its scope."""
    used = dict.fromkeys((scope.name for scope in machine.scopes), 0)
    bases: dict[Term, int] = {}
    for tile in tiles:
        bases[tile] = used[tile.scope]
        used[tile.scope] += tile.elements
    for scope in machine.scopes:
        if used[scope.name] > scope.depth:
            message = f"The tiles of {scope.name} do not fit into it."
            raise UnsupportedError(
                Diagnostic(
                    "scope-capacity",
                    message,
                    Place(node=f"{machine.name}.{scope.name}"),
                    f"at most {scope.depth} elements",
                    str(used[scope.name]),
                    "Use smaller tiles or fewer threads.",
                )
            )
    return bases


def _tensors(machine: Accelerator, tensors: Sequence[Memory]) -> tuple[Tensor, ...]:
    """Where each tensor is in memory: one after the other, aligned for every kind of element."""
    whole = math.lcm(*(scope.bytes for scope in machine.scopes))
    found: list[Tensor] = []
    end = 0
    for tensor in tensors:
        size = machine.scope(tensor.scope).bytes
        found.append(Tensor(tensor.name, tensor.scope, end // size, tensor.elements))
        end += -(-tensor.elements * size // whole) * whole
    return tuple(found)


def _micro_at(machine: Accelerator, tensors: Sequence[Tensor]) -> int:
    assert machine.micro is not None
    whole = math.lcm(*(scope.bytes for scope in machine.scopes))
    ends = [(tensor.at + tensor.elements) * machine.scope(tensor.scope).bytes for tensor in tensors]
    end = -(-max(ends, default=0) // whole) * whole
    return end // machine.scope(machine.micro.scope).bytes


def _transfer(
    machine: Accelerator, leaf: Transfer, numbers: tuple[int, ...], base: int, start: int
) -> list[_Step]:
    """The moves of a transfer: rows that follow each other in memory are one row."""
    sram, dram, rows, width, stride, *pads = numbers
    if rows <= 0 or width <= 0:
        if leaf.filled:
            message = "No move fills a tile with nothing but zeros."
            place, hint = Place(node=leaf.operation), "Use larger tiles."
            raise UnsupportedError(
                Diagnostic("unsupported", message, place, "something to copy", "pads", hint)
            )
        return []
    operation = find(machine, leaf.operation)
    does = operation.does
    assert isinstance(does, Move)
    limits = {field.name: field.most for field in operation.operands}
    if stride == width and not any(pads) and rows * width <= limits[does.width]:
        rows, width, stride = 1, rows * width, rows * width
    where = {does.sram: base + sram, does.dram: start + dram}
    if does.rows:
        values = {**where, does.width: width, does.rows: rows, does.stride: stride}
        if does.pads:
            values.update(zip(does.pads, pads, strict=True))
        elif any(pads):
            raise _no_pads(operation)
        return [_Step(leaf.operation, tuple(values.items()), None)]
    if any(pads):
        raise _no_pads(operation)
    steps: list[_Step] = []
    for row in range(rows):
        here = {does.sram: base + sram + row * width, does.dram: start + dram + row * stride}
        steps.append(_Step(leaf.operation, (*here.items(), (does.width, width)), None))
    return steps


def _no_pads(operation: Operation) -> UnsupportedError:
    message = f"{operation.name} cannot pad."
    place = Place(node=operation.name)
    return UnsupportedError(Diagnostic("unsupported", message, place, "no pads", "pads"))


def _sweep(
    machine: Accelerator, leaf: Any, numbers: tuple[int, ...], bases: Mapping[Term, int]
) -> list[_Step]:
    # Any: `unroll` gives transfers and work, and this one is work
    count = len(leaf.extents)
    extents, rest = numbers[:count], numbers[count:]
    accesses: list[AffineAccess] = []
    for at, touch in enumerate(leaf.touches):
        base, *strides = rest[at * (count + 1) : (at + 1) * (count + 1)]
        accesses.append(AffineAccess(bases[touch.tile] + base, tuple(strides)))
    nest = OperationNest(leaf.operation, extents, tuple(accesses), leaf.given)
    sweep = find(machine, leaf.operation).does
    assert isinstance(sweep, Sweep)
    steps: list[_Step] = []
    for instruction in instructions_of(machine, nest):
        words: Words | None = None
        if sweep.micro:
            words = tuple([encode_micro(machine, **place) for place in instruction.places])
        steps.append(_Step(leaf.operation, tuple(instruction.values.items()), words))
    return steps


def _with_micro(
    machine: Accelerator, steps: list[_Step], tensors: Sequence[Tensor]
) -> tuple[Words, list[AccelInstruction]]:
    """The micro-operations, and the instructions with the loads of them that they need."""
    if machine.micro is None:
        one: dict[_Step, AccelInstruction] = {}
        return (), [_made(machine, step, None, one) for step in steps]
    kernels: dict[Words, int] = {}
    micro: list[int] = []
    for step in steps:
        if step.words is not None and step.words not in kernels:
            kernels[step.words] = len(micro)
            micro += step.words
    depth = machine.scope(machine.micro.scope).depth
    start = _micro_at(machine, tensors)
    load = next(
        operation
        for operation in machine.operations
        if isinstance(operation.does, Move) and operation.does.scope == machine.micro.scope
    )
    code: list[AccelInstruction] = []
    if micro and len(micro) <= depth:
        code.append(_load(machine, load, 0, start, len(micro)))
        places = dict(kernels)
    else:
        places = {}
    ring = 0
    known: dict[_Step, AccelInstruction] = {}
    for step in steps:
        if step.words is None:
            code.append(_made(machine, step, None, known))
            continue
        if step.words not in places:
            size = len(step.words)
            if ring + size > depth:
                ring = 0
            gone = [w for w, at in places.items() if at < ring + size and at + len(w) > ring]
            for words in gone:
                del places[words]
            if gone:
                known = {}
            code.append(_load(machine, load, ring, start + kernels[step.words], size))
            places[step.words] = ring
            ring += size
        code.append(_made(machine, step, places[step.words], known))
    return tuple(micro), code


def _made(
    machine: Accelerator, each: _Step, at: int | None, known: dict[_Step, AccelInstruction]
) -> AccelInstruction:
    if (instruction := known.get(each)) is None:
        values = dict(each.values)
        does = find(machine, each.name).does
        if isinstance(does, Sweep) and does.micro and at is not None and each.words is not None:
            first, last = does.micro
            values[first], values[last] = at, at + len(each.words)
        instruction = known[each] = made(machine, each.name, values)
    return instruction


def _load(
    machine: Accelerator, load: Operation, sram: int, dram: int, size: int
) -> AccelInstruction:
    does = load.does
    assert isinstance(does, Move)
    values = {does.sram: sram, does.dram: dram, does.width: size}
    if does.rows:
        values[does.rows], values[does.stride] = 1, size
    return made(machine, load.name, values)
