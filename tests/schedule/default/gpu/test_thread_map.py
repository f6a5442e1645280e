"""Each element by a thread: the template that fits everything."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stages import kernel_of
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.thread import plain_threads
from tests.schedule.default.gpu.contractions import drawn, image


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_drawn_is_spread(seed: int) -> None:
    assert plain_threads(kernel_of(drawn(seed).of), Gpu(processors=4)) is not None


def test_loops_that_are_not_shown_to_be_one_are_bound_apart() -> None:
    """Two images of ten channels: of all their elements as one that is not shown."""
    case = image((2, 2, 4), 10, ends="bias")
    found = plain_threads(kernel_of(case.of), Gpu(threads=64))
    assert found is not None
    (made,) = run_kernel(lower(found[1], "gpu"), case.arrays())
    np.testing.assert_array_equal(made, case.expected())
