"""Device descriptions for the runtime, from declarations.

>>> from plica.codegen.accel.vta import vta
>>> [each.name for each in device_of(vta()).memories]
['uop', 'inp', 'wgt', 'acc', 'out']
>>> from plica.runtime.typed_json import plain, read
>>> read(device.AccelDevice, plain(device_of(vta()))) == device_of(vta())
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from plica.codegen.accel import declaration as d
from plica.codegen.accel.declaration import FLAGS, Accelerator
from plica.codegen.accel.instruction import AccelInstruction, Stream
from plica.codegen.accel.meaning import to_formula
from plica.runtime.accel import device
from plica.runtime.accel.functional import AccelProgram, MemorySpan, Simulator
from plica.runtime.port import Array


@lru_cache(maxsize=64)
def device_of(machine: Accelerator) -> device.AccelDevice:
    """The device that a machine is."""
    memories = [
        device.DeviceMemory(scope.name, scope.depth, scope.shape, scope.dtype.numpy.name)
        for scope in machine.scopes
    ]
    micro = None
    if machine.micro is not None:
        micro = machine.micro.scope, tuple([_bits(field) for field in machine.micro.fields])
    kinds = tuple([_kind(machine, operation) for operation in machine.operations])
    return device.AccelDevice(
        machine.name, machine.bits, tuple(memories), kinds, machine.finish, micro
    )


@lru_cache(maxsize=64)
def numbers(machine: Accelerator) -> dict[str, int]:
    """The number of each kind of instruction, by its name."""
    return {operation.name: at for at, operation in enumerate(machine.operations)}


def coded(
    machine: Accelerator, code: Sequence[AccelInstruction]
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Instructions as the runtime has them."""
    number = numbers(machine)
    return tuple([(number[instruction.name], instruction.operands) for instruction in code])


def program_of(machine: Accelerator, stream: Stream) -> AccelProgram:
    """A stream as the runtime has it."""
    rooms = [MemorySpan(each.name, each.scope, each.at, each.elements) for each in stream.tensors]
    return AccelProgram(device_of(machine), coded(machine, stream.code), stream.micro, tuple(rooms))


def _bits(of: d.Field) -> device.Bits:
    return device.Bits(of.at, of.bits, of.signed)


def _kind(machine: Accelerator, of: d.Operation) -> device.InstructionKind:
    fields = {field.name: field for field in of.fields}
    fixed = [(_bits(fields[name]), value) for name, value in of.fixed]
    flags = [field.at for field in of.fields if field.name in FLAGS]
    operands = [(operand.name, _bits(operand)) for operand in of.operands]
    return device.InstructionKind(
        of.name, tuple(operands), tuple(fixed), tuple(flags), _does(machine, of)
    )


def _does(machine: Accelerator, of: d.Operation) -> device.RowCopy | device.DeviceSweep | None:
    words = [operand.name for operand in of.operands]
    does = of.does

    def at(word: str) -> int:
        return words.index(word)

    if isinstance(does, d.Move):
        rows = (at(does.rows), at(does.stride)) if does.rows else (-1, -1)
        pads = tuple([at(pad) for pad in does.pads])
        by = device.CopyOperands(at(does.sram), at(does.dram), at(does.width), *rows)
        return device.RowCopy(does.scope, does.way == "out", by, pads, does.kind)
    if isinstance(does, d.Sweep):
        bases = words
        if does.micro and machine.micro is not None:
            bases = [field.name for field in machine.micro.fields]

        def reach(given: d.Reach) -> device.OperandReach:
            strides = tuple([at(stride) for stride in given.strides])
            return device.OperandReach(given.scopes, bases.index(given.base), strides)

        loops, micro = (tuple([at(word) for word in each]) for each in (does.loops, does.micro))
        reaches = tuple([reach(each) for each in (does.writes, *does.reads)])
        return device.DeviceSweep(loops, micro, reaches, to_formula(does.meaning))
    return None


# --- the functional simulator for streams ------------------------------------------------------


__all__ = ["Array", "run"]


def run(
    machine: Accelerator,
    stream: Stream,
    tensors: Mapping[str, Array],
    order: Sequence[int] | None = None,
) -> dict[str, Array]:
    """All tensors of the stream after it has run; those not given begin as zeros."""
    return Simulator(program_of(machine, stream)).run(tensors, order)
