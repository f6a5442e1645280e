"""Serving: the processes of a pool, which run until they are stopped.

A scheduler hands out work to one worker for each device, which a nanny restarts when it dies.
Neither serves web pages, which would be a way in without TLS.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from plica.runtime.error import Diagnostic
from plica.search.pool.address import Certificates, PoolError, checked, need_dask
from plica.search.pool.device import PLACES, resources

NO_PAGES: Final = "127.0.0.1:0"  # Dask opens a port for pages in any case: none has a route

SETTINGS: Final = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.work-stealing": True,
}


def serve_scheduler(
    host: str, port: int, certificates: Certificates | None, say: Callable[[str], None]
) -> None:
    """Run the scheduler of a pool; its address is said when it can be reached."""
    whole = checked(f"{host}:{port}", certificates)
    need_dask()
    import dask
    from distributed import Scheduler

    protocol = whole.partition("://")[0]
    security = None if certificates is None else certificates.security()

    async def run() -> None:
        with dask.config.set(SETTINGS):
            async with Scheduler(
                host=host,
                port=port,
                protocol=protocol,
                security=security,
                dashboard=False,
                dashboard_address=NO_PAGES,
            ) as scheduler:
                say(scheduler.address)
                await _until_told(scheduler.finished)

    hint = "Another pool may have the port: give another, or --port 0 for any that is free."
    with _started("The scheduler cannot listen there.", whole, hint):
        asyncio.run(run())


def serve_worker(
    address: str, certificates: Certificates | None, say: Callable[[str], None]
) -> None:
    """Runs a pool worker on this machine until the scheduler is gone."""
    whole = checked(address, certificates)
    need_dask()
    import dask
    from distributed import Nanny

    security = None if certificates is None else certificates.security()
    local = whole.startswith("tcp://")  # only loopback is reached so

    async def run() -> None:
        with dask.config.set(SETTINGS):
            async with Nanny(
                whole,
                nthreads=PLACES,
                resources=resources(),
                security=security,
                memory_limit=0,
                host="127.0.0.1" if local else None,
                dashboard_address=NO_PAGES,
                silence_logs=40,
            ) as nanny:
                say(f"{nanny.worker_address} {' '.join(resources())}")
                await _until_told(nanny.finished)

    hint = "Is it running?  plica pool start"
    with _started("The pool does not answer.", whole, hint):
        asyncio.run(run())


@contextmanager
def _started(message: str, address: str, hint: str) -> Iterator[None]:
    """Reports why a Dask process cannot start."""
    try:
        yield
    except (RuntimeError, OSError, TimeoutError) as error:
        cause = error.__cause__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, OSError | TimeoutError):
            raise
        found = f"{address}: {cause}"[:300]
        raise PoolError(Diagnostic("pool-failed", message, None, None, found, hint)) from error


async def _until_told(finished: Callable[[], Awaitable[Any]]) -> None:
    """Waits until it ends or a signal arrives."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for stop in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(stop, told.set)
    waits = [asyncio.ensure_future(finished()), asyncio.ensure_future(told.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
