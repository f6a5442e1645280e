"""Units: the text of a program in parts, which are compiled at once."""

from __future__ import annotations

import pytest

from plica.codegen.cuda.target import parse_gpu
from plica.codegen.cuda.toolchain import compiled, compiled_at_once, path_of
from plica.codegen.cuda.unit import PART, cubins, unit
from plica.ir.text.script import from_text
from plica.pipeline import contract_of, lower
from plica.runtime.cuda.code import functions

needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")

MODEL = """
from plica.script import Tensor, f32
from plica.op import nn
import plica

@plica.function
def main(x: Tensor[(16, 64), f32], w: Tensor[(64, 64), f32]) -> Tensor[(16, 64), f32]:
    return nn.softmax(nn.dense(nn.softmax(nn.dense(x, w), axis=-1), w), axis=-1)
"""


@needs_nvrtc
def test_parts_hold_every_function_once() -> None:
    lowered = lower(from_text(MODEL), contract_of(None), (), parse_gpu("cuda:sm_80"))
    made = unit(lowered.program)
    codes = [functions(each) for each in cubins(made, "sm_80", fused=True)]
    found = [name for names in codes for name in names]
    assert len(found) == len(set(found))
    assert {each.function for each in made.steps if hasattr(each, "function")} == set(found)
    assert all(len(each) > PART for each in made.parts[:-1])


@needs_nvrtc
def test_at_once_is_as_one_by_one() -> None:
    texts = [f'extern "C" __global__ void f{n}(float* y) {{ y[{n}] = {n}; }}' for n in range(3)]
    at_once = compiled_at_once(texts, "sm_80")
    assert [functions(each.code) for each in at_once] == [frozenset({f"f{n}"}) for n in range(3)]
    assert [each.code for each in at_once] == [compiled(each, "sm_80").code for each in texts]
