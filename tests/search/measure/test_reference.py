"""References: small integers, and a difference that cannot be rounding."""

from __future__ import annotations

import numpy as np
import pytest

from plica.core.name import Name
from plica.ir.dtype import DType, f16, f32, f64, i32, u8
from plica.ir.graph import Var
from plica.ir.interpret import interpret
from plica.ir.module import module
from plica.search.measure.job import job_of
from plica.search.measure.reference import disagreement, drawn, far, poisoned, reference_of
from plica.search.measure.slot import slot, slot_path
from tests.search.measure.work import TARGET, TASK, product_space


def test_the_reference_is_what_the_interpreter_says() -> None:
    space = product_space()
    found = reference_of(job_of(TASK, space, space.default, TARGET))
    main = Var(Name("main"), None)
    meant = interpret(module({main: TASK.function}, main), *found.inputs)
    assert isinstance(meant, np.ndarray)
    assert np.array_equal(found.expected, meant)
    assert np.array_equal(found.expected, np.rint(found.expected))


@pytest.mark.parametrize("dtype", [f16, f32, f64, i32, u8], ids=str)
def test_one_missing_term_is_far(dtype: DType) -> None:
    random = np.random.default_rng(1)
    meant = drawn(random, (64,), dtype, (-3, 3)) + drawn(random, (64,), dtype, (1, 4))
    other = meant.copy()
    other[17] += 1
    assert np.flatnonzero(far(other, meant)).tolist() == [17]
    assert disagreement(meant.copy(), meant) == ""
    assert "Element [17]" in disagreement(other, meant)


def test_poison_is_never_taken_for_a_result() -> None:
    meant = np.zeros((4, 2), np.float32)
    assert far(poisoned((4, 2), np.dtype(np.float32)), meant).all()
    assert "8 of 8" in disagreement(poisoned((4, 2), np.dtype(np.float32)), meant)


def test_the_slot_is_for_one() -> None:
    import fcntl

    with slot(), slot_path().open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
