"""Served machines: models run on a machine without Python, by the program `plica-server`.

plica pool server plica-server --target aarch64         makes the program, to be copied there
remote = plica.connect("plica://127.0.0.1:9190")        reaches it, by a tunnel if it is far
there = remote.upload(exe)
y = there(x)                                            as an executable that is here
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from plica.runtime import archive
from plica.runtime.artefact import Artefact, from_members
from plica.runtime.cross import CROSS, linked_program
from plica.runtime.device_executable import DeviceExecutable, DeviceKind
from plica.runtime.emulated import EmulatedModel, check_tool
from plica.runtime.error import (
    ArtefactError,
    Diagnostic,
    EvaluationError,
    UnsupportedError,
    wrong_argument,
)
from plica.runtime.executable import Executable, export_library
from plica.runtime.interface import dims_of
from plica.runtime.link import architecture
from plica.search.pool.address import PoolError, is_loopback, is_port
from plica.search.pool.device import PoolDevice

if TYPE_CHECKING:
    from plica.search.pool.address import Certificates

PROTOCOL: Final = "plica://"
SOURCE: Final = Path(__file__).with_name("server.c")
_MAGIC: Final = b"plicasrv"
_VERSION: Final = 2
_BUSY: Final = 6
_PROGRAM, _RUN = 1, 2
_CONNECT_SECONDS: Final = 10.0
_STALL_SECONDS: Final = 30.0  # seconds without progress until the other side is gone
_CHUNK: Final = 1 << 20
_NUMBER: Final = struct.calcsize("<Q")
_NAMES: Final = {"armv7l": "armv7", "armv8l": "armv7", "amd64": "x86_64", "arm64": "aarch64"}
"""Architecture names of kernels that differ from LLVM's."""


def build_server(path: str | os.PathLike[str], target: str = "") -> None:
    """Write the program, for this machine or another kind of Linux machine."""
    place = archive.destination(path)
    wanted = target or architecture()
    if wanted not in CROSS:
        message, expected = f"No server is made for {wanted!r}.", ", ".join(CROSS)
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, wanted))
    tools = CROSS[wanted]
    compiler = "cc" if wanted == architecture() else tools.compiler
    check_tool(compiler, tools.package)
    with tempfile.TemporaryDirectory(prefix="plica-") as folder:
        made = Path(folder) / "server"
        done = subprocess.run(
            [compiler, "-std=gnu11", "-O2", "-static", "-o", made, SOURCE],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            message = "The C compiler could not make the server."
            found = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise UnsupportedError(Diagnostic("missing-tool", message, None, "cc", found))
        shutil.copy(made, place)


class ServedMachine:
    """A connection to a machine that `plica-server` runs on."""

    def __init__(self, address: str, certificates: Certificates | None = None) -> None:
        host, port = _place(address, certificates)
        trust = None if certificates is None else certificates.context()
        self._lock = Lock()
        try:
            self._link = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
            if trust is not None:
                self._link = trust.wrap_socket(self._link, server_hostname=host)
            _check_version(address, self._take(16))
            status, seconds = struct.unpack("<2Q", self._take(16))
            name = self._take(16).rstrip(b"\0").decode("ascii", "replace")
        except ssl.SSLError as error:  # before what it is a kind of
            hint = "One authority signs both sides, and a server's certificate names its host."
            raise _failed("There is no trust by TLS.", f"{address}: {error}", hint) from error
        except (OSError, UnicodeError) as error:  # a host's name may be no name at all
            hint = "Is it running there?  ./plica-server"
            raise _failed("The server does not answer.", f"{address}: {error}", hint) from error
        if status:
            message = "The server takes no further connection."
            hint = (
                "Close one first: remote.close()." if status == _BUSY else "Its /tmp may be full."
            )
            raise _failed(message, address, hint)
        self._run_seconds = seconds + _STALL_SECONDS if seconds else None
        self.machine = _NAMES.get(name, name)
        self.devices = (PoolDevice(address, self.machine, 0),)

    def upload(self, what: Executable | str | os.PathLike[str] | bytes) -> ServedExecutable:
        """Send a model: an executable, the path of an artefact, or its bytes."""
        if isinstance(what, Executable):
            artefact = what.artefact
        else:
            members = archive.unpack(what) if isinstance(what, bytes) else archive.read(what)
            artefact = from_members(members)
        if artefact.machine.architecture != self.machine or artefact.device is not None:
            message = "The artefact is for another kind of machine than the one that answers."
            hint = f"Compile it for that: target='cpu:{self.machine}'."
            found = str(artefact.machine)
            raise ArtefactError(
                Diagnostic("other-machine", message, None, self.machine, found, hint)
            )
        if dims := dims_of(artefact.interface):
            message = "Models of open sizes are not sent to a server."
            named = ", ".join(dim.name for dim in dims)
            raise UnsupportedError(
                Diagnostic("unsupported", message, None, "numbers", named, "Give it its sizes.")
            )
        number = self.asked(_PROGRAM, linked_program(artefact), _NUMBER)
        return ServedExecutable(artefact, ServedModel(artefact, self, number))

    def asked(self, kind: int, data: bytes, largest: int) -> bytes:
        """The server's answer, of at most `largest` bytes; its errors are raised here.

        An interrupted exchange closes the connection: its answer would be taken for the next.
        """
        with self._lock:
            try:
                status, answer = self._exchange(kind, data, largest)
            except BaseException as error:
                self.close()
                if isinstance(error, OSError):
                    hint = "Connect again: plica.connect(address)."
                    raise _failed("The server was lost.", str(error), hint) from error
                raise
        if status:
            raise _refused(status, int.from_bytes(answer, "little"))
        return answer

    def _exchange(self, kind: int, data: bytes, largest: int) -> tuple[int, bytes]:
        self._link.settimeout(_STALL_SECONDS)
        self._link.sendall(struct.pack("<2Q", kind, len(data)))
        for start in range(0, len(data), _CHUNK):  # the limit of time is one chunk's
            self._link.sendall(memoryview(data)[start : start + _CHUNK])
        self._link.settimeout(self._run_seconds)
        status, size = struct.unpack("<2Q", self._take(16))
        self._link.settimeout(_STALL_SECONDS)
        if size > (_NUMBER if status else largest):
            raise ConnectionAbortedError(f"it answers {size} bytes where {largest} are expected")
        return status, self._take(size)

    def close(self) -> None:
        """Disconnects; the server forgets uploaded data."""
        self._link.close()

    def __enter__(self) -> ServedMachine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _take(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            if not (more := self._link.recv(min(size - len(parts), _CHUNK))):
                raise ConnectionResetError(f"it ended after {len(parts)} of {size} bytes")
            parts += more
        return bytes(parts)


class ServedModel(EmulatedModel):
    """A model on a served machine."""

    def __init__(self, artefact: Artefact, machine: ServedMachine, number: bytes) -> None:
        super().__init__(artefact, lambda: b"", (machine.machine,), "")
        self._machine, self._number, self.repeats = machine, number, 1

    def _answer(self, given: bytes) -> bytes:
        head = self._number + self.repeats.to_bytes(8, "little")
        return self._machine.asked(_RUN, head + given, self.answer_bytes)


class ServedExecutable(DeviceExecutable):
    """A model on a served machine, called like one that is here."""

    def __init__(self, artefact: Artefact, program: ServedModel) -> None:
        super().__init__(artefact, {}, DeviceKind(lambda _: program, export=export_library))
        self._served = program

    def seconds(self, /, *args: object, repeats: int = 10, **named: object) -> float:
        """The shortest time of a given number of runs there."""
        if type(repeats) is not int or not 0 < repeats < 1 << 63:
            raise wrong_argument("The number of runs is a whole number.", "1 or more", repeats)
        self._served.repeats = repeats
        try:
            self(*args, **named)
        finally:
            self._served.repeats = 1
        return self._served.note * 1e-9


def _place(address: str, certificates: Certificates | None) -> tuple[str, int]:
    """Host and port; a network is crossed with TLS only."""
    host, _, port = address.removeprefix(PROTOCOL).rpartition(":")
    if not host or not is_port(port):
        raise _failed("A server is reached by host and port.", address, "plica://127.0.0.1:9190")
    if certificates is None and not is_loopback(host):
        message = "A server on another machine is reached by a tunnel or with TLS only."
        hint = "ssh -L 9190:127.0.0.1:9190 HOST, or stunnel there and certificates here."
        raise PoolError(Diagnostic("insecure-pool", message, None, "127.0.0.1", address, hint))
    return host.strip("[]"), int(port)


def _check_version(address: str, greeting: bytes) -> None:
    if greeting[:8] != _MAGIC:
        message, hint = "What answers is no plica-server.", "Is the port right?"
        raise _failed(message, f"{address}: {greeting!r}", hint)
    version = int.from_bytes(greeting[8:], "little")
    if version != _VERSION:
        message = f"The plica-server is of version {version}; this Plica needs {_VERSION}."
        hint = "Make it again and copy it there: plica pool server plica-server"
        raise _failed(message, address, hint)


def _failed(message: str, found: str, hint: str | None = None) -> PoolError:
    return PoolError(Diagnostic("pool-failed", message, None, None, found[:300], hint))


def _refused(status: int, value: int) -> EvaluationError | PoolError:
    """The error of a status."""
    match status:
        case 2:
            message = "There is not enough memory on the served machine."
            return EvaluationError(Diagnostic("no-memory", message, None, "more", f"{value} bytes"))
        case 3:
            message = "The model died on the served machine."
            return EvaluationError(Diagnostic("device-fault", message, found=f"signal {value}"))
        case 4:
            message = f"The model took longer than {value} s on the served machine."
            hint = "Start the server with more time: plica-server --seconds N"
            return EvaluationError(Diagnostic("device-fault", message, suggestion=hint))
        case 5:
            message = "The model could not be started on the served machine."
            hint = "Is its processor of that kind?  Otherwise: plica-server --runner qemu-…"
            return EvaluationError(
                Diagnostic("device-fault", message, None, None, f"status {value}", hint)
            )
        case _:
            return _failed("The server does not know what it was asked for.", f"status {status}")
