"""Targets and the toolchain."""

from __future__ import annotations

import pytest

from plica.codegen.llvm import toolchain
from plica.codegen.target import Target, unknown_target
from plica.core.diagnostic import CompilerBug
from plica.pipeline import find_target
from plica.runtime.error import UnsupportedError

TEXT = "define i64 @plica_main(ptr %table) {\n  ret i64 7\n}\n"


def test_the_host_is_a_target() -> None:
    host = find_target("cpu")
    assert host is toolchain.host()
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
        ("cuda", "Plica makes no code for the target 'cuda' yet.", "Use target='cpu'."),
        ("cpi", "There is no target 'cpi'.", "Did you mean 'cpu'?"),
        (3, "There is no target 3.", None),
    ],
)
def test_other_targets_are_refused(name: str, message: str, suggestion: str | None) -> None:
    (said,) = unknown_target(name).diagnostics
    assert said.code == "unsupported"
    assert said.message == message
    assert said.expected == "cpu"
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
