"""Line maps: assembly with statements is the assembly that there is without them."""

from __future__ import annotations

import pytest

from plica.codegen.backend import find_target
from plica.codegen.llvm.fold import alone, kernel_text
from plica.codegen.llvm.line_map import NAME, assembly_lines
from plica.codegen.llvm.toolchain import assembly, host
from plica.ir.loop.statement import statements
from plica.pipeline import lower
from plica.runtime.error import UnsupportedError
from plica.runtime.link import can_link
from tests.frontend.zoo.small import SMALL

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")


def is_instruction(line: str) -> bool:
    return line.startswith("\t") and not line.startswith("\t.")


@pytest.mark.parametrize("name", ["dqn", "transformer"])
def test_locations_change_no_instruction(name: str) -> None:
    target = host()
    lowered = lower(SMALL[name](), target=target)
    for kernel in lowered.program.kernels:
        how = target, lowered.fused, lowered.signless
        text = alone(kernel_text(kernel, None, NAME, *how), NAME, target, lowered.fused)
        plain = [each.partition("#")[0].rstrip() for each in assembly(text, target).splitlines()]
        lines = assembly_lines(kernel, *how)
        code = [each for each in lines if is_instruction(each.text)]
        assert [each.text for each in code] == list(filter(is_instruction, plain))
        known = set(statements(kernel.body))
        assert {each.statement for each in code if each.statement is not None} <= known
        assert any(each.statement is not None for each in code)


def test_other_targets_are_refused() -> None:
    kernel = lower(SMALL["mlp"](), target=host()).program.kernels[0]
    with pytest.raises(UnsupportedError, match="processors"):
        assembly_lines(kernel, find_target("c"))
