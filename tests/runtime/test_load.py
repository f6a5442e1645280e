"""Many Python threads call one executable: right results, and memory that does not grow."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plica.ir.interpret.interpreter import interpret
from plica.ir.text.script import from_text
from plica.pipeline import compile
from tests.conftest import PROFILE

THREADS = 8
CALLS = {"ci": 100, "dev": 1_000}.get(PROFILE, 10_000)
MODEL = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(64, 32), f32], w: Tensor[(32, 256), f32]) -> Tensor[(64, 256), f32]:
    y = op.nn.softmax(op.matmul(x, w), axis=-1)
    return op.nn.relu(op.matmul(y, op.matmul(op.transpose(w), w))) + y
"""


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("inner", [1, 2])
def test_threads_share_an_executable(inner: int) -> None:
    module = from_text(MODEL)
    exe = compile(module, threads=inner, cache=False)
    random = np.random.default_rng(inner)
    w = random.standard_normal((32, 256)).astype(np.float32)
    inputs = [random.standard_normal((64, 32)).astype(np.float32) for _ in range(16)]
    expected: list[Any] = [exe(x, w) for x in inputs]
    np.testing.assert_allclose(expected[3], interpret(module, inputs[3], w), rtol=1e-3, atol=1e-3)
    wrong: list[int] = []
    sizes: list[int] = []

    def work(number: int) -> None:
        for call in range(CALLS):
            at = (number * 5 + call) % len(inputs)
            if not np.array_equal(exe(inputs[at], w), expected[at]):
                wrong.append(call)
            if number == 0 and call % (CALLS // 10) == 0 and sys.platform == "linux":
                sizes.append(resident())

    workers = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert wrong == []
    # A call makes 64 kB: were a tenth of the results kept, 10 MB would be there at the end.
    assert not sizes or sizes[-1] - sizes[2] < THREADS * CALLS * 6_500
