"""Deadlines: the earlier one counts, inside and in threads that run in a copy of the context."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from math import inf
from time import monotonic

import pytest

from plica.codegen.lower.passes import lower
from plica.core.deadline import DeadlinePassed, check_deadline, deadline, seconds_left
from plica.pipeline import compile
from tests.runtime.model import module
from tests.schedule.kernel import matmul


def test_the_earlier_deadline_counts() -> None:
    with deadline(monotonic() + 100.0):
        with deadline(monotonic() + 1000.0):
            assert 0 < seconds_left() <= 100.0
        with pytest.raises(DeadlinePassed), deadline(0.0):
            check_deadline()
        check_deadline()
    assert seconds_left() == inf


def test_a_thread_has_the_deadline_of_the_context_that_it_runs_in() -> None:
    with ThreadPoolExecutor(1) as pool, deadline(0.0):
        assert pool.submit(seconds_left).result() == inf
        assert pool.submit(copy_context().run, seconds_left).result() < 0


def test_lowering_and_compiling_end_at_the_deadline() -> None:
    with deadline(0.0):
        with pytest.raises(DeadlinePassed):
            lower(matmul())
        with pytest.raises(DeadlinePassed):
            compile(module(), cache=False)
