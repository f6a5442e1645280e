"""Targets and the toolchain."""

from __future__ import annotations

from pathlib import Path

import pytest

from plica.codegen.backend import TARGETS
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.processor import find_target
from plica.codegen.target import Target, parse, unknown_target
from plica.core.diagnostic import CompilerBug
from plica.runtime.error import UnsupportedError

TEXT = "define i64 @plica_main(ptr %table) {\n  ret i64 7\n}\n"


def test_the_host_is_a_target() -> None:
    host = find_target("cpu")
    assert host == toolchain.host()
    assert host.name == "cpu"
    assert host.architecture in host.triple
    assert str(host) == f"cpu ({host.triple}, {host.cpu})"


def test_a_target_in_full_is_taken_as_it_is() -> None:
    given = Target("cpu", "aarch64-unknown-linux-gnu", "generic")
    assert find_target(given) is given
    assert given.has_half


@pytest.mark.parametrize(
    ("name", "message", "suggestion"),
    [
        (
            "accel",
            "This is done for processors; an accelerator is not one.",
            "Use target='cpu'; plica.compile(model, target='accel') offloads integer layers.",
        ),
        ("cpi", "There is no target 'cpi'.", "Did you mean 'cpu'?"),
        ("gpu", "There is no target 'gpu'.", "GPUs are the target 'cuda'."),
        ("gpuu", "There is no target 'gpuu'.", "GPUs are the target 'cuda'."),
        ("CUDA", "There is no target 'CUDA'.", "Did you mean 'cuda'?"),
        ("nonsense", "There is no target 'nonsense'.", None),
        (3, "There is no target 3.", None),
    ],
)
def test_other_targets_are_refused(name: str, message: str, suggestion: str | None) -> None:
    (said,) = unknown_target(name).diagnostics
    assert said.code == "unsupported"
    assert said.message == message
    assert said.expected == ("cpu" if name == "accel" else ", ".join(TARGETS.points()))
    assert said.suggestion == suggestion


def test_code_for_another_machine_is_not_loaded() -> None:
    with pytest.raises(UnsupportedError, match="cannot run on this machine"):
        toolchain.build(TEXT, Target("cpu", "riscv64-unknown-linux-gnu", "generic-rv64"))


def test_what_llvm_refuses_is_our_bug() -> None:
    with pytest.raises(CompilerBug, match="LLVM refuses the generated code"):
        toolchain.optimised("define nonsense", toolchain.host())


def test_stages_can_be_seen() -> None:
    host = toolchain.host()
    assert "ret i64 7" in toolchain.optimised(TEXT, host)
    assert "plica_main" in toolchain.assembly(TEXT, host)


@pytest.mark.parametrize(
    ("triple", "features", "bits", "registers"),
    [
        ("x86_64-unknown-linux-gnu", ("+avx", "+avx512f"), 512, 32),
        ("x86_64-unknown-linux-gnu", ("+avx", "-avx512f"), 256, 16),
        ("x86_64-unknown-linux-gnu", (), 128, 16),
        ("aarch64-unknown-linux-gnu", ("+sve",), 128, 32),
        ("riscv64-unknown-linux-gnu", ("+v",), 128, 32),
        ("riscv64-unknown-linux-gnu", (), 64, 32),
        ("wasm32-unknown-unknown", (), 64, 16),
    ],
)
def test_vectors_follow_from_the_features(
    triple: str, features: tuple[str, ...], bits: int, registers: int
) -> None:
    target = Target("cpu", triple, "generic", features)
    assert (target.vector_bits, target.vector_registers) == (bits, registers)
    said = Target("cpu", triple, "generic", features, vector=256, registers=8)
    assert (said.vector_bits, said.vector_registers) == (256, 8)


def test_this_machine_is_described_in_full() -> None:
    host = toolchain.host()
    assert host.cores >= 1
    assert host.cache(1) <= host.cache(2) <= host.cache(9)
    assert parse(host.describe(), Target("cpu", "other", "generic")) == host
    assert parse("cpu", host) is not None
    assert parse("cpu cores=7 caches=1024,4096", host).caches == (1024, 4096)


def test_of_another_machine_nothing_is_known() -> None:
    other = parse("cpu triple=powerpc64le-unknown-linux-gnu", toolchain.host())
    assert other == Target("cpu", "powerpc64le-unknown-linux-gnu", "generic")
    assert [other.cache(level) for level in (1, 2, 3)] == [32 * 1024, 512 * 1024, 4 * 1024 * 1024]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu vektor=256", "A target has no attribute 'vektor'."),
        ("cpu vector", "A target has no attribute 'vector'."),
        ("cpu vector=wide", "The attribute 'vector' of a target is not 'wide'."),
        ("cpu cores=0", "The attribute 'cores' of a target is not '0'."),
        ("gpu", "There is no target 'gpu'."),
        ("", "There is no target ''."),
    ],
)
def test_what_describes_no_target_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        parse(text, toolchain.host())
    (said,) = refused.value.diagnostics
    assert said.message == message


def test_caches_are_read_where_the_system_tells(tmp_path: Path) -> None:
    facts = (
        ("Data", "1", "48K"),
        ("Instruction", "1", "32K"),
        ("Unified", "2", "2M"),
        ("", "", ""),
    )
    for number, (kind, level, size) in enumerate(facts):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert toolchain.system_caches(tmp_path) == (48 * 1024, 2 * 1024 * 1024)
    assert toolchain.system_caches(tmp_path / "none") == ()
