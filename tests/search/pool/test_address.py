"""Addresses: no network without TLS, in any spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import plica
from plica.cli import main
from plica.runtime.error import ArgumentError
from plica.search.pool.address import Certificates, PoolError, checked, is_loopback

FILES = Certificates("ca.pem", "own.pem", "own.key")


@given(st.ip_addresses(v=4), st.integers(1, 65535))
def test_only_this_machine_is_reached_without_tls(host: object, port: int) -> None:
    address = f"{host}:{port}"
    if str(host).startswith("127."):
        assert checked(address, None) == f"tcp://{address}"
    else:
        with pytest.raises(PoolError) as refused:
            checked(address, None)
        assert refused.value.code == "insecure-pool"
    assert checked(address, FILES) == f"tls://{address}"


@pytest.mark.parametrize(
    ("address", "files", "code"),
    [
        ("tcp://lab:8786", None, "insecure-pool"),
        ("tcp://lab:8786", FILES, "insecure-pool"),
        ("tcp://127.0.0.1:8786", FILES, "insecure-pool"),
        ("tls://127.0.0.1:8786", None, "insecure-pool"),
        ("0.0.0.0:8786", None, "insecure-pool"),
        ("127.0.0.1.example:8786", None, "insecure-pool"),
        ("ws://127.0.0.1:8786", None, "pool-failed"),
        ("inproc://127.0.0.1:1", None, "pool-failed"),
        ("tcp://127.0.0.1", None, "pool-failed"),
        ("tcp://[::1]", None, "pool-failed"),
        ("127.0.0.1:65536", None, "pool-failed"),
        ("127.0.0.1:²", None, "pool-failed"),
        ("tcp://", None, "pool-failed"),
        ("", None, "pool-failed"),
    ],
)
def test_what_is_refused(address: str, files: Certificates | None, code: str) -> None:
    with pytest.raises(PoolError) as refused:
        checked(address, files)
    assert refused.value.code == code


def test_the_same_machine_has_several_names() -> None:
    assert all(is_loopback(each) for each in ("localhost", "127.3.2.1", "::1", "[::1]"))
    assert checked("tcp://[::1]:8786", None) == "tcp://[::1]:8786"


def test_connect_refuses_before_it_connects() -> None:
    with pytest.raises(PoolError, match="TLS only"):
        plica.connect("tcp://192.0.2.1:8786")


def test_the_command_line_refuses_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pool", "start", "--host", "0.0.0.0"]) == 1
    assert "insecure-pool" in capsys.readouterr().err
    assert main(["pool", "worker", "tcp://192.0.2.1:8786"]) == 1
    assert main(["pool", "status", "192.0.2.1:8786"]) == 1
    assert main(["pool", "start", "--tls-ca", "ca.pem"]) == 1
    assert "three files" in capsys.readouterr().err


@pytest.mark.parametrize("given", [{"authority": "ca.pem"}, {"a": "b"}, 5, "ca.pem"])
def test_certificates_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(ArgumentError, match="three files"):
        plica.connect("tls://127.0.0.1:8786", given)


def test_certificates_that_are_not_there_are_told(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    with pytest.raises(PoolError, match="certificates cannot be used"):
        Certificates(missing, missing, missing).context()
