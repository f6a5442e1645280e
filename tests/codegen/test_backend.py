"""Backends: one record holds all that a target is made of, and what it holds is what is used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

import plica
import plica.codegen
from plica.cli import main
from plica.codegen.backend import OWN, Backend, backend_named, backend_of, find_target, own
from plica.codegen.lower.scheduled import untuned
from plica.core.name import Name
from plica.ir.contract import exact
from plica.ir.graph.expression import Apply, Function, Var
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.tensor import axis
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica.runtime.error import UnsupportedError
from plica.runtime.webgpu.device import device as wgpu_device
from plica.schedule.form import UNCHANGED, ScheduleTables

KERNEL: Final = kernel_of(
    stages((x := placeholder("x", (8, 32), f32),), (stage("y", (8, 32), lambda i, j: x[i, j] * 3),))
)

WORDS: Final = {"cpu": "define", "c": "plica_main", "cuda:sm_80": "__global__"}


@pytest.mark.parametrize("text", list(WORDS))
def test_a_record_writes_the_code_of_a_kernel(text: str) -> None:
    target = find_target(text)
    assert WORDS[text] in backend_of(target).code_of(KERNEL, target)


@pytest.mark.parametrize(
    "name", ["c", "metal", "micro", "opencl", "rocm", "spirv", "wasm", "webgpu"]
)
def test_a_target_in_words_is_a_small_folder(name: str) -> None:
    files = list((Path(plica.codegen.__file__).parent / name).glob("*.py"))
    assert 0 < sum(len(each.read_text().splitlines()) for each in files) <= 700


def test_an_accelerator_refuses_a_kernel_that_is_not_scheduled_for_it() -> None:
    target = find_target("accel")
    with pytest.raises(UnsupportedError, match="A store copies"):
        backend_of(target).code_of(KERNEL, target)


def test_a_target_without_an_encoder_says_so() -> None:
    bare = evolve(backend_named("c"), encode=None)
    with pytest.raises(UnsupportedError, match="'c' has no code for one kernel"):
        bare.code_of(KERNEL, find_target("c"))


def test_open_sizes_have_no_code_of_one_kernel() -> None:
    n = axis("n")
    rows = placeholder("x", (n, 4), f32)
    loose = kernel_of(stages((rows,), (stage("y", (n, 4), lambda i, j: rows[i, j] * 3),)))
    with pytest.raises(UnsupportedError, match="sizes that are known"):
        backend_named("c").code_of(loose, find_target("c"))


def test_every_record_has_its_tables() -> None:
    assert {"cpu", "cuda", "accel", "c"} <= {*OWN, *own()}
    for name in ("cpu", "cuda", "c"):
        found = backend_named(name)
        assert found.tables.forms, name
        assert found.tables.templates, name
        assert set(found.lowering.names) <= set(found.pipeline().names), name
    assert backend_named("cuda").tables is not backend_named("cpu").tables
    assert all(backend_named(name).dialect is not None for name in ("cuda", "c"))


@pytest.mark.parametrize("name", ["cpu", "c"])
def test_forms_of_the_record_are_those_that_are_used(name: str) -> None:
    x, w = Var(Name("x"), tensor((64, 32), "f32")), Var(Name("w"), tensor((32, 9), "f32"))
    function = Function((), (), (x, w), tensor((64, 9), "f32"), Apply("matmul", (x, w)))

    def form(of: Backend) -> str:
        scheduler = of.scheduler(of.machine(find_target(name)), exact, untuned)
        origin = scheduler(function, (x, w)).origin
        assert origin is not None
        return origin.form

    whole = backend_named(name)
    assert form(whole) != UNCHANGED
    assert form(evolve(whole, tables=ScheduleTables((), {}))) == UNCHANGED


@pytest.mark.parametrize(
    ("target", "package"), [("opencl", "pyopencl"), ("webgpu", "wgpu"), ("wasm", "wasmtime")]
)
def test_a_package_that_is_missing_is_said_before_any_work(
    target: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_work(*given: object) -> None:
        raise AssertionError("it was worked on")

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("plica.pipeline.whole.program_at_call", no_work)
    wgpu_device.cache_clear()
    with pytest.raises(UnsupportedError, match=r"pip install|apt-get install") as caught:
        plica.compile(KERNEL, target=target)
    assert caught.value.code == "no-toolchain"


def test_a_tool_that_is_missing_is_said_before_the_model_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLICA_WASM_LD", "no-such-linker")
    monkeypatch.setenv("PLICA_CC", "no-such-compiler")
    for target, tool in (("wasm", "no-such-linker"), ("c", "no-such-compiler")):
        output = str(tmp_path / "m.plica")
        assert main(["compile", "no-such-model.onnx", "--target", target, "-o", output]) == 1
        assert tool in capsys.readouterr().err
