"""Fingerprints: machines and compilers, as the short texts that records carry.

Two machines have one fingerprint if the same code runs on both and schedules are chosen alike: of
processors these are the features, vectors, caches, and how many cores work together.

>>> from plica.codegen.backend import find_target
>>> fingerprint(find_target("cpu triple=x86_64-unknown-linux-gnu")).startswith("cpu-x86_64-")
True
"""

from __future__ import annotations

from importlib import import_module

from plica.codegen.backend import AnyTarget, find_target
from plica.search.target import tuning_of


def fingerprint(target: AnyTarget) -> str:
    """A machine as a short text that tells it from others."""
    return tuning_of(target).fingerprint(target)


def versions(target: AnyTarget | None = None) -> tuple[tuple[str, str], ...]:
    """What made the code that was measured."""
    whole = import_module(__name__.partition(".")[0])  # the face, of which only this is asked
    made = tuning_of(target or find_target("cpu")).compilers()
    return (*made, ("plica", str(whole.__version__)))
