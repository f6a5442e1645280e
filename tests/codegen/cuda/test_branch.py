"""Branches: steps in any order that their waits allow leave memory as they would one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica.codegen.cuda.branch import FEWEST, Span, Touched, depth, waits
from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import path_of
from plica.ir.text.script import from_text
from plica.pipeline import assemble, lower
from plica.runtime.artefact import Artefact
from plica.runtime.cuda.step import DeviceProgram, from_data, to_data
from plica.runtime.error import ArtefactError
from plica.runtime.load import executable
from tests.codegen.cuda.emulate import COMPILER
from tests.runtime.cuda.fake import FakeDriver, plugged

needs = pytest.mark.skipif(
    COMPILER is None or path_of() is None, reason="no C++ compiler, or no NVRTC: plica[cuda]"
)

spans = st.tuples(st.integers(0, 12), st.integers(1, 4)).map(lambda of: (of[0], sum(of)))
touches = st.tuples(st.lists(spans, max_size=2), st.lists(spans, min_size=1, max_size=2))


def left_behind(steps: Sequence[Touched], order: Sequence[int]) -> list[int]:
    """Memory after steps, each of which writes what it alone can make of what it reads."""
    memory = [0] * 20

    def held(of: Sequence[Span]) -> tuple[int, ...]:
        return tuple([memory[at] for span in of for at in range(*span)])

    for number in order:
        read, written = steps[number]
        value = hash((number, held(read)))
        for span in written:
            memory[span[0] : span[1]] = [value] * (span[1] - span[0])
    return memory


@given(st.lists(touches, max_size=12), st.randoms(use_true_random=False))
def test_any_order_that_is_allowed_means_the_same(steps: list[Touched], random: Random) -> None:
    found, order = waits(steps), list[int]()
    while len(order) < len(steps):
        ready = [n for n, each in enumerate(found) if n not in order and {*each} <= {*order}]
        order.append(random.choice(ready))
    assert left_behind(steps, order) == left_behind(steps, range(len(steps)))


def test_what_is_waited_for_anyhow_is_not_named() -> None:
    steps: list[Touched] = [([(0, n)], [(n, n + 1)]) for n in range(1, 6)]
    assert waits(steps) == ((), (0,), (1,), (2,), (3,))
    assert depth(waits(steps)) == 5


CHAINS = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(4, 8), f32], w: Tensor[(8, 8), f32]):
    a = op.matmul(x, w)
    b = op.matmul(w, op.transpose(x, axes=(1, 0)))
    a = op.matmul(op.tanh(op.matmul(op.tanh(op.matmul(op.tanh(a), w)), w)), w)
    b = op.matmul(w, op.tanh(op.matmul(w, op.tanh(op.matmul(w, op.tanh(b))))))
    return op.matmul(a, b)
"""


@lru_cache(maxsize=1)
def chains() -> Artefact:
    """A model of two chains of products, and one of both."""
    target = GpuTarget("sm_90")
    made = assemble(lower(from_text(CHAINS), target=target), target)
    assert isinstance(made, Artefact)
    return made


@needs
def test_chains_run_beside_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    made, gpu = chains(), plugged(monkeypatch, FakeDriver())
    assert isinstance(made.device, DeviceProgram)
    assert depth(made.device.after) < len(made.device.steps) >= FEWEST
    gpu.runs(made)
    random = np.random.default_rng(0)
    given_ = [random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (8, 8))]
    meant = np.asarray(plica.interpret(from_text(CHAINS), *given_))
    np.testing.assert_allclose(executable(made)(*given_), meant, rtol=1e-4, atol=1e-4)
    assert "cuStreamUpdateCaptureDependencies" in gpu.asked


@needs
@pytest.mark.parametrize("after", [[[0]], [[], [7]], "none", [["0"]]])
def test_an_order_that_cannot_be_is_refused(after: object) -> None:
    device = chains().device
    assert isinstance(device, DeviceProgram)
    assert from_data(to_data(device)) == device
    with pytest.raises(ArtefactError):
        from_data({**to_data(device), "after": after})
