"""The host: whether this machine can run code that was made for some machine.

Code that uses missing instructions kills the process, so an artefact is refused before. Only
instructions that compiled kernels use are checked; features that the system does not report are
assumed.

>>> lacking("x86_64", ("+avx2", "-avx512f", "+sse4.1"), {"avx2"})
('sse4.1',)
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence, Set as AbstractSet
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plica.runtime.error import ArtefactError, Diagnostic
from plica.runtime.link import architecture

if TYPE_CHECKING:
    from plica.runtime.artefact import ArtefactMachine

# fmt: off
NAMES: Final[dict[str, dict[str, str]]] = {
    "x86_64": {
        "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "avx": "avx",
        "avx2": "avx2", "fma": "fma", "f16c": "f16c", "bmi": "bmi1", "bmi2": "bmi2",
        "lzcnt": "abm", "popcnt": "popcnt", "movbe": "movbe", "avxvnni": "avx_vnni",
        "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512cd": "avx512cd",
        "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512vnni": "avx512_vnni",
        "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avx512vbmi": "avx512vbmi",
        "avx512vbmi2": "avx512_vbmi2", "avx512ifma": "avx512ifma",
        "avx512bitalg": "avx512_bitalg", "avx512vpopcntdq": "avx512_vpopcntdq",
        "amx-tile": "amx_tile", "amx-int8": "amx_int8", "amx-bf16": "amx_bf16",
        "gfni": "gfni", "vaes": "vaes", "adx": "adx", "amx-fp16": "amx_fp16",
        "amx-complex": "amx_complex", "avxifma": "avx_ifma", "avxvnniint8": "avx_vnni_int8",
        "avxvnniint16": "avx_vnni_int16", "avxneconvert": "avx_ne_convert",
        "avx10.1": "avx10", "avx10.1-512": "avx10", "avx10.2": "avx10", "avx10.2-512": "avx10",
        "egpr": "apx", "ndd": "apx", "ccmp": "apx", "nf": "apx", "zu": "apx",
        "push2pop2": "apx", "ppx": "apx", "sse4a": "sse4a", "xop": "xop", "fma4": "fma4",
        "tbm": "tbm",
    },
    "aarch64": {
        "neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp", "lse": "atomics",
        "rdm": "asimdrdm", "fp16fml": "asimdfhm", "i8mm": "i8mm", "bf16": "bf16", "sve": "sve",
        "sve2": "sve2", "sme": "sme",
    },
}
"""LLVM's names of features, and those of the system."""
# fmt: on


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check(machine: ArtefactMachine) -> None:
    """Refuse code that this machine cannot run."""
    here = architecture()
    hint = "Compile the model on this machine, or for one that has less."
    if machine.architecture != here:
        message = f"The artefact was made for {machine.triple}, and this machine is another kind."
        raise ArtefactError(
            Diagnostic("other-machine", message, None, here, machine.architecture, hint)
        )
    if missing := lacking(here, machine.features, features()):
        message = "The artefact uses instructions that this machine does not have."
        found = ", ".join(missing)
        raise ArtefactError(
            Diagnostic("other-machine", message, None, machine.cpu, f"no {found}", hint)
        )


def can_run(kind: str, wanted: Sequence[str]) -> bool:
    """Whether this processor is of an architecture and has the features."""
    return kind == architecture() and not lacking(kind, wanted, features())


def lacking(kind: str, wanted: Sequence[str], present: AbstractSet[str]) -> tuple[str, ...]:
    """Features that are wanted but not present; if the system tells nothing, none."""
    if not present:
        return ()
    names, known = NAMES.get(kind, {}), {"", *present}
    plain = [each[1:] for each in wanted if each.startswith("+")]
    return tuple([each for each in plain if names.get(each, "") not in known])


def unsaid(kind: str, said: Sequence[str], present: AbstractSet[str]) -> tuple[str, ...]:
    """Features that the system tells of and LLVM, which does not know all, neither has nor lacks.

    >>> unsaid("aarch64", ("+neon", "-sve"), {"asimd", "asimddp"})
    ('+dotprod',)
    """
    known = {each[1:] for each in said}
    names = NAMES.get(kind, {}).items()
    return tuple([f"+{name}" for name, told in names if told in present and name not in known])


@lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """The features of this processor that the system reports, by the system's names."""
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return frozenset()
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            found = frozenset(value.split())
            return found if "amx_tile" not in found or _may_use_tiles() else found - TILES
    return frozenset()


TILES: Final = frozenset({"amx_tile", "amx_int8", "amx_bf16", "amx_fp16", "amx_complex"})
"""What needs registers of tiles, by the system's names."""

_ARCH_PRCTL, _ASK, _TILE_DATA = 158, 0x1023, 18  # numbers of Linux on x86-64


def _may_use_tiles() -> bool:
    """Ask the system for the registers of tiles, which a process has for itself from then on."""
    asked: int = ctypes.CDLL(None, use_errno=True).syscall(_ARCH_PRCTL, _ASK, _TILE_DATA)
    return asked == 0
