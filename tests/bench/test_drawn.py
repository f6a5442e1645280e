"""Operators that `benchmarks/cliffs.py` draws: no schedule of one is refused."""

from __future__ import annotations

import pytest

import plica
from benchmarks.cliffs import FAMILIES, drawn
from plica.codegen.backend import backend_of
from plica.pipeline import lower, target_of
from plica.rewrite.optimise import DEFAULT_CONTRACT


@pytest.mark.parametrize("threads", [1, 2])
def test_no_schedule_is_passed_over(threads: int) -> None:
    cpu = target_of("cpu")
    target = backend_of(cpu).with_threads(cpu, threads)
    for number in range(12):
        text, model, _ = drawn(2026 + threads, number)
        if "NonZero" in text or "Compress" in text:
            continue  # sizes become known while it runs: several programs
        found = lower(plica.from_onnx(model), DEFAULT_CONTRACT, (), target)
        assert found.program.passed_over == (), text


def test_a_seed_draws_the_same_again() -> None:
    for number in range(len(FAMILIES)):
        text, model, arrays = drawn(5, number)
        again, same, others = drawn(5, number)
        assert (text, model) == (again, same)
        assert [each.tobytes() for each in arrays] == [each.tobytes() for each in others]
