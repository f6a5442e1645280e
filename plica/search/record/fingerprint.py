"""Fingerprints: machines and compilers, as the short texts that records carry.

Two machines have one fingerprint if the same code runs on both and schedules are chosen alike: of
processors these are the features, vectors, caches, and how many cores work together.

>>> from plica.codegen.backend import find_target
>>> fingerprint(find_target("cpu triple=x86_64-unknown-linux-gnu")).startswith("cpu-x86_64-")
True
"""

from __future__ import annotations

from plica.codegen.backend import AnyTarget, find_target
from plica.runtime.artefact import version
from plica.runtime.late import late

_tuning_of = late("plica.search.target:tuning_of")  # its record speaks of those that records keep


def fingerprint(target: AnyTarget) -> str:
    """A machine as a short text that tells it from others."""
    return str(_tuning_of(target).fingerprint(target))


def versions(target: AnyTarget | None = None) -> tuple[tuple[str, str], ...]:
    """What made the code that was measured."""
    made: tuple[tuple[str, str], ...] = _tuning_of(target or find_target("cpu")).compilers()
    return (*made, ("plica", version()))
