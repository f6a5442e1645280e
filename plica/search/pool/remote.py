"""Remote: an artefact run on a device of a pool, as if it were here.

remote = plica.connect("tls://lab:8786", certificates)
there = remote.upload(exe)              an executable, the path of an artefact, or its bytes
y = there(x)                            arrays go there, arrays come back
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import CancelledError
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.runtime import archive
from plica.runtime.artefact import from_members, to_members
from plica.runtime.error import Diagnostic, wrong_argument
from plica.runtime.executable import Executable
from plica.runtime.foreign_tensor import settled
from plica.runtime.port import Array, Port
from plica.search.pool.address import Certificates, PoolError
from plica.search.pool.device import PLACE, PoolDevice, call, kept
from plica.search.pool.measurer import DEVICE_TIMEOUT_SECONDS, GLANCE, client_of, devices, lost_pool
from plica.search.pool.served import PROTOCOL, ServedMachine

if TYPE_CHECKING:
    from distributed import Client, Future


CERTIFICATES: Final = {"authority", "own", "key"}


def connect(
    address: str, certificates: Certificates | Mapping[str, str] | None = None
) -> Remote | ServedMachine:
    """A pool, reached with TLS unless it is on this machine; `plica://host:port` is one machine
    that `plica-server` runs on.

    The certificates are three files: `authority`, `own` and `key`.
    """
    if certificates is not None and not isinstance(certificates, Certificates):
        given: object = certificates
        if not isinstance(given, Mapping) or set(given) != CERTIFICATES:
            message, expected = "Certificates are three files.", ", ".join(sorted(CERTIFICATES))
            raise wrong_argument(message, f"a mapping of {expected} to paths", certificates)
        certificates = Certificates(**certificates)
    if str(address).startswith(PROTOCOL):
        return ServedMachine(address, certificates)
    return Remote(client_of(address, certificates))


class Remote:
    """A connection to a pool."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def devices(self) -> tuple[PoolDevice, ...]:
        """The devices of the pool now."""
        return devices(self._client)

    def upload(
        self, what: Executable | str | os.PathLike[str] | bytes, target: str = PLACE
    ) -> RemoteExecutable:
        """Send an artefact; it runs on any device, or on those with one fingerprint."""
        if isinstance(what, Executable):
            data = archive.pack(to_members(what.artefact))
        else:
            data = what if isinstance(what, bytes) else archive.pack(archive.read(what))
        interface = from_members(archive.unpack(data)).interface
        found_devices = self.devices
        offered = {PLACE, *[device.target for device in found_devices]} if found_devices else set()
        if target not in offered:
            message = "The pool has no device that could run the artefact."
            found = ", ".join(sorted(offered - {PLACE})) or "no devices"
            hint = "Start one there: plica pool worker ADDRESS"
            raise PoolError(Diagnostic("pool-failed", message, None, target, found, hint))
        held = self._client.submit(kept, data, resources={target: 1.0})
        return RemoteExecutable(self._client, held, interface.inputs, interface.outputs, target)

    def close(self) -> None:
        """Leave the pool."""
        self._client.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RemoteExecutable:
    """An artefact in a pool: `there(x, y)` or `there(name=x)`, like an executable."""

    def __init__(  # where it is and what it takes
        self,
        client: Client,
        held: Future[bytes],
        inputs: tuple[Port, ...],
        outputs: tuple[Port, ...],
        target: str,
    ) -> None:
        self._client, self._held, self._target = client, held, target
        self.inputs, self.outputs = inputs, outputs

    def __call__(self, /, *args: object, **named: object) -> Array | tuple[Array, ...]:
        """Runs it remotely; remote refusals are raised here."""
        from distributed import KilledWorker

        given = tuple([_array(arg) for arg in args])
        words = {name: _array(each) for name, each in named.items()}
        future = self._client.submit(
            call, self._held, given, words, pure=False, resources={self._target: 1.0}
        )
        try:
            found: Any = self._result(future)
        except KilledWorker as error:
            message = "Every device that ran the artefact died of it."
            raise PoolError(Diagnostic("pool-failed", message, None, None, str(error))) from error
        except CancelledError as error:
            raise lost_pool(self._client) from error
        return found if isinstance(found, np.ndarray) else tuple(found)

    def _result(self, future: Future[Any]) -> Any:
        """The result of a device; raises if the pool has had no device for a while."""
        seen = monotonic()
        while True:
            try:
                return future.result(timeout=GLANCE)
            except TimeoutError:
                if future.done():
                    raise  # the model's own
            if any(self._target in (PLACE, device.target) for device in devices(self._client)):
                seen = monotonic()
            elif monotonic() - seen > DEVICE_TIMEOUT_SECONDS:
                future.cancel()
                message, hint = "The pool has no device left.", "plica pool worker ADDRESS"
                raise PoolError(
                    Diagnostic("pool-failed", message, None, self._target, "no devices", hint)
                )


def _array(given: Any) -> Any:
    """Tensors of other libraries become numpy arrays for transport; tuples stay tuples."""
    if isinstance(given, tuple):
        return tuple([_array(each) for each in given])
    return np.from_dlpack(settled(given)) if hasattr(given, "__dlpack__") else np.asarray(given)
