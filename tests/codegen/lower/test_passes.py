"""Lowering: every pass keeps what a kernel means, on scheduled kernels and by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.lower.passes import LOWER, lower
from plica.codegen.lower.tidy import tidy
from plica.ir.loop.statement import Alloc, Block, Branch, For, Kernel, statements
from plica.ir.loop.verify import well_formed
from plica.ir.text.show import show_kernel
from plica.runtime.error import InputError
from tests.codegen.lower.kernels import assert_same, matmul, scheduled
from tests.conftest import Golden


@given(scheduled())
@settings(max_examples=max(12, settings().max_examples // 2))
def test_each_pass_keeps_what_a_kernel_means(given_: tuple[Kernel, dict[str, int]]) -> None:
    kernel, sizes = given_
    start = kernel
    for each in LOWER:
        after = each.run(kernel)
        assert well_formed(after) == (), each.name
        if after is not kernel:
            assert_same(start, after, **sizes)
        kernel = after
    inside = list(statements(kernel.body))
    assert not any(isinstance(each, Block) for each in inside)
    assert all(len(each.buffer.shape) == 1 for each in inside if isinstance(each, Alloc))


@given(scheduled(), st.sampled_from(("cpu", "gpu", "accel")))
@settings(max_examples=6)
def test_tidying_twice_changes_nothing(given_: tuple[Kernel, dict[str, int]], target: str) -> None:
    lowered = lower(given_[0], target)  # type: ignore[arg-type]
    once = tidy(lowered)
    assert tidy(once) is once


def test_threads_may_lower_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memo that is full is forgotten while others are in the middle of it."""
    kernels = [matmul(m, n, 5) for m in (3, 4, 5) for n in (4, 6)]
    alone = [lower(each) for each in kernels]
    monkeypatch.setattr("plica.codegen.lower.tidy.MAX_TIDIED", 0)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lower, kernels * 3))
    assert found == alone * 3


def test_names_are_unique_and_reasons_are_sentences() -> None:
    assert len({each.name for each in LOWER}) == len(LOWER)
    assert all(each.why.endswith(".") for each in LOWER)


@pytest.mark.parametrize("size", [4, 10])
def test_a_whole_lowering_as_text(size: int, golden: Golden) -> None:
    golden(show_kernel(lower(matmul(size, 6, 5))), f"lowered_matmul_{size}")


def test_a_lowered_matmul_asks_no_guard_in_its_middle() -> None:
    lowered = lower(matmul(8, 6, 5))
    assert not any(isinstance(each, Branch) for each in statements(lowered.body))
    assert any(isinstance(each, For) for each in statements(lowered.body))


def test_a_target_nobody_lowers_for() -> None:
    with pytest.raises(InputError, match="one of cpu, gpu, accel"):
        lower(matmul(4, 4, 4), "cuda")  # type: ignore[arg-type]
