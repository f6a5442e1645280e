"""Artefacts for other machines in QEMU's user mode: right there, refused where they must be."""

from __future__ import annotations

import gc
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import find_target
from plica.codegen.llvm.processor import find_target as find_processor
from plica.frontend.zoo import ds_cnn
from plica.ir.graph.module import Module
from plica.pipeline import assemble, lower
from plica.runtime import archive, host, load
from plica.runtime.artefact import to_members
from plica.runtime.cross import (
    CROSS,
    check_cross,
    cross_lacking,
    cross_tools_missing,
    emulated,
    mathematics,
)
from plica.runtime.error import ArtefactError, UnsupportedError
from plica.runtime.link import architecture
from tests.runtime.model import model


def need(architecture: str) -> None:
    """Skip where the tools of an architecture are missing."""
    tools = CROSS[architecture]
    for each in (tools.compiler, tools.emulator):
        if shutil.which(each) is None:
            pytest.skip(f"there is no {each} here")


@pytest.fixture(scope="module")
def network() -> Module:
    return ds_cnn(frames=9, features=4, channels=16, blocks=1)


OTHER = "cpu:aarch64" if architecture() != "aarch64" else "cpu:x86-64-v3"
RISCV_VECTORS = "cpu triple=riscv64-unknown-linux-gnu features=+m,+a,+f,+d,+c,+v"


@pytest.mark.parametrize(
    "target",
    [OTHER, *[pytest.param(e, marks=pytest.mark.slow) for e in ("cpu:armv7", RISCV_VECTORS)]],
)
def test_code_for_another_machine_runs_in_qemu(network: Module, target: str) -> None:
    need(find_processor(target).architecture)
    x = np.random.default_rng(0).standard_normal((1, 1, 9, 4), np.float32)
    made = plica.compile(network, target=target, threads=2, cache=False)
    np.testing.assert_allclose(made(x), plica.compile(network)(x), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_library_for_another_machine_is_called_from_c(network: Module, tmp_path: Path) -> None:
    need("aarch64")
    made = plica.compile(network, target="cpu:aarch64", cache=False)
    made.export(tmp_path / "libthere.so")
    command = ["aarch64-linux-gnu-gcc", "there_example.c", "-L.", "-lthere", "-o", "there"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", "LD_LIBRARY_PATH=.", "./there"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    x = (np.arange(36) % 7 / 7).astype(np.float32).reshape(1, 1, 9, 4)
    (found,) = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert found == pytest.approx(float(np.sum(made(x))), rel=1e-3)


def test_a_lesser_processor_is_told_and_does_not_fault(network: Module) -> None:
    need("x86_64")
    made = plica.compile(network, target="cpu:x86-64-v3", cache=False)
    x = np.ones((1, 1, 9, 4), np.float32)
    there = emulated(made.artefact, cpu="Haswell")
    np.testing.assert_allclose(there(x), made(x), rtol=1e-3, atol=1e-4)
    with pytest.raises(ArtefactError, match="instructions that the machine does not") as caught:
        emulated(made.artefact, cpu="Nehalem")(x)
    assert caught.value.code == "other-machine"


@pytest.mark.skipif(architecture() == "x86_64", reason="code for x86-64 is loaded here")
def test_instructions_that_the_emulator_does_not_have_are_told(network: Module) -> None:
    made = plica.compile(network, target="cpu:x86-64-v4", cache=False)
    with pytest.raises(ArtefactError, match="QEMU's user mode does not have") as caught:
        made(np.ones((1, 1, 9, 4), np.float32))
    assert (caught.value.code, "avx512f" in str(caught.value)) == ("other-machine", True)


def test_why_code_for_another_machine_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert not cross_tools_missing("x86_64")
    assert not cross_lacking("x86_64", ("+avx2", "-avx512f"))
    found = cross_lacking("x86_64", ("+avx512bw", "+avx2"))
    assert found == "QEMU's user mode has no avx512bw."
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = cross_tools_missing("x86_64")
    assert "apt-get install gcc-x86-64-linux-gnu libc6-dev-amd64-cross" in found
    assert "Nothing here" in cross_tools_missing("s390x")


@pytest.mark.parametrize("named", ["libm-0.a", "libm-0.a /there/libmvec-0.a"])
def test_a_library_of_mathematics_that_names_other_files_is_looked_up(
    named: str, tmp_path: Path
) -> None:
    (tmp_path / "libm.a").write_text(f"/* GNU ld script */\nGROUP ( /nowhere/{named} )\n")
    (tmp_path / "libm-0.a").write_bytes(b"!<arch>")
    compiler = tmp_path / "gcc"
    compiler.write_text(f'#!/bin/sh\necho "{tmp_path}/${{1#-print-file-name=}}"\n')
    compiler.chmod(0o755)
    found = [str(tmp_path / Path(each).name) for each in named.split()]
    assert mathematics(str(compiler)) == ("-Wl,--start-group", *found, "-Wl,--end-group")
    (tmp_path / "libm.a").write_bytes(b"!<arch>\n/at/home.a\n")
    mathematics.cache_clear()
    assert mathematics(str(compiler)) == ("-lm",)
    mathematics.cache_clear()


SMALL = """
import plica
from plica.script import Tensor, f32
@plica.function
def main(x: Tensor[(64,), f32]) -> Tensor[(64,), f32]:
    return x * x + 1.0
"""


@pytest.mark.parametrize(
    ("target", "said"), [("cpu:armv7", "another kind"), ("cpu:x86-64-v4", "does not have")]
)
def test_a_saved_artefact_is_refused_before_anything_is_loaded(
    target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if architecture() != "x86_64":
        pytest.skip("the targets are another machine's on x86-64")
    meant = find_target(target)
    whole = assemble(lower(plica.from_text(SMALL), target=meant), meant, 1)
    archive.write(tmp_path / "m.plica", archive.pack(to_members(whole)))
    monkeypatch.setattr(host, "features", lambda: frozenset({"avx2", "fma", "sse4_1", "sse4_2"}))
    linked: list[object] = []
    monkeypatch.setattr(load, "link", linked.append)
    with pytest.raises(ArtefactError, match=said) as caught:
        plica.load(tmp_path / "m.plica")
    assert caught.value.code == "other-machine"
    assert not linked


def test_inputs_are_checked_before_anything_runs(network: Module) -> None:
    made = plica.compile(network, target="cpu:aarch64", cache=False)
    with pytest.raises(plica.InputError, match="x"):
        made(np.ones((1, 1, 9, 5), np.float32))


@pytest.mark.usefixtures("young")
def test_the_store_keeps_code_for_other_machines(
    network: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    first = plica.compile(network, target="cpu:aarch64")
    kept = first.artefact.objects
    del first
    gc.collect()
    again = plica.compile(network, target="cpu:aarch64")
    assert again.artefact.objects == kept
    assert again.stats.compilations == 0
    assert "aarch64" in again.target


def test_machines_that_nothing_runs_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="cannot run on this machine"):
        check_cross("wasm32-unknown-unknown")


def test_missing_tools_are_named(network: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "aarch64" if architecture() != "aarch64" else "riscv64"
    made = plica.compile(network, target=f"cpu:{other}", cache=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnsupportedError, match=f"no {other}-linux-gnu-gcc here") as caught:
        made(np.ones((1, 1, 9, 4), np.float32))
    assert f"apt-get install gcc-{other}-linux-gnu" in str(caught.value)


def test_the_library_of_this_machine_asks_for_its_instructions(tmp_path: Path) -> None:
    model().export(tmp_path / "libhere.so")
    assert "lacks instructions" in (tmp_path / "here.h").read_text()
