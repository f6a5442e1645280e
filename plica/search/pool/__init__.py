"""pool: measuring and running on other machines, over Dask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Certificates", "PoolDevice", "PoolError", "PoolMeasurer", "Remote", "RemoteExecutable",
    "connect",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.search.pool.address import Certificates, PoolError
    from plica.search.pool.device import PoolDevice
    from plica.search.pool.measurer import PoolMeasurer
    from plica.search.pool.remote import Remote, RemoteExecutable, connect
else:
    lazily(__name__)
