"""Stream features, for a model that estimates its speed.

>>> from plica.codegen.accel.instruction import Stream, instruction
>>> from plica.codegen.accel.vta import vta
>>> load = instruction(vta(), "load.inp", y_size=2, x_size=4)
>>> found = features(vta(), Stream((load,)))
>>> found["load.inp count"], found["load.inp bytes"], found["load cycles"]
(1, 128, 100)
"""

from __future__ import annotations

from plica.codegen.accel.cycle import cost
from plica.codegen.accel.declaration import Accelerator, Move, Sweep
from plica.codegen.accel.footprint import footprints
from plica.codegen.accel.instruction import Stream


def features(machine: Accelerator, stream: Stream) -> dict[str, int]:
    """The count of each operation, its bytes or iterations, and the units' cycles."""
    found: dict[str, int] = {}
    for each in machine.operations:
        found[f"{each.name} count"] = 0
        if isinstance(each.does, Move):
            found[f"{each.name} bytes"] = found[f"{each.name} rows"] = 0
        elif isinstance(each.does, Sweep):
            found[f"{each.name} turns"] = 0
    for unit in machine.units:
        found[f"{unit} cycles"] = 0
    found["tokens"] = found["micro-operations"] = 0
    timing = machine.timing
    for one, touched in zip(stream.code, footprints(machine, stream), strict=True):
        found[f"{one.name} count"] += 1
        if touched.memory is not None:
            found[f"{one.name} rows"] += touched.memory.rows
            found[f"{one.name} bytes"] += touched.memory.rows * touched.memory.size
        if touched.turns is not None:
            found[f"{one.name} turns"] += len(touched.turns.written)
        plain, rows, row = cost(machine, one.name, touched)
        waits = timing.latency if rows else 0
        found[f"{machine.operation(one.name).unit} cycles"] += (
            timing.issue + waits + plain + rows * row
        )
        found["tokens"] += one.tokens.bit_count()
    found["micro-operations"] = len(stream.micro)
    return found
