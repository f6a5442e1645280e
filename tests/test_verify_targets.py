"""Verifying: what was just made is good for every target, and is made again byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

import plica
from plica import op
from plica.cli.rederive import rederive
from plica.cli.verify import retraced_file
from plica.codegen.artefact_target import target_of_artefact
from plica.codegen.backend import backend_of, find_target
from plica.codegen.retrace import retraced
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var
from plica.ir.graph.module import module
from plica.ir.type.term import tensor
from plica.pipeline import assemble, lower
from plica.rewrite.fuzz.case import Case, cases
from plica.runtime import archive
from plica.runtime.artefact import from_members, to_members
from plica.runtime.elf import Header
from plica.runtime.error import UnsupportedError
from plica.runtime.verify import verify

X = Var(Name("x"), tensor((4, 8), "f32"))
MAIN = Var(Name("main"), None)
MODEL = module({MAIN: Function((), (), (X,), None, X * 2.0)}, MAIN)
TEXTS = ("cuda-emulator:sm_80", "opencl:256", "webgpu", "rocm:gfx90a", "metal")
"""Targets whose code is text: nothing needs to be installed to make it."""
OBJECTS = ("c", "micro", "micro:rv32imc", "wasm", "wasm:scalar", "wasm:threads", "spirv")


@pytest.mark.parametrize("name", [*TEXTS, *OBJECTS])
def test_fresh_artefacts_are_good(name: str, tmp_path: Path) -> None:
    target = find_target(name)
    if name not in TEXTS and (missing := backend_of(target).missing()):
        pytest.skip(missing)
    path = tmp_path / "small.plica"
    archive.write(path, archive.pack(to_members(assemble(lower(MODEL, target=target), target, 1))))
    artefact = from_members(archive.read(path))
    assert verify(path).traces == retraced(artefact, artefact.record()).kernels > 0
    assert target_of_artefact(artefact) == target
    again = rederive(MODEL, artefact.record(), artefact)
    assert (again.objects, again.not_made) == (len(artefact.objects), "")


def test_objects_are_told_apart_by_family_and_bits() -> None:
    arm, small, wide = Header("arm", 32), Header("riscv32", 32), Header("riscv64", 64)
    assert all(arm.runs(each) for each in ("armv7", "thumbv7em", "thumbv8.1m.main"))
    assert not arm.runs("aarch64")
    assert (small.runs("riscv32"), small.runs("riscv64")) == (True, False)
    assert (wide.runs("riscv32"), wide.runs("riscv64")) == (False, True)


def test_a_process_that_compiled_nothing_knows_what_traces_of_gpus_name(tmp_path: Path) -> None:
    left, right = (Var(Name(each), tensor((64, 64), "f16")) for each in "ab")
    product = module({MAIN: Function((), (), (left, right), None, op.matmul(left, right))}, MAIN)
    target = find_target("cuda-emulator:sm_80")
    path = tmp_path / "product.plica"
    made = assemble(lower(product, target=target), target, 1)
    assert any("tensorize" in each.json for each in made.record().traces)
    archive.write(path, archive.pack(to_members(made)))
    command = [sys.executable, "-m", "plica", "verify", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(
    "name",
    ["cpu", *(pytest.param(each, marks=pytest.mark.slow) for each in ("c", "cuda-emulator"))],
)
def test_drawn_programs_verify_by_every_mode(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Right artefacts raise no alarm: read, retraced, accesses proved, code made again."""
    if missing := backend_of(find_target(name)).missing():
        pytest.skip(missing)

    @settings(max_examples=max(3, settings().max_examples // 50))
    @given(cases())
    def check(case: Case) -> None:
        path = tmp_path_factory.mktemp("drawn") / "m.plica"
        try:
            plica.compile(case[0], target=name, cache=False).save(path)
        except UnsupportedError:
            return
        verify(path)
        retraced_file(path, prove=True, rebuild=True)

    check()
