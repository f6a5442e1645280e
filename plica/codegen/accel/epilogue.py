"""Layer epilogues: the operations on sums before they are stored.

    sums + b,  sums >> n,  max(sums, low),  min(sums, high)

>>> from plica.codegen.accel.units import units_of
>>> from plica.codegen.accel.vta import vta
>>> [each.unit.name for each in epilogue(units_of(vta()), True, 8, 0, 127)]
['alu.add', 'alu.shr.imm', 'alu.max.imm', 'alu.min.imm']
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.codegen.accel.units import Change, MachineUnit, MachineUnits

NAMES: Final[dict[Change, str]] = {"add": "b", "shift": "n", "max": "l", "min": "h"}
"""The names of epilogue operands in a stream."""


@frozen
class EpilogueStep:
    """An operation on every sum: by a number, or by the tensor of that name."""

    unit: MachineUnit
    number: int = 0
    tensor: str = ""


def epilogue(
    units: MachineUnits, bias: bool, shift: int | None, low: int, high: int
) -> tuple[EpilogueStep, ...] | str:
    """The steps in order, or what the machine lacks; a shift of None means one per output."""
    wanted: list[tuple[Change, int | None]] = [("add", None)] if bias else []
    if shift != 0:
        wanted.append(("shift", shift))
    wanted += [("max", low), ("min", high)]
    steps: list[EpilogueStep] = []
    for what, number in wanted:
        if isinstance(unit := units.change(what, number), str):
            return unit
        if unit.immediate and number is not None:
            steps.append(EpilogueStep(unit, number))
        else:
            steps.append(EpilogueStep(unit, tensor=NAMES[what]))
    return tuple(steps)
