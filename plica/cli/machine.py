"""`plica doctor --measure`: measures and shows this machine's description for the compiler."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from plica.runtime.machine import MachineDescription, keep_description, stored_description

if TYPE_CHECKING:
    from rich.table import Table

_UNITS: Final = (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))

# fmt: off
_MEANINGS: Final = {
    "fma":     "multiply-adds of vectors in a cycle",
    "latency": "cycles before the result of one can be used",
    "loads":   "vectors read from the nearest cache in a cycle",
    "stores":  "vectors written to it in a cycle",
    "near":    "bytes copied in a cycle, within the second cache",
    "far":     "bytes copied in a cycle, behind it",
    "far_all": "the same by all cores together",
    "region":  "cycles of a parallel region that does nothing",
    "issue":   "instructions that begin in a cycle",
}
# fmt: on


def measured_here() -> MachineDescription:
    """Measures this machine and stores the result for all later compilations."""
    from plica.bench.machine import measured  # which brings the compiler
    from plica.codegen.llvm import toolchain

    measurement = measured(stored_description())
    keep_description(measurement.description)
    toolchain.host.cache_clear()
    if not measurement.together:
        message = "The cores are busy: the rates of all cores come from the table."
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return measurement.description


def described_here() -> MachineDescription | None:
    """The description that selects default schedules here, or None without a compiler."""
    if (description := stored_description()) is not None:
        return description
    try:
        from plica.codegen.llvm import toolchain
        from plica.codegen.machine_table import row_of
    except ImportError:
        return None
    host = toolchain.host()
    row = row_of(host.architecture, host.cpu, host.widest)
    caches = tuple([host.cache(level) for level in range(1, len(host.caches) + 1)])
    return MachineDescription(row.name, host.vector_bits, caches or row.caches, row.rates)


def show_machine(of: MachineDescription) -> Table:
    """A description as a table."""
    from rich.table import Table

    table = Table("Fact", "Value", "Meaning", title=f"Machine: {of.name}", title_justify="left")
    table.add_row("vector", str(of.vector), "bits of the vectors that code uses")
    caches = ", ".join(_bytes(cache) for cache in of.caches)
    table.add_row("caches", caches, "from the nearest on")
    for name, meaning in _MEANINGS.items():
        table.add_row(name, f"{getattr(of.rates, name):g}", meaning)
    for width in of.widths:
        told = f"fma {width.fma:g}, {width.clock:g} GHz"
        table.add_row(f"{width.bits} bits", told, "vectors of this width, and the clock meanwhile")
    return table


def _bytes(of: int) -> str:
    unit = next(((word, size) for word, size in _UNITS if of >= size and of % size == 0), ("", 1))
    return f"{of // unit[1]}{unit[0]}"
