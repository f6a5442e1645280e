"""`plica-server`: models on machines without Python, natively and in QEMU's user mode."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import plica
from plica.runtime.cross import CROSS
from plica.runtime.error import ArtefactError, EvaluationError, OutputError, UnsupportedError
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
            ("kill -SEGV $$", "died"), ("sleep 9", "too long"), ("exit 3", "not be started"),
        ):  # fmt: skip
            number = remote.asked(1, f"#!/bin/sh\n{script}\n".encode())
            with pytest.raises(EvaluationError, match=said):
                remote.asked(2, number + head)
        with pytest.raises(PoolError, match="does not know"):
            remote.asked(2, (99).to_bytes(8, "little") + head)
        with pytest.raises(PoolError, match="does not know"):
            remote.asked(7, b"")
        number = remote.asked(1, b"#!/bin/sh\nprintf %s-%s $1 $(cat inputs.bin) >outputs.bin\n")
        assert remote.asked(2, number + head + b"in") == b"1-in"


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
        monkeypatch.setattr(served, "_SECONDS", 0.3)
        with pytest.raises(PoolError, match="does not answer"):
            plica.connect(address)
        monkeypatch.undo()
    with running(program) as inner, pytest.raises(PoolError, match="no trust"):
        plica.connect(inner, ours)


def test_addresses_and_machines_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PoolError) as error:
        plica.connect("plica://192.0.2.1:9190")
    assert error.value.code == "insecure-pool"
    with pytest.raises(PoolError, match="host and port"):
        plica.connect("plica://here")
    with pytest.raises(UnsupportedError, match="No server"):
        build_server(tmp_path / "server", "vax")
    with pytest.raises(OutputError, match="no folder"):
        build_server(tmp_path / "none" / "server")


def test_what_is_no_server_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:

        def greet() -> None:
            peer, _ = door.accept()
            with peer:
                peer.sendall(b"HTTP/1.0 400 Bad Request\r\n" + bytes(20))

        threading.Thread(target=greet).start()
        with pytest.raises(PoolError, match="no server"):
            plica.connect(f"{served.PROTOCOL}127.0.0.1:{door.getsockname()[1]}")
