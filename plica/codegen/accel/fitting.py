"""Flow checks: whether statements are valid for the machine, and stay inside their tiles.

>>> from plica.codegen.accel.flow import ZERO
>>> from plica.codegen.accel.vta import vta
>>> from plica.ir.loop.scalar import index
>>> x, a = flows.Memory("x", "inp", 8), flows.Tile("a", "inp", 4)
>>> load = flows.Transfer("load.inp", a, ZERO, x, ZERO, index(1), index(8), index(8))
>>> fit(vta(), flows.Flow((x,), (a,), load))
Traceback (most recent call last):
...
plica.codegen.accel.fitting.BadFlow: load.inp: A transfer goes beyond its tile. [bad-flow]
  expected: 0 to 3 of 'a'
  found: 0 to 7
  suggestion: Make the tile larger, or move less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plica.codegen.accel import flow as flows
from plica.codegen.accel.declaration import Accelerator, Idle, Move, Sweep
from plica.codegen.accel.instruction import find
from plica.codegen.accel.micro import reaches_of
from plica.codegen.accel.unroll import MAX_STEPS, Array, evaluate, numbers_of
from plica.core import Term, did_you_mean, post_order
from plica.ir.loop.scalar import ScalarVar
from plica.runtime.error import Diagnostic, Place, PlicaError


class BadFlow(PlicaError):
    """A statement of a flow is not for the machine, or leaves its tiles or tensors."""


def fit(machine: Accelerator, flow: flows.Flow) -> None:
    """Refuse a flow that is not for the machine; a flow with too many steps is not looked at."""
    rooms: list[flows.Tile | flows.Memory] = [*flow.tiles, *flow.tensors]
    names = [each.name for each in rooms]
    for room in rooms:
        kind = "tile" if isinstance(room, flows.Tile) else "tensor"
        scopes = [scope.name for scope in machine.scopes]
        if room.scope not in scopes:
            message, hint = f"The {kind} is of no scope.", did_you_mean(room.scope, scopes)
            raise _bad(room.name, message, ", ".join(scopes), room.scope, hint)
        if room.elements < 0:
            raise _bad(room.name, f"The {kind} has a size below zero.", "0 or more", str(room))
        if names.count(room.name) > 1:
            message = "Two tiles or tensors have one name."
            raise _bad(room.name, message, "other names", ", ".join(names))
    for node in post_order(flow.body):
        if isinstance(node, flows.Transfer):
            _check_transfer(machine, flow, node)
        elif isinstance(node, flows.Work):
            _check_work(machine, flow, node)
    stack: list[tuple[flows.Stmt, tuple[tuple[ScalarVar, int], ...]]] = [(flow.body, ())]
    seen: set[tuple[Term, object]] = set()
    while stack:
        node, loops = stack.pop()
        if (node, loops) in seen:
            continue
        seen.add((node, loops))
        match node:
            case flows.Loop(var, extent, body) | flows.Threads(var, extent, body):
                if extent < isinstance(node, flows.Threads):
                    least = f"at least {int(isinstance(node, flows.Threads))}"
                    raise _bad(str(var.name), "A loop has too few turns.", least, str(extent))
                stack.append((body, (*loops, (var, extent))))
            case flows.Steps(stmts):
                stack += [(statement, loops) for statement in stmts]
            case flows.Transfer() | flows.Work():
                _check_places(node, loops)


def _check_transfer(machine: Accelerator, flow: flows.Flow, of: flows.Transfer) -> None:
    does = find(machine, of.operation).does
    if not isinstance(does, Move):
        raise _not_a(of.operation, "A transfer is of an operation that moves.", "Move", does)
    _check_tile(flow, of.operation, of.tile)
    if of.tensor not in flow.tensors:
        names = [tensor.name for tensor in flow.tensors]
        message = "The tensor of a transfer is not in the flow."
        raise _bad(of.operation, message, ", ".join(names) or "none", of.tensor.name)
    if does.scope not in _scopes(machine, of.tile.scope):
        message = f"The tile {of.tile.name!r} is of another scope."
        raise _bad(of.operation, message, does.scope, of.tile.scope)
    if of.tensor.scope != does.memory:
        message = f"The tensor {of.tensor.name!r} is of another kind of element."
        raise _bad(of.operation, message, does.memory, of.tensor.scope)
    if len(of.pads) not in (0, 4):
        raise _bad(of.operation, "A transfer has four pads or none.", "4", str(len(of.pads)))


def _check_work(machine: Accelerator, flow: flows.Flow, of: flows.Work) -> None:
    operation = find(machine, of.operation)
    does = operation.does
    if not isinstance(does, Sweep):
        raise _not_a(of.operation, "Work is of an operation that sweeps.", "Sweep", does)
    reaches = reaches_of(does)
    if len(of.touches) != len(reaches):
        message = "Work touches what its operation writes, and what it reads elsewhere."
        shown = ", ".join(each.scopes[0] for each in reaches)
        raise _bad(of.operation, message, f"{len(reaches)}: {shown}", str(len(of.touches)))
    for touch, reach in zip(of.touches, reaches, strict=True):
        _check_tile(flow, of.operation, touch.tile)
        if touch.tile.scope != reach.scopes[0]:
            message = f"The tile {touch.tile.name!r} is of another scope."
            raise _bad(of.operation, message, reach.scopes[0], touch.tile.scope)
        if len(touch.strides) != len(of.extents):
            message = "A touch has a stride for each loop of its work."
            raise _bad(of.operation, message, str(len(of.extents)), str(len(touch.strides)))
    known = [field.name for field in operation.operands]
    for word, _ in of.given:
        if word not in known:
            message = f"{of.operation} has no operand {word!r}."
            raise _bad(of.operation, message, ", ".join(known), word, did_you_mean(word, known))


def _check_tile(flow: flows.Flow, operation: str, tile: flows.Tile) -> None:
    if tile not in flow.tiles:
        names = ", ".join(each.name for each in flow.tiles) or "none"
        raise _bad(operation, "A tile is not in the flow.", names, tile.name)


def _scopes(machine: Accelerator, scope: str) -> set[str]:
    """All scopes to which writes of a scope go."""
    found = {scope}
    for operation in machine.operations:
        if isinstance(operation.does, Sweep) and operation.does.writes.scopes[0] == scope:
            found.update(operation.does.writes.scopes)
    return found


def _check_places(leaf: flows.Leaf, loops: Sequence[tuple[ScalarVar, int]]) -> None:
    """Checks the elements of a leaf for all iterations at once."""
    total = 1
    for _, extent in loops:
        total *= extent
    if not 0 < total <= MAX_STEPS:
        return
    grid: dict[Term, Array] = {}
    for number, (var, extent) in enumerate(loops):
        grid[var] = np.arange(extent).reshape(
            [-1 if at == number else 1 for at in range(len(loops))]
        )
    values = np.broadcast_arrays(*evaluate(numbers_of(leaf), grid))
    if isinstance(leaf, flows.Transfer):
        sram, dram, rows, width, stride, *pads = values
        top, bottom, left, right = pads or [np.zeros_like(sram)] * 4
        at = (rows > 0) & (width > 0)
        last = sram + (top + rows + bottom) * (left + width + right) - 1
        _check_range(leaf.operation, "A transfer", "tile", leaf.tile, sram[at], last[at])
        ends = dram + np.maximum(rows - 1, 0) * stride + width - 1
        _check_range(leaf.operation, "A transfer", "tensor", leaf.tensor, dram[at], ends[at])
        return
    count = len(leaf.extents)
    extents, rest = values[:count], values[count:]
    at = np.ones_like(values[0], bool) if values else np.ones((), bool)
    for turns in extents:
        at = at & (turns > 0)
    for number, touch in enumerate(leaf.touches):
        base, *strides = rest[number * (count + 1) : (number + 1) * (count + 1)]
        low, high = base, base
        for turns, stride in zip(extents, strides, strict=True):
            far = (turns - 1) * stride
            low, high = low + np.minimum(far, 0), high + np.maximum(far, 0)
        _check_range(leaf.operation, "Work", "tile", touch.tile, low[at], high[at])


def _check_range(  # noqa: PLR0917  # what goes beyond what
    operation: str, what: str, kind: str, room: flows.Tile | flows.Memory, low: Array, high: Array
) -> None:
    if not low.size or (int(low.min()) >= 0 and int(high.max()) < room.elements):
        return
    expected = f"0 to {room.elements - 1} of {room.name!r}"
    shown = f"{int(low.min())} to {int(high.max())}"
    hint = f"Make the {kind} larger, or {'move' if what != 'Work' else 'touch'} less."
    raise _bad(operation, f"{what} goes beyond its {kind}.", expected, shown, hint)


def _not_a(operation: str, message: str, expected: str, does: Move | Sweep | Idle) -> BadFlow:
    return _bad(operation, message, expected, type(does).__name__)


def _bad(where: str, message: str, expected: str, found: str, hint: str | None = None) -> BadFlow:
    return BadFlow(Diagnostic("bad-flow", message, Place(node=where), expected, found, hint))
