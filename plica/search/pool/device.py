"""Devices: the properties of a pool's worker, and the work done on it."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Final

from attrs import evolve, frozen

from plica.codegen.backend import AnyTarget
from plica.codegen.llvm import toolchain
from plica.runtime import archive
from plica.runtime.artefact import from_members
from plica.runtime.error import Diagnostic
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from plica.runtime.port import Array
from plica.search.measure.build import target_of
from plica.search.measure.job import MeasureJob
from plica.search.measure.local import LocalMeasurer
from plica.search.measure.outcome import TrialLimits
from plica.search.pool.address import PoolError
from plica.search.target import fingerprint

PLACE: Final = "plica"
PLACES: Final = 2  # one candidate is built while another one is timed


@frozen
class PoolDevice:
    """A worker: where it is, the machine it runs on, and how many jobs it has."""

    address: str
    target: str
    busy: int


def resources() -> dict[str, float]:
    """The resources of a worker on this machine: code for all of its cores, or for one."""
    whole = toolchain.host()
    names = [PLACE, *{fingerprint(evolve(whole, cores=each)): None for each in (1, whole.cores)}]
    return dict.fromkeys(names, float(PLACES))


def devices_of(workers: dict[str, Any]) -> tuple[PoolDevice, ...]:  # Any: what a scheduler tells
    """The devices among the workers that a scheduler knows."""
    found = []
    for address in sorted(workers):
        offers = workers[address].get("resources", {})
        targets = sorted(name for name in offers if name != PLACE)
        counts = workers[address].get("metrics", {}).get("task_counts", {})
        busy = int(counts.get("executing", 0))
        found += [PoolDevice(address, target, busy) for target in targets if PLACE in offers]
    return tuple(found)


@lru_cache(maxsize=2)
def _measurer(limits: str, target: AnyTarget) -> LocalMeasurer:
    return LocalMeasurer(target, TrialLimits.from_json(limits), builders=1)


def perform(job: str, limits: str, target: str) -> str:
    """Measure a job on this machine, whose fingerprint must be the one meant."""
    given = MeasureJob.from_json(job)
    (outcome,) = _measurer(limits, _machine(given, target)).outcomes([given])
    return outcome.to_json()


def perform_final(jobs: tuple[str, ...], limits: str, target: str, rounds: int) -> tuple[str, ...]:
    """Times several jobs alternately on this machine."""
    given = [MeasureJob.from_json(job) for job in jobs]
    measurer = _measurer(limits, _machine(given[0], target))
    return tuple([outcome.to_json() for outcome in measurer.final_outcomes(given, rounds)])


def _machine(of: MeasureJob, target: str) -> AnyTarget:
    machine = target_of(of)
    if fingerprint(machine) != target:
        message = "A job for another kind of machine was sent here."
        raise PoolError(Diagnostic("other-machine", message, None, target, str(machine)))
    return machine


_loaded: dict[str, Executable] = {}
_MAX_CACHED_ARTEFACTS: Final = 8


def call(
    artefact: bytes, args: tuple[Array, ...], named: dict[str, Array]
) -> Array | tuple[Array, ...]:
    """Runs an artefact on this machine; the last few are cached."""
    digest = hashlib.sha256(artefact).hexdigest()
    if digest not in _loaded:
        while len(_loaded) >= _MAX_CACHED_ARTEFACTS:
            del _loaded[next(iter(_loaded))]
        _loaded[digest] = executable(from_members(archive.unpack(artefact)))
    return _loaded[digest](*args, **named)


def kept(artefact: bytes) -> bytes:
    """The uploaded artefact, unchanged: a pool that loses it can recompute it."""
    return artefact
