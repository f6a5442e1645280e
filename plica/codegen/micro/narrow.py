"""Narrow constants: tables of i32 whose numbers are bytes, kept as bytes where memory is scarce.

A kernel reads them as before, since C widens what it reads.  A table is narrowed where every kernel
that reads it takes nothing else in its place, in all its launches.

>>> from plica.ir.graph.expression import const
>>> _is_bytes(const(np.array([1, -128], np.int32))), _is_bytes(const(np.array([128], np.int32)))
(True, False)
"""

from __future__ import annotations

import numpy as np

from plica.codegen.c.program import NarrowParams
from plica.codegen.interface import aligned_bytes
from plica.codegen.program import Choose, Copy, Launch, Program
from plica.ir.graph.expression import Const
from plica.ir.type import i8, i32
from plica.runtime.port import Array


def narrow_slots(program: Program) -> frozenset[int]:
    """The slots of constants that are kept as bytes."""
    uses: dict[tuple[int, int], set[int]] = {}
    spoiled: set[int] = set()
    for step in [step for steps in program.regions for step in steps]:
        match step:
            case Launch(kernel, args, _):
                for place, slot in enumerate(args):
                    uses.setdefault((kernel, place), set()).add(slot)
            case Copy(source, target):
                spoiled |= {source, target}
            case Choose(condition, _, _):
                spoiled.add(condition)
            case _:
                pass
    found = {
        number
        for number, slot in enumerate(program.slots)
        if slot.space == "constant"
        and slot.dtype is i32
        and number not in spoiled
        and _is_bytes(program.constants[slot.index])
    }
    while True:
        left = found - {slot for taken in uses.values() if not taken <= found for slot in taken}
        if left == found:
            return frozenset(found)
        found = left


def narrow_params(program: Program) -> NarrowParams:
    """The parameters of each kernel that are given narrow constants."""
    slots = narrow_slots(program)
    found: dict[int, set[int]] = {}
    for step in [step for steps in program.regions for step in steps]:
        if isinstance(step, Launch):
            places = {place for place, slot in enumerate(step.args) if slot in slots}
            found.setdefault(step.kernel, set()).update(places)
    return {kernel: frozenset(places) for kernel, places in found.items()}


def static_constants(program: Program) -> tuple[Array, ...]:
    """The bytes of all constants, some of them narrow."""
    narrow = {program.slots[each].index for each in narrow_slots(program)}
    return tuple([
        aligned_bytes(each) if number not in narrow else _bytes(each)
        for number, each in enumerate(program.constants)
    ])  # fmt: skip


def _bytes(of: Const) -> Array:
    return np.frombuffer(of.numpy().astype(i8.numpy).tobytes() or b"\0", np.uint8)


def _is_bytes(of: Const) -> bool:
    values = of.numpy()
    low, high = i8.bounds
    return bool(values.size and values.min() >= low and values.max() <= high)
