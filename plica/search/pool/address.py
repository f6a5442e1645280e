"""Addresses: where a pool is, and whether one may go there.

A pool executes code for its clients, so networks are crossed with TLS only: both sides need a
certificate from one authority. Without certificates a pool serves only this machine.

>>> checked("tcp://127.0.0.1:8786", None)
'tcp://127.0.0.1:8786'
>>> checked("tls://lab:8786", Certificates("ca.pem", "me.pem", "me.key"))
'tls://lab:8786'
>>> try:
...     checked("lab:8786", None)
... except PoolError as error:
...     print(error.code)
insecure-pool
"""

from __future__ import annotations

import ipaddress
import ssl
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attrs import frozen

from plica.runtime.error import Diagnostic, PlicaError, wrong_argument

if TYPE_CHECKING:
    from distributed import Security


class PoolError(PlicaError):
    """A pool is unreachable, refuses access, or lacks the requested resources."""


@frozen
class Certificates:
    """Files: who is believed, who one is, and the key that proves it."""

    authority: str
    own: str
    key: str

    def context(self) -> ssl.SSLContext:
        """What this side shows and believes; refused where the files are no certificates."""
        try:
            context = ssl.create_default_context(cafile=self.authority)
            context.load_cert_chain(self.own, self.key)
        except OSError as error:
            message = "The certificates cannot be used."
            hint = "An authority, a certificate that it signed, and the key of that."
            found = f"{self}: {error}"[:300]
            raise PoolError(Diagnostic("pool-failed", message, None, None, found, hint)) from error
        return context

    def security(self) -> Security:
        """Dask's security settings; every connection is encrypted."""
        from distributed import Security

        self.context()  # Dask would say late, and not well, what is wrong with them
        return Security(
            require_encryption=True,
            tls_ca_file=self.authority,
            tls_client_cert=self.own,
            tls_client_key=self.key,
            tls_scheduler_cert=self.own,
            tls_scheduler_key=self.key,
            tls_worker_cert=self.own,
            tls_worker_key=self.key,
        )


def need_dask() -> None:
    """Refuse where Dask, which runs a pool, is not installed."""
    if find_spec("distributed") is None:
        message, hint = "Dask is not installed.", "pip install 'plica[pool]'"
        raise PoolError(Diagnostic("missing-tool", message, suggestion=hint))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, reached without a network.

    >>> [is_loopback(each) for each in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "lab")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_port(text: str) -> bool:
    """Whether a text is the number of a TCP port.

    >>> [is_port(each) for each in ("8786", "0", "65536", "²", "-1", "")]
    [True, True, False, False, False, False]
    """
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 1 << 16


def checked(address: str, certificates: Certificates | None) -> str:
    """The address in full; refused where it would be reached over a network without TLS."""
    if not isinstance(address, str):
        raise wrong_argument("The address of a pool is a text.", "host:port", address)
    protocol, found, place = address.rpartition("://")
    if not found:
        protocol = "tcp" if certificates is None else "tls"
    host, _, port = place.rpartition(":")
    if not host or not is_port(port):
        message = "The address of a pool has no host, or no port from 0 to 65535."
        raise PoolError(Diagnostic("pool-failed", message, None, "host:port", address))
    whole = f"{protocol}://{place}"
    if protocol not in ("tcp", "tls"):
        message = "There is no such way to reach a pool."
        raise PoolError(Diagnostic("pool-failed", message, None, "tcp:// or tls://", whole))
    if protocol == "tls" and certificates is None:
        message = "A pool with TLS is reached with certificates only."
        hint = "Give --tls-ca, --tls-cert and --tls-key."
        raise PoolError(Diagnostic("insecure-pool", message, None, "certificates", whole, hint))
    if protocol == "tcp" and (certificates is not None or not is_loopback(host)):
        message = "A pool on another machine is reached with TLS only."
        expected = "certificates, and an address that begins with tls://"
        hint = "Give --tls-ca, --tls-cert and --tls-key."
        raise PoolError(Diagnostic("insecure-pool", message, None, expected, whole, hint))
    return whole
