"""ThreadSanitizer over compiled code: a planted race is reported, drawn programs have none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.races import RaceCase, built, drawn, missing, ran
from plica.ir.loop.scalar import FloorDiv, index
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from tests.codegen.llvm.thread_sanitizer import instrumented

can_run = pytest.mark.skipif(bool(missing()), reason=missing() or "it can run")


def halves(places: int) -> RaceCase:
    """Sixteen iterations at once, several of which write one place unless there are as many."""
    x, y, i = buffer("x", (16,), f32), buffer("y", (places,), f32), axis("i")
    body = Store(y, (FloorDiv(i, index(16 // places)),), x[i])
    kernel = Kernel((), (x, y), 1, For(i, index(16), "parallel", body))
    ones = np.ones(16, np.float32)
    return RaceCase(0, "planted", kernel, (ones,), (ones[:places],), (np.zeros(places),))


@can_run
@pytest.mark.parametrize("joined", [True, False])
def test_a_planted_race_is_reported(tmp_path: Path, joined: bool) -> None:
    assert "data race" in ran(built([halves(2)], tmp_path, 4, joined=True))
    assert not ran(built([halves(16)], tmp_path, 4, joined=joined))


@can_run
def test_drawn_programs_have_no_race(tmp_path: Path) -> None:
    cases = [each for number in range(24) if (each := drawn(0, number)) is not None]
    assert {each.kind for each in cases} > {"steps"}
    for joined in (True, False):
        assert not ran(built(cases, tmp_path, 4, joined=joined))


def test_masked_scattered_and_atomic_accesses_are_told() -> None:
    text = instrumented("""define void @k(ptr %p, <4 x ptr> %q, <4 x i1> %m, <4 x float> %v) {
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v, ptr align 4 %p, <4 x i1> %m)
  call void @llvm.masked.scatter.v4f32.v4p0(<4 x float> %v, <4 x ptr> align 4 %q, <4 x i1> %m)
  call void @llvm.memset.p0.i64(ptr align 8 %p, i8 0, i64 24, i1 false)
  %a = atomicrmw add ptr %p, i64 1 acq_rel, align 8
  ret void
}
""")
    for line in (
        "call void @plica_tsan_lanes(ptr %p, i64 4, i64 %tsan.1.w, i64 1)",
        "call void @plica_tsan_lanes(ptr %tsan.2.3.p, i64 4, i64 %tsan.2.3.w, i64 1)",
        "call void @__tsan_write_range(ptr %p, i64 24)",
        "call void @__tsan_release(ptr %p)",
        "call void @__tsan_acquire(ptr %p)",
    ):
        assert line in text
