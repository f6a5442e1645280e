"""Units: names of launches, code kept by the digest of its text, and programs that choose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from plica.codegen.cuda import unit as units
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.cuda.toolchain import Cubin
from plica.codegen.cuda.unit import cubins, unit
from plica.codegen.lower.statement import LoweringRefused
from plica.ir.script import from_text
from plica.pipeline import lower
from plica.runtime.error import UnsupportedError
from plica.runtime.store import Store
from tests.codegen.cuda.test_fold import read

TARGET = GpuTarget("sm_90")

CHOICE = """
import plica
from plica import op
from plica.script import Tensor, bool_, f32

@plica.function
def main(x: Tensor[(8,), f32], c: Tensor[(), bool_]) -> Tensor[(8,), f32]:
    if c:
        y = op.exp(x)
    else:
        y = op.sqrt(x)
    return y
"""

PLAIN = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(8,), f32]) -> Tensor[(8,), f32]:
    return op.exp(x)
"""


def test_choices_are_refused_by_what_they_choose() -> None:
    with pytest.raises(UnsupportedError, match="whether to run exp, sqrt"):
        unit(lower(from_text(CHOICE), target=TARGET).program)


def test_code_is_kept_by_the_digest_of_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = unit(lower(from_text(PLAIN), target=TARGET).program)
    asked = []

    def compiled(texts: Sequence[str], architecture: str, *, fused: bool = True) -> list[Cubin]:
        asked.extend([(architecture, fused) for _ in texts])
        return [Cubin(f"{architecture} {fused}".encode(), (), "") for _ in texts]

    monkeypatch.setattr(units, "compiled_at_once", compiled)
    store = Store(tmp_path)
    for _ in range(2):
        assert cubins(made, "sm_90", fused=True, store=store) == (b"sm_90 True",)
        assert cubins(made, "sm_90", fused=False, store=store) == (b"sm_90 False",)
    assert asked == [("sm_90", True), ("sm_90", False)]
    assert [each.kernel for each in made.launched] == ["k0_exp"]


def test_launches_do_not_share_registers() -> None:
    kernel = read("""
def k(x: Buffer[(8,), f32], z: Buffer[(8,), f32]):
    held = alloc(Buffer[(8,), f32, "local"])
    for t in thread("threadIdx.x", 8):
        held[t] = x[t]
    for t in thread("threadIdx.x", 8):
        z[t] = held[7 - t]
""")
    with pytest.raises(LoweringRefused, match="follow one another share"):
        fold(kernel, "k")


def test_the_gpu_of_this_machine_is_asked_for_where_none_is_named() -> None:
    assert parse_gpu("cuda", lambda: "sm_80") == GpuTarget("sm_80")
    assert parse_gpu("cuda:sm_86", lambda: "sm_80") == GpuTarget("sm_86")
    assert parse_gpu("cuda", lambda: "sm_30") == parse_gpu("cuda")
