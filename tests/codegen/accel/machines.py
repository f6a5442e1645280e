"""The machines that every property is tried on, and what is drawn for any of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from hypothesis import settings, strategies as st

from plica.codegen.accel.declaration import Accelerator, Micro, Move, Operation, Sweep, Timing
from plica.codegen.accel.encode import encode_micro
from plica.codegen.accel.instruction import (
    MICRO,
    AccelInstruction,
    Stream,
    Tensor,
    instruction,
    legal_tokens,
    made,
)
from plica.codegen.accel.vta import Configuration, osdi, vta
from plica.ir.loop.scalar import Buffer
from plica.ir.type.size import shape_of

Array = np.ndarray[Any, Any]

EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "accel_outer.py"
FEW: Final = max(5, settings().max_examples // 2)


def example() -> ModuleType:
    """The toy machine's module; examples are files, not a package."""
    spec = importlib.util.spec_from_file_location("accel_outer", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOY: Final = example()
OUTER: Final[Accelerator] = TOY.OUTER
SMALL: Final = vta(Configuration(1, 3, 12, 12, 13, 14, 2, Timing(ports=2)))
MACHINES: Final = (vta(), osdi(), SMALL, OUTER)
NAMES: Final = ("vta", "osdi", "small", "outer")

SPAN: Final = 24
"""The elements of each kind that random streams have in memory."""


@st.composite
def instructions(draw: st.DrawFn, machine: Accelerator) -> AccelInstruction:
    """Any instruction that can be encoded, whether it makes sense or not."""
    operation = draw(st.sampled_from(machine.operations))
    operands = tuple(draw(st.integers(each.least, each.most)) for each in operation.operands)
    tokens = draw(st.integers(0, 15)) & legal_tokens(machine, operation.name)
    return AccelInstruction(operation.name, operands, tokens)


@st.composite
def streams(draw: st.DrawFn, machine: Accelerator, most: int = 10) -> Stream:
    """A stream without tokens, whose instructions touch few elements and so meet often."""
    tensors, end = [], 0
    for scope in machine.scopes:
        if machine.micro is None or scope.name != machine.micro.scope:
            whole = -(-end // scope.bytes)
            tensors.append(Tensor(f"in_{scope.name}", scope.name, whole, SPAN))
            end = (whole + SPAN) * scope.bytes
    micro: list[int] = []
    code: list[AccelInstruction] = []
    if machine.micro is not None:
        micro = [draw(_micro(machine, machine.micro)) for _ in range(3)]
        at = -(-end // machine.scope(machine.micro.scope).bytes)
        tensors.append(Tensor(MICRO, machine.micro.scope, at, len(micro)))
        load = _micro_load(machine)
        assert isinstance(load.does, Move)
        given = {load.does.dram: at, load.does.width: len(micro), load.does.rows: 1}
        code.append(made(machine, load.name, given))
    able = [each for each in machine.operations if _is_usable(machine, each)]
    for _ in range(draw(st.integers(1, most))):
        operation = draw(st.sampled_from(able))
        code.append(draw(_instruction(machine, operation)))
    code.append(instruction(machine, machine.finish))
    return Stream(tuple(code), tuple(micro), tuple(tensors))


def filled(machine: Accelerator, stream: Stream, seed: int = 0) -> dict[str, Array]:
    """Random values for the tensors of a stream."""
    random = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for each in stream.tensors:
        scope = machine.scope(each.scope)
        if each.name != MICRO:
            low, high = scope.dtype.bounds
            shape = (each.elements, *scope.shape)
            values = random.integers(max(low, -100), min(high, 100), shape)
            found[each.name] = values.astype(scope.dtype.numpy)
    return found


def _micro_load(machine: Accelerator) -> Operation:
    assert machine.micro is not None
    scope = machine.micro.scope
    return next(
        each
        for each in machine.operations
        if isinstance(each.does, Move) and each.does.scope == scope
    )


def _is_usable(machine: Accelerator, each: Operation) -> bool:
    if machine.micro is not None and isinstance(each.does, Move):
        return each.does.scope != machine.micro.scope
    return each.name != machine.finish


@st.composite
def _micro(draw: st.DrawFn, machine: Accelerator, of: Micro) -> int:
    return encode_micro(machine, **{each.name: draw(st.integers(0, 3)) for each in of.fields})


@st.composite
def _instruction(draw: st.DrawFn, machine: Accelerator, operation: Operation) -> AccelInstruction:
    does = operation.does
    values = {each.name: draw(st.integers(0, 2)) for each in operation.operands}
    if isinstance(does, Move):
        values[does.width] = draw(st.integers(1, 3))
        values[does.dram] = draw(st.integers(0, SPAN // 2))
        if does.rows:
            values[does.rows], values[does.stride] = (
                draw(st.integers(1, 2)),
                draw(st.integers(3, 5)),
            )
    elif isinstance(does, Sweep):
        for word in does.loops:
            values[word] = draw(st.integers(1, 2))
        if does.micro:
            first, last = does.micro
            values[first] = draw(st.integers(0, 1))
            values[last] = draw(st.integers(values[first] + 1, 3))
    return made(machine, operation.name, values)


def filled_like(buffer: Buffer, seed: int) -> Array:
    """Random values for a buffer of the loop language."""
    shape = shape_of(buffer.shape, {})
    assert shape is not None
    values = np.random.default_rng(seed).integers(-100, 100, shape)
    return values.astype(buffer.dtype.numpy)
