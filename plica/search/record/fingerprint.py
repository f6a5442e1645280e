"""Fingerprints: machines and compilers, as the short texts that records carry.

Two machines have one fingerprint if the same code runs on both and schedules are chosen alike: the
processor, its features, its vectors, its caches, and how many cores work together.

>>> from plica.codegen.target import Target
>>> fingerprint(Target("cpu", "x86_64-unknown-linux-gnu", "generic")).startswith("cpu-x86_64-")
True
"""

from __future__ import annotations

import hashlib
import json
from importlib import import_module

from attrs import asdict

from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import version as nvrtc_version
from plica.codegen.llvm import toolchain
from plica.codegen.target import Target


def fingerprint(target: Target | GpuTarget) -> str:
    """A machine as a short text that tells it from others."""
    if isinstance(target, GpuTarget):
        known = json.dumps([target.architecture, asdict(target.gpu)], sort_keys=True)
        return f"cuda-{target.architecture}-{hashlib.sha256(known.encode()).hexdigest()[:16]}"
    facts = [
        target.triple,
        target.cpu,
        sorted(target.features),
        target.vector_bits,
        target.vector_registers,
        [target.cache(level) for level in (1, 2, 3)],
        target.cores,
    ]
    whole = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return f"{target.name}-{target.architecture}-{target.cpu}-{target.cores}-{whole[:16]}"


def versions(target: Target | GpuTarget | None = None) -> tuple[tuple[str, str], ...]:
    """What made the code that was measured."""
    whole = import_module(__name__.partition(".")[0])  # the face, of which only this is asked
    if isinstance(target, GpuTarget):
        found = ".".join(map(str, nvrtc_version() or ()))
        return (("nvrtc", found), ("plica", str(whole.__version__)))
    return (("llvm", toolchain.llvm_version()), ("plica", str(whole.__version__)))
