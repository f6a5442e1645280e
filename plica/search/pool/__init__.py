"""pool: measuring and running on other machines, over Dask."""

from plica.search.pool.address import Certificates, PoolError
from plica.search.pool.device import Device
from plica.search.pool.measurer import PoolMeasurer
from plica.search.pool.remote import Remote, RemoteExecutable, connect

__all__ = [
    "Certificates",
    "Device",
    "PoolError",
    "PoolMeasurer",
    "Remote",
    "RemoteExecutable",
    "connect",
]
