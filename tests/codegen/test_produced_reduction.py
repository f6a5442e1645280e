"""Reductions of what comes in pieces: phases, slices, pads, concatenations, tiles, on every target.

A reduction is fused with what is in front of it where that is a slice, a pad or a choice of pieces;
the result of a transposed convolution with strides is interleaved phases, of which a slice is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np
import pytest

import plica
from plica.ir.interpret.value import Array
from plica.runtime.emulator.gpu import compiler
from tests.deep import spread

PRODUCERS: Final = {
    "prefix": "op.slice({x}, (0, 0), (11, 11), axes=(2, 3))",
    "phases": "op.nn.conv_transpose({x}, w, strides=(2, 2), padding=1)",
    "dilated phases": "op.nn.conv_transpose({x}, w, strides=(3, 2), padding=1, dilation=2)",
    "phases of one axis": "op.nn.conv_transpose({x}, w, strides=(1, 2), padding=(1, 1))",
    "middle": "op.slice({x}, (1, 2), (12, 13), axes=(2, 3))",
    "steps": "op.slice({x}, (0, 1), (12, 13), (2, 3), axes=(2, 3))",
    "pad": "op.pad({x}, ((0, 0), (0, 0), (1, 0), (2, 3)))",
    "mirror": "op.pad({x}, ((0, 0), (0, 0), (1, 0), (2, 3)), mode='reflect')",
    "concat": "op.concat((op.slice({x}, (0,), (11,), axes=(3,)), {x}), axis=3)",
    "channels": "op.concat(({x}, op.flip({x}, axis=(2,))), axis=1)",
    "winograd": "op.nn.conv({x}, op.transpose(w, (1, 0, 2, 3)), padding=1)",
    "window": "op.nn.conv({x}, op.transpose(w, (1, 0, 2, 3)), strides=2, padding=((2, 0), (0, 2)))",
    "pool": "op.nn.max_pool({x}, kernel=(3, 3), strides=(2, 2), padding=1)",
    "flip": "op.flip({x}, axis=(2, 3))",
}
REDUCTIONS: Final = (
    "op.mean({}, axis=(2, 3))", "op.sum({}, axis=(3,))", "op.max({}, axis=(0, 2, 3))",
    "op.sum({}, axis=(0, 2))", "op.var({}, axis=(1, 2, 3))", "op.argmax({}, axis=3)",
    "op.nn.softmax({}, axis=-1)", "op.mean({}, axis=(1,))", "op.nn.softmax({}, axis=1)",
)  # fmt: skip
TARGETS: Final = ("cuda-emulator", "cpu", "c")


def pairs(producer: str, reductions: Sequence[str]) -> str:
    """A program of some reductions, each of a producer of its own, which none shares."""
    names = [f"x{number}" for number in range(len(reductions))]
    x = ", ".join([f"{each}: Tensor[(2, 3, 12, 13), f32]" for each in names])
    results = [reduce.format(PRODUCERS[producer].format(x=each))
               for reduce, each in zip(reductions, names, strict=True)]  # fmt: skip
    return f"""
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main({x}, w: Tensor[(3, 4, 3, 3), f32]):
    return ({", ".join(results)},)
"""


def arrays(reductions: int) -> list[Array]:
    random = np.random.default_rng(0)
    shapes = [(2, 3, 12, 13)] * reductions + [(3, 4, 3, 3)]
    return [random.uniform(0.5, 1.5, shape).astype(np.float32) for shape in shapes]


def check(producer: str, target: str, reductions: Sequence[str]) -> None:
    if target == "cuda-emulator" and compiler() is None:
        pytest.skip("there is no C++ compiler here")
    module, given = plica.from_text(pairs(producer, reductions)), arrays(len(reductions))
    found = plica.compile(module, target=target, cache=False)(*given)
    meant = plica.interpret(module, *given)
    for reduce, ours, wanted in zip(reductions, found, meant, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=2e-4, atol=1e-5, err_msg=reduce)


def test_the_mean_of_phases_is_right_on_a_gpu() -> None:
    check("phases", "cuda-emulator", REDUCTIONS[:1])


@pytest.mark.parametrize(("producer", "target"), spread(product(PRODUCERS, TARGETS), 3))
def test_a_reduction_of_pieces_is_right(producer: str, target: str) -> None:
    check(producer, target, REDUCTIONS)
