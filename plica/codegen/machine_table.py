"""The table of machines: processors that are described without being measured, for cross targets.

>>> row_of("x86_64", "sapphirerapids", 512).name
'sapphirerapids'
>>> row_of("x86_64", "unheard-of", 256).name, row_of("aarch64", "generic", 128).name
('x86-64-v3', 'aarch64')
>>> row_named("neoverse-v1").rates.fma
4
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, TypeAlias

from plica.core import did_you_mean
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.machine import CycleRates, MachineDescription

X86: Final = "x86_64"
ARM: Final = "aarch64"

_Rates: TypeAlias = tuple[float, ...]
_K: Final = 1024
_M: Final = 1024 * 1024

# The processors as their makers describe them: vectors that are multiplied and added in a cycle,
# how long that takes, vectors that are read and written, in vectors of `vector` bits, which are the
# fastest rather than the widest; instructions that begin in a cycle, of x86 with the reads that are
# part of a product; bytes of a core's own caches, and of the one that cores share.  Where it was
# measured, how many cycles show of those in which an address is looked up: of a core that has
# several hundred instructions under way few do.
# fmt: off
_ROWS: Final[tuple[tuple[str, str, int, tuple[int, ...], _Rates], ...]] = (
    # architecture, name, vector, caches, (fma, latency, loads, stores, issue, lookup)
    (X86, "x86-64-v2",      128, (32 * _K, 256 * _K, 4 * _M),        (1, 5, 1, 1, 6)),
    (X86, "x86-64-v3",      256, (32 * _K, 512 * _K, 4 * _M),        (2, 4, 2, 1, 6)),
    (X86, "x86-64-v4",      512, (32 * _K, 1 * _M, 16 * _M),         (2, 4, 2, 1, 6)),
    (X86, "haswell",        256, (32 * _K, 256 * _K, 8 * _M),        (2, 5, 2, 1, 6)),
    (X86, "skylake",        256, (32 * _K, 256 * _K, 8 * _M),        (2, 4, 2, 1, 6)),
    (X86, "skylake-avx512", 512, (32 * _K, 1 * _M, 16 * _M),         (2, 4, 2, 1, 6)),
    (X86, "cascadelake",    512, (32 * _K, 1 * _M, 16 * _M),         (2, 4, 2, 1, 6)),
    (X86, "icelake-client", 256, (48 * _K, 512 * _K, 8 * _M),        (2, 4, 2, 2, 6)),
    (X86, "tigerlake",      256, (48 * _K, 1280 * _K, 12 * _M),      (2, 4, 2, 2, 6)),
    (X86, "rocketlake",     256, (48 * _K, 512 * _K, 16 * _M),       (2, 4, 2, 2, 6)),
    (X86, "icelake-server", 512, (48 * _K, 1280 * _K, 32 * _M),      (2, 4, 2, 1, 6)),
    (X86, "sapphirerapids", 512, (48 * _K, 2 * _M, 64 * _M),         (2, 4, 2, 1, 6, 4)),
    (X86, "emeraldrapids",  512, (48 * _K, 2 * _M, 64 * _M),         (2, 4, 2, 1, 6, 4)),
    (X86, "graniterapids",  512, (48 * _K, 2 * _M, 64 * _M),         (2, 4, 2, 1, 6, 4)),
    (X86, "alderlake",      256, (48 * _K, 1280 * _K, 24 * _M),      (2, 4, 3, 2, 6)),
    (X86, "znver2",         256, (32 * _K, 512 * _K, 16 * _M),       (2, 5, 2, 1, 6)),
    (X86, "znver3",         256, (32 * _K, 512 * _K, 32 * _M),       (2, 4, 2, 1, 6)),
    (X86, "znver4",         512, (32 * _K, 1 * _M, 32 * _M),         (1, 4, 1, 0.5, 6)),
    (X86, "znver5",         512, (48 * _K, 1 * _M, 32 * _M),         (2, 4, 2, 1, 6)),
    (ARM, "aarch64",        128, (32 * _K, 512 * _K, 4 * _M),        (2, 4, 2, 1, 4)),
    (ARM, "cortex-a72",     128, (32 * _K, 512 * _K),                (1, 7, 1, 1, 3)),
    (ARM, "cortex-a76",     128, (64 * _K, 512 * _K, 2 * _M),        (2, 4, 2, 1, 4)),
    (ARM, "neoverse-n1",    128, (64 * _K, 1 * _M, 32 * _M),         (2, 4, 2, 1, 4)),
    (ARM, "neoverse-n2",    128, (64 * _K, 1 * _M, 32 * _M),         (2, 4, 3, 2, 5)),
    (ARM, "neoverse-v1",    128, (64 * _K, 1 * _M, 32 * _M),         (4, 4, 3, 2, 8)),
    (ARM, "neoverse-v2",    128, (64 * _K, 2 * _M, 32 * _M),         (4, 4, 3, 2, 8)),
    (ARM, "apple-m1",       128, (128 * _K, 12 * _M),                (4, 4, 3, 2, 8)),
    ("riscv64", "riscv64",  128, (32 * _K, 512 * _K),                (1, 5, 1, 1, 4)),
    ("armv7", "armv7",      128, (32 * _K, 512 * _K),                (1, 8, 1, 1, 3)),
    ("wasm32", "wasm32",    128, (32 * _K, 512 * _K, 4 * _M),        (1, 8, 2, 1, 4)),
)
# fmt: on


def _described(
    name: str, vector: int, caches: tuple[int, ...], rates: _Rates
) -> MachineDescription:
    fma, latency, loads, stores, issue, *lookup = rates
    cycle_rates = CycleRates(fma, latency, loads, stores, issue=issue)
    cycle_rates = replace(cycle_rates, lookup=lookup[0]) if lookup else cycle_rates
    return MachineDescription(name, vector, caches, cycle_rates)


TABLE: Final[dict[str, MachineDescription]] = {row[1]: _described(*row[1:]) for row in _ROWS}
"""Machines by name."""

ARCHITECTURES: Final[dict[str, str]] = {row[1]: row[0] for row in _ROWS}
"""The first part of the triple of each."""

_DEFAULT_ROW: Final = {
    (X86, 512): "x86-64-v4", (X86, 256): "x86-64-v3", (X86, 128): "x86-64-v2",
    (ARM, 128): "aarch64", ("arm64", 128): "aarch64",
}  # fmt: skip

_FIRST_WITH: Final = {"+amx-tile": "sapphirerapids"}
"""Features that no processor before the named one has."""

_UNKNOWN: Final = MachineDescription("generic", 0, (32 * _K, 512 * _K, 4 * _M))


def row_of(architecture: str, cpu: str, vector: int) -> MachineDescription:
    """The row of a processor, or of those like it; what is usual if there is none."""
    if ARCHITECTURES.get(cpu) == architecture:
        return TABLE[cpu]
    return TABLE.get(_DEFAULT_ROW.get((architecture, vector), architecture), _UNKNOWN)


def likely_processor(name: str, features: Collection[str]) -> str:
    """The processor that LLVM names by its model, or the first one that has its features.

    A hypervisor may state the model of another processor: its row has narrower vectors than any
    with a feature of these has.

    >>> likely_processor("rocketlake", ("+avx512f", "+amx-tile"))
    'sapphirerapids'
    >>> likely_processor("rocketlake", ("+avx512f",)), likely_processor("new", ("+amx-tile",))
    ('rocketlake', 'new')
    """
    for feature, first in _FIRST_WITH.items():
        if feature in features and name in TABLE and TABLE[name].vector < TABLE[first].vector:
            return first
    return name


def row_named(name: str) -> MachineDescription:
    """The row of that name; a wrong one is refused with the nearest right one."""
    if name not in TABLE:
        message, known = f"There is no machine {name!r}.", tuple(TABLE)
        hint = did_you_mean(name, known)
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, ", ".join(known), repr(name), hint)
        )
    return TABLE[name]
