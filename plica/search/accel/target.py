"""Accelerators, as the search for tilings sees them: models are tuned layer by layer."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from plica.codegen.accel.target import AccelTarget
from plica.codegen.llvm import toolchain
from plica.search.accel.cycles import machine_name
from plica.search.accel.layers import recorded, tuned_layers
from plica.search.record.source import RecordSource
from plica.search.target import Tuning


def _fingerprint(target: AccelTarget) -> str:
    return machine_name(target.machine)


def _compilers() -> tuple[tuple[str, str], ...]:
    return (("llvm", toolchain.llvm_version()),)


def _known(database: RecordSource, target: AccelTarget) -> Any:  # Any: a function of its layers
    return partial(recorded, database, target.machine)


ACCEL: Final = Tuning(_fingerprint, _compilers, whole=tuned_layers, known=_known)
