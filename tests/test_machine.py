"""`machine=`: what default schedules are chosen by is an input of a compilation like any other."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import plica
from benchmarks.spills import assembly_of, innermost
from plica.bench import machine as measuring
from plica.cli import main
from plica.codegen.backend import find_target
from plica.codegen.llvm import toolchain
from plica.codegen.machine_table import TABLE, row_of
from plica.codegen.target import Target
from plica.ir.graph.module import Module
from plica.ir.text.script import from_text
from plica.pipeline.compiler_stamp import compiler_stamp
from plica.runtime.error import UnsupportedError
from plica.runtime.machine import CycleRates, MachineDescription, keep_description

PRODUCT = """
from __future__ import annotations
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(71, 27), f32], w: Tensor[(27, 36), f32]) -> Tensor[(71, 36), f32]:
    return op.matmul(x, w)
"""


@pytest.fixture(scope="module")
def product() -> Module:
    return from_text(PRODUCT)


def test_equal_descriptions_give_equal_bytes(product: Module, tmp_path: Path) -> None:
    def saved(name: str, described: object) -> bytes:
        made = plica.compile(product, threads=1, cache=False, machine=described)  # type: ignore[arg-type]  # as a user may
        made.save(tmp_path / name)
        return (tmp_path / name).read_bytes()

    one = MachineDescription("mine", 256, (32768, 1 << 20), CycleRates(fma=1, loads=1))
    same = MachineDescription("mine", 256, (32768, 1 << 20), CycleRates(fma=1, loads=1))
    assert saved("one", one) == saved("same", same)
    assert saved("one", one) != saved("other", "x86-64-v2")


def test_the_artefact_says_what_its_schedules_were_chosen_by(
    product: Module, tmp_path: Path
) -> None:
    made = plica.compile(product, threads=1, cache=False, machine="haswell")
    made.save(tmp_path / "m.plica")
    again = plica.load(tmp_path / "m.plica")
    assert again.artefact.machine == made.artefact.machine
    bits = min(256, toolchain.host().vector_bits)  # no more than the code may use
    assert f"vector={bits}" in again.artefact.machine.described
    assert "latency:5" in again.artefact.machine.described


def test_any_machine_gives_the_same_numbers(product: Module) -> None:
    random = np.random.default_rng(0)
    x, w = random.standard_normal((71, 27)), random.standard_normal((27, 36))
    given = x.astype(np.float32), w.astype(np.float32)
    for name in ("x86-64-v2", "znver4", "apple-m1"):
        made = plica.compile(product, threads=1, cache=False, machine=name)
        np.testing.assert_allclose(made(*given), given[0] @ given[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machine": "haswel"}, "There is no machine 'haswel'."),
        ({"machine": "measured"}, "This machine was not measured."),
        ({"machine": "haswell", "target": "c"}, "The target 'c' is not described by a machine"),
        ({"target": "cpu:"}, "There is no target 'cpu:'."),
    ],
)
def test_what_is_no_machine_is_refused(
    product: Module, options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLICA_CACHE", "off")
    with pytest.raises(UnsupportedError, match=message):
        plica.compile(product, **options)  # type: ignore[arg-type]  # mypy takes them for any


def test_a_number_is_no_machine(product: Module) -> None:
    with pytest.raises(plica.InputError, match="This is no machine"):
        plica.compile(product, machine=3)  # type: ignore[arg-type]  # the test


def test_every_row_describes_a_machine() -> None:
    for name, row in TABLE.items():
        assert name == row.name
        assert row.caches == tuple(sorted(row.caches))
        target = find_target("cpu").described(row)  # type: ignore[attr-defined]  # a processor
        assert target.vector_bits <= row.vector
        assert find_target(target.describe()) == target
    assert row_of("wasm32", "generic", 128).caches


def test_what_was_measured_is_part_of_the_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    toolchain.host.cache_clear()
    before = compiler_stamp()
    keep_description(MachineDescription("measured", 256, (), CycleRates(region=8192)))
    assert compiler_stamp() != before
    toolchain.host.cache_clear()
    assert toolchain.host().cycle_rates.region == 8192
    assert toolchain.host().vector_bits <= 256
    monkeypatch.setenv("PLICA_CACHE", "off")
    toolchain.host.cache_clear()
    assert toolchain.host().rates is None


def test_the_doctor_measures_and_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    monkeypatch.setattr(measuring, "SAMPLES", 2)
    monkeypatch.setattr(measuring, "ROUNDS", 2)
    monkeypatch.setattr(measuring, "_CHASED", (1 << 13, 1 << 14))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cores may be busy with other tests
        assert main(["doctor", "--measure", "--json"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)["described"]
    assert told["name"] == "measured"
    assert told["vector"] in {each["bits"] for each in told["widths"]}
    assert all(value > 0 for value in told["rates"].values())
    toolchain.host.cache_clear()


@pytest.mark.parametrize("name", ["cpu:x86-64-v3", "cpu:neoverse-n1"])
def test_tiles_of_sums_stay_in_registers(name: str, product: Module) -> None:
    target = find_target(name)
    assert isinstance(target, Target)
    loops = innermost(assembly_of(product, target))
    assert loops
    assert [(each.reads, each.writes) for each in loops] == [(0, 0)] * len(loops)
    assert max(each.work / each.length for each in loops) > 0.5
