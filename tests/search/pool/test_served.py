"""`plica-server`: models on machines without Python, natively and in QEMU's user mode."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest
from attrs import evolve

import plica
from plica.runtime.cross import CROSS
from plica.runtime.error import (
    ArtefactError,
    EvaluationError,
    InputError,
    OutputError,
    PlicaError,
    UnsupportedError,
)
from plica.runtime.link import architecture
from plica.search.pool import served
from plica.search.pool.address import Certificates, PoolError
from plica.search.pool.served import ServedMachine, build_server

HEAD = """
import plica
from plica import op
from plica.script import Tensor, f32, i32
@plica.function
"""
MODEL = f"""{HEAD}
def main(x: Tensor[(5, 12), f32], i: Tensor[(2,), i32]) -> Tensor[(2, 12), f32]:
    return op.take(op.nn.softmax(x), i, axis=0)
"""
X = np.linspace(-3, 3, 60, dtype="f4").reshape(5, 12)
has_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")


@contextmanager
def running(program: Path, *words: str, by: tuple[str, ...] = ()) -> Iterator[str]:
    command = [*by, str(program), "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("server") / "plica-server"
    build_server(path)
    return path


@has_cc
def test_a_model_runs_there_and_what_it_refuses_is_told(program: Path) -> None:
    module = plica.from_text(MODEL)
    made = plica.compile(module, target="cpu", threads=1, cache=False)
    with running(program) as address, plica.connect(address) as remote:
        assert isinstance(remote, ServedMachine)
        assert [each.target for each in remote.devices] == [architecture()]
        there = remote.upload(made)
        rows = np.array([4, 0], "i4")
        np.testing.assert_array_equal(there(X, rows), made(X, rows))
        with pytest.raises(EvaluationError) as error:
            there(X, np.array([0, 99], "i4"))
        assert error.value.diagnostics[0].code == "index-out-of-bounds"
        assert 0 < there.seconds(X, rows, repeats=3) < 60
        other = plica.compile(module, target="cpu:riscv64", cache=False)
        with pytest.raises(ArtefactError) as wrong:
            remote.upload(other)
        assert wrong.value.diagnostics[0].code == "other-machine"


@has_cc
def test_a_model_that_dies_or_stays_ends_neither_the_server_nor_the_connection(
    program: Path,
) -> None:
    with running(program, "--seconds", "2") as address, plica.connect(address) as remote:
        assert isinstance(remote, ServedMachine)
        head = (1).to_bytes(8, "little")
        for script, said in (
            ("kill -SEGV $$", "died"),
            ("trap : ALRM TERM; sleep 9; sleep 9", "longer than 2 s"),
            ("exit 3", "not be started"),
        ):
            number = remote.asked(1, f"#!/bin/sh\n{script}\n".encode(), 8)
            with pytest.raises(EvaluationError, match=said):
                remote.asked(2, number + head, 8)
        with pytest.raises(PoolError, match="does not know"):
            remote.asked(2, (99).to_bytes(8, "little") + head, 8)
        with pytest.raises(PoolError, match="does not know"):
            remote.asked(7, b"", 8)
        number = remote.asked(1, b"#!/bin/sh\nprintf %s-%s $1 $(cat inputs.bin) >outputs.bin\n", 8)
        assert remote.asked(2, number + head + b"in", 8) == b"1-in"


@has_cc
def test_a_server_that_is_lost_is_told(program: Path) -> None:
    made = plica.compile(plica.from_text(MODEL), target="cpu", threads=1, cache=False)
    with running(program) as address:
        remote = ServedMachine(address)
        there = remote.upload(made)
        remote.close()
        with pytest.raises(PoolError, match="lost"):
            there(X, np.array([0, 1], "i4"))
    with pytest.raises(PoolError, match="does not answer"):
        ServedMachine(address)


@pytest.mark.parametrize("kind", ["riscv64", pytest.param("aarch64", marks=pytest.mark.slow)])
def test_a_server_for_another_machine_runs_in_qemu(kind: str, tmp_path: Path) -> None:
    tools = CROSS[kind]
    if not all(map(shutil.which, (tools.compiler, tools.emulator))):
        pytest.skip(f"apt-get install {tools.package}")
    build_server(tmp_path / "server", kind)
    module = plica.from_text(MODEL)
    made = plica.compile(module, target=f"cpu:{kind}", threads=1, cache=False)
    made.save(tmp_path / "m.plica")
    own = running(tmp_path / "server", "--runner", tools.emulator, by=(tools.emulator,))
    with own as address, plica.connect(address) as remote:
        there = remote.upload(tmp_path / "m.plica")
        rows = np.array([4, 0], "i4")
        np.testing.assert_allclose(there(X, rows), plica.interpret(module, X, rows), rtol=1e-5)


def certified(folder: Path, name: str) -> Certificates:
    """A certificate that is its own authority, for this machine."""
    key, own = str(folder / f"{name}.key"), str(folder / f"{name}.pem")
    words = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj"
    )
    more = f"/CN={name} -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {own}"
    subprocess.run([*words.split(), *more.split()], check=True, capture_output=True)
    return Certificates(own, own, key)


def passed_on(of: socket.socket, to: socket.socket) -> None:
    """All that comes from one side, to the other."""
    with suppress(OSError):
        while data := of.recv(1 << 16):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)


@contextmanager
def guarded(address: str, own: Certificates) -> Iterator[str]:
    """What stunnel does: TLS before a server, for those alone whom the authority knows."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=own.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(own.own, own.key)
    host, _, port = address.removeprefix(served.PROTOCOL).rpartition(":")

    def serve() -> None:
        while True:
            try:
                raw, _ = door.accept()
            except OSError:
                return
            with (
                suppress(OSError),
                context.wrap_socket(raw, server_side=True) as peer,
                socket.create_connection((host, int(port))) as inner,
            ):
                back = threading.Thread(target=passed_on, args=(inner, peer))
                back.start()
                passed_on(peer, inner)
                back.join()

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{served.PROTOCOL}127.0.0.1:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@has_cc
@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_a_server_is_reached_by_tls_with_certificates_of_one_authority_alone(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = certified(tmp_path, "ours"), certified(tmp_path, "others")
    made = plica.compile(plica.from_text(MODEL), target="cpu", threads=1, cache=False)
    rows = np.array([4, 0], "i4")
    with running(program) as inner, guarded(inner, ours) as address:
        with plica.connect(address, ours) as remote:
            np.testing.assert_array_equal(remote.upload(made)(X, rows), made(X, rows))
        for wrong in (others, evolve(others, authority=ours.authority)):
            with pytest.raises(PoolError, match="no trust") as refused:
                plica.connect(address, wrong)
            assert refused.value.code == "pool-failed"
        with pytest.raises(PoolError, match="certificates cannot be used"):
            plica.connect(address, evolve(ours, key=str(tmp_path / "none.key")))
        monkeypatch.setattr(served, "_CONNECT_SECONDS", 0.3)
        with pytest.raises(PoolError, match="does not answer"):
            plica.connect(address)
        monkeypatch.undo()
    with running(program) as inner, pytest.raises(PoolError, match="no trust"):
        plica.connect(inner, ours)


def test_addresses_and_machines_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PoolError) as error:
        plica.connect("plica://192.0.2.1:9190")
    assert error.value.code == "insecure-pool"
    for address in ("plica://here", "plica://127.0.0.1:65536", "plica://127.0.0.1:²"):
        with pytest.raises(PoolError, match="host and port"):
            plica.connect(address)
    with pytest.raises(UnsupportedError, match="No server"):
        build_server(tmp_path / "server", "vax")
    with pytest.raises(OutputError, match="no folder"):
        build_server(tmp_path / "none" / "server")


def test_what_is_no_server_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:

        def greet() -> None:
            for greeting in (
                b"HTTP/1.0 400 Bad Request\r\n",
                b"plicasrv" + (1).to_bytes(8, "little"),
            ):
                peer, _ = door.accept()
                with peer:
                    peer.sendall(greeting + bytes(20))

        threading.Thread(target=greet).start()
        for said in ("no plica-server", "version 1; this Plica needs 2"):
            with pytest.raises(PoolError, match=said):
                plica.connect(f"{served.PROTOCOL}127.0.0.1:{door.getsockname()[1]}")


def folders() -> set[Path]:
    """The folders of connections that servers have now."""
    return set(Path("/tmp").glob("plica-server-??????"))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that comes true in a moment."""
    end = monotonic() + 10
    while not condition():
        assert monotonic() < end, "it does not come true"
        sleep(0.01)


def sleepers(mark: str) -> list[str]:
    """The processes whose command line has a mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [path.parent.name] * (mark.encode() in path.read_bytes())
    return found


def request(kind: int, size: int) -> bytes:
    return struct.pack("<2Q", kind, size)


@has_cc
def test_hostile_clients_harm_nobody_else(program: Path) -> None:
    before = folders()
    drawn = np.random.default_rng(7)
    with running(program) as address, plica.connect(address) as remote:
        assert isinstance(remote, ServedMachine)
        port = int(address.rpartition(":")[2])

        def peer() -> socket.socket:
            return socket.create_connection(("127.0.0.1", port), timeout=10)

        half_open = [peer() for _ in range(8)]
        for each in half_open:
            each.sendall(request(1, 1 << 30) + b"the rest never comes")
        for data in (
            b"",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            request(1, (1 << 64) - 1),
            request(2, (1 << 32) - 1),
            request(2, 15) + bytes(15),
            *[drawn.bytes(int(size)) for size in drawn.integers(1, 4096, 40)],
        ):
            with peer() as stranger:
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                with suppress(ConnectionResetError):
                    while stranger.recv(1 << 16):
                        pass
        number = remote.asked(1, b"#!/bin/sh\ncat inputs.bin >outputs.bin\n", 8)
        head = number + (1).to_bytes(8, "little")
        assert remote.asked(2, head + b"well", 8) == b"well"
        for each in half_open:
            each.close()
    wait_until(lambda: folders() <= before)


@has_cc
def test_too_many_connections_are_told_and_a_place_becomes_free(program: Path) -> None:
    with running(program) as address:
        held = [ServedMachine(address) for _ in range(64)]
        with pytest.raises(PoolError, match="no further connection"):
            ServedMachine(address)
        held.pop().close()

        def is_admitted() -> bool:
            try:
                held.append(ServedMachine(address))
            except PoolError:
                return False
            return True

        wait_until(is_admitted)
        for each in held:
            each.close()


@has_cc
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("end", ["client leaves", "server is told to stop", "connection is killed"])
def test_a_run_that_nobody_waits_for_ends_and_leaves_nothing(program: Path, end: str) -> None:
    before = folders()
    mark = f"31{os.getpid()}{len(end)}.5"
    process = subprocess.Popen([program, "--port", "0"], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        remote = ServedMachine(process.stdout.readline().strip())
        number = remote.asked(1, f"#!/bin/sh\nsleep {mark}\n".encode(), 8)
        (mine,) = folders() - before
        thread = threading.Thread(target=lambda: run_lost(remote, number))
        thread.start()
        wait_until(lambda: bool(sleepers(f"sleep\0{mark}")))
        if end == "client leaves":
            remote._link.shutdown(socket.SHUT_RDWR)
        elif end == "server is told to stop":
            process.terminate()
            assert process.wait(10) == 0
        else:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)
        wait_until(lambda: not mine.exists())
        thread.join(10)
        assert not thread.is_alive()
        if end != "connection is killed":  # which can no longer end what a model has started
            wait_until(lambda: not sleepers(f"sleep\0{mark}"))
        for pid in sleepers(f"sleep\0{mark}"):
            os.kill(int(pid), signal.SIGKILL)
        process.kill()


def run_lost(remote: ServedMachine, number: bytes) -> None:
    with pytest.raises(PoolError, match="lost"):
        remote.asked(2, number + (1).to_bytes(8, "little"), 8)


@has_cc
def test_an_exchange_that_is_cut_short_is_not_answered_later(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first question must never be taken for that to the second."""
    made = plica.compile(plica.from_text(MODEL), target="cpu", threads=1, cache=False)
    with running(program) as address, plica.connect(address) as remote:
        assert isinstance(remote, ServedMachine)
        there = remote.upload(made)

        def interrupted(size: int) -> bytes:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(remote, "_take", interrupted)
            with pytest.raises(KeyboardInterrupt):
                there(X, np.array([4, 0], "i4"))
        with pytest.raises(PoolError, match="lost"):
            there(X, np.array([1, 2], "i4"))


@has_cc
def test_threads_share_a_connection(program: Path) -> None:
    made = plica.compile(plica.from_text(MODEL), target="cpu", threads=1, cache=False)
    with running(program) as address, ServedMachine(address) as remote:
        there = remote.upload(made)

        def right(number: int) -> bool:
            rows = np.array([number % 5, (number + 2) % 5], "i4")
            return bool(np.array_equal(there(X, rows), made(X, rows)))

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(right, range(40)))
        with pytest.raises(InputError, match="whole number"):
            there.seconds(X, np.array([0, 1], "i4"), repeats=-1)


@has_cc
@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        (request(0, 4) + bytes(4), EvaluationError, "no whole result"),
        (request(0, 1 << 62), PoolError, "lost"),
        (request(3, 1 << 62), PoolError, "lost"),
        (request(0, 100) + bytes(99), PoolError, "lost"),
        (b"", PoolError, "lost"),
        (request(99, 0), PoolError, "does not know"),
    ],
)
def test_a_server_that_lies_is_told(answers: bytes, error: type[PlicaError], said: str) -> None:
    made = plica.compile(plica.from_text(MODEL), target="cpu", threads=1, cache=False)
    with socket.create_server(("127.0.0.1", 0)) as door:

        def lie() -> None:
            peer, _ = door.accept()
            with peer, peer.makefile("rb") as asked:
                name = architecture().encode().ljust(16, b"\0")
                peer.sendall(b"plicasrv" + struct.pack("<3Q", 2, 0, 60) + name)
                for answer in (request(0, 8) + bytes(8), answers):
                    size = struct.unpack("<2Q", asked.read(16))[1]
                    asked.read(size)
                    peer.sendall(answer)

        liar = threading.Thread(target=lie)
        liar.start()
        with plica.connect(f"{served.PROTOCOL}127.0.0.1:{door.getsockname()[1]}") as remote:
            there = remote.upload(made)
            with pytest.raises(error, match=said):
                there(X, np.array([0, 1], "i4"))
        liar.join(10)


@has_cc
def test_what_is_uploaded_is_checked_here(program: Path, tmp_path: Path) -> None:
    (tmp_path / "text.plica").write_text("no artefact")
    with running(program) as address, plica.connect(address) as remote:
        for what in (tmp_path / "none.plica", tmp_path, tmp_path / "text.plica", b"bytes"):
            with pytest.raises(ArtefactError):
                remote.upload(what)
