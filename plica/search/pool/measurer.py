"""The measurer of a pool: points are tried on whatever devices have the right machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from plica.codegen.backend import AnyTarget, backend_of, find_target
from plica.runtime.error import Diagnostic, PlicaError
from plica.search.measure.job import SpaceWork, job_of
from plica.search.measure.local import Arrived
from plica.search.measure.outcome import Measured, Outcome, TrialLimits, failed, measured
from plica.search.pool.address import Certificates, PoolError, checked, need_dask
from plica.search.pool.device import PoolDevice, devices_of, perform, perform_final
from plica.search.space import Point, Space
from plica.search.target import fingerprint

if TYPE_CHECKING:
    from distributed import Client, Future

DEVICE_TIMEOUT_SECONDS: Final = 120.0  # seconds to wait for a device of the right kind to come back
GLANCE: Final = 2.0  # seconds between looks at which devices there are
CONNECTING: Final = 10.0  # seconds in which a pool answers that is there at all


def client_of(address: str, certificates: Certificates | None) -> Client:
    """A connection to a pool."""
    whole = checked(address, certificates)
    need_dask()
    from distributed import Client

    security = None if certificates is None else certificates.security()
    try:
        return Client(whole, security=security, timeout=CONNECTING, set_as_default=False)
    except (OSError, TimeoutError) as error:
        message, hint = "The pool does not answer.", "Is it running?  plica pool start"
        found = f"{whole}: {error}"[:300]
        raise PoolError(Diagnostic("pool-failed", message, None, None, found, hint)) from error


def devices(client: Client) -> tuple[PoolDevice, ...]:
    """The devices of a pool now."""
    told = client.scheduler_info(n_workers=-1)
    if "workers" not in told:  # the client has given up
        raise lost_pool(client)
    return devices_of(told["workers"])


def lost_pool(client: Client) -> PoolError:
    """The error for a pool whose scheduler is gone."""
    message, hint = "The pool was lost.", "Start it again (plica pool start), then connect again."
    found = str(getattr(client, "_start_arg", client))[:300]
    return PoolError(Diagnostic("pool-failed", message, None, None, found, hint))


class PoolMeasurer:
    """A measurer on the devices of a pool."""

    def __init__(  # an address, and what is usual
        self,
        address: str,
        target: AnyTarget | None = None,
        limits: TrialLimits | None = None,
        certificates: Certificates | None = None,
        patience: float = DEVICE_TIMEOUT_SECONDS,
    ) -> None:
        self.limits = limits or TrialLimits()
        here = find_target("cpu")
        self.target = target or backend_of(here).with_threads(here, self.limits.threads)
        self._name = fingerprint(self.target)
        self._patience = patience
        self._client = client_of(address, certificates)

    def measure(
        self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]:
        """The outcomes of points, in order; `arrived` is called with each as soon as it is
        known."""
        self._check_devices()
        places: dict[str, list[int]] = {}
        texts: dict[str, str] = {}
        limits = self.limits.to_json()
        for number, point in enumerate(points):
            text = job_of(task, space, point, self.target).to_json()
            key = f"plica-{hashlib.sha256((limits + text).encode()).hexdigest()}"
            places.setdefault(key, []).append(number)
            texts[key] = text
        futures = {
            self._client.submit(
                perform, text, limits, self._name, key=key, resources={self._name: 1.0}
            ): key
            for key, text in texts.items()
        }
        found: dict[int, Measured] = {}
        waited = monotonic()
        while futures:
            for future in self._done(futures):
                outcome = outcome_of(future)
                for number in places[futures.pop(future)]:
                    found[number] = measured(points[number], outcome)
                    if arrived is not None:
                        arrived(found[number])
                future.release()
                waited = monotonic()
            if any(device.target == self._name for device in devices(self._client)):
                waited = monotonic()
            elif monotonic() - waited > self._patience:
                self._client.cancel(list(futures))
                self._check_devices()
        return tuple([found[number] for number in range(len(points))])

    def finals(
        self, task: SpaceWork, space: Space, points: Sequence[Point], rounds: int = 0
    ) -> tuple[Measured, ...]:
        """The times of valid points, measured alternately on one device."""
        from distributed import KilledWorker

        if not points:
            return ()
        self._check_devices()
        jobs = tuple([job_of(task, space, point, self.target).to_json() for point in points])
        given = (perform_final, jobs, self.limits.to_json(), self._name, rounds)
        future = self._client.submit(*given, pure=False, resources={self._name: 1.0})
        try:
            outcomes = [Outcome.from_json(each) for each in future.result()]
        except KilledWorker:
            lost = failed("crash", "pool", "Every worker that was given this trial died.", {})
            outcomes = [lost] * len(points)
        except CancelledError as error:
            raise lost_pool(self._client) from error
        return tuple([measured(p, outcome) for p, outcome in zip(points, outcomes, strict=True)])

    def _done(self, futures: Iterable[Future[str]]) -> list[Future[str]]:
        """The completed futures, waiting for a limited time."""
        from distributed import wait

        waiting = list(futures)
        try:
            with self._client.as_current():
                wait(waiting, timeout=GLANCE, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return []
        return [each for each in waiting if each.done()]

    def _check_devices(self) -> None:
        known = sorted({device.target for device in devices(self._client)})
        if self._name not in known:
            message = "The pool has no device of the kind that is to be measured."
            found = ", ".join(known) or "no devices"
            hint = "Start one there: plica pool worker ADDRESS"
            raise PoolError(Diagnostic("pool-failed", message, None, self._name, found, hint))

    def close(self) -> None:
        """Disconnects from the pool, which continues."""
        self._client.close()

    def __enter__(self) -> PoolMeasurer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def outcome_of(future: Future[str]) -> Outcome:
    """The outcome of a job, or the error that it killed every worker."""
    from distributed import KilledWorker

    if future.status in ("cancelled", "lost"):
        raise lost_pool(future.client)
    error: Any = future.exception() if future.status == "error" else None
    if error is None:
        return Outcome.from_json(future.result())
    if isinstance(error, KilledWorker):
        return failed("crash", "pool", "Every worker that was given this trial died.", {})
    if isinstance(error, PlicaError):
        return failed("refused", "pool", error.diagnostics[0].message, {})
    raise error
