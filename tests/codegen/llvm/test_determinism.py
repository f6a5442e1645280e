"""Determinism: under `exact` bits depend neither on the number of threads nor on other rows.

Code within `exact` has the bits of the interpreter, whose sums have an order that the sizes of the
summed axes alone determine (`plica.ir.loop.summation`): both laws follow from that one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.cli.fuzz.graph import shaped
from plica.ir.contract import exact
from plica.rewrite.fuzz.case import Case, cases
from plica.rewrite.fuzz.difference import Meaning, unlike
from plica.runtime.error import UnsupportedError

HEADER: Final = """
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[({batch}, {shape}), f32]{more}):
    return {body}
"""

BODIES: Final = {
    "sum": ("K, 7", "", "op.sum(x, axis=1)"),
    "mean": ("7, K", "", "op.mean(x, axis=(1, 2))"),
    "norm": ("K", "", "x / op.sqrt(op.mean(x * x, axis=1, keepdims=True))"),
    "softmax": ("3, K", "", "nn.softmax(x, axis=-1)"),
    "softmax of columns": ("K, 5", "", "nn.softmax(x, axis=1)"),
    "logsumexp": ("K", "", "op.logsumexp(x, axis=1)"),
    "cumsum": ("K", "", "op.cumsum(x, axis=1)"),
    "prod": ("K", "", "op.prod(x * 0.01 + 1.0, axis=1)"),
    "dense": ("K", ", w: Tensor[(33, K), f32]", "nn.relu(nn.dense(x, w))"),
    "matmul": ("9, K", ", w: Tensor[(K, 20), f32]", "op.matmul(x, w)"),
    "attention": ("11, K", "",
                  "op.matmul(nn.softmax(op.matmul(x, op.transpose(x, (0, 2, 1))), axis=-1), x)"),
    "convolution": ("K, 9, 9", ", w: Tensor[(8, K, 3, 3), f32]", "nn.conv(x, w)"),
    "pool": ("K, 9, 9", "", "nn.avg_pool(x, (3, 3))"),
}  # fmt: skip
"""A shape, what else there is, and what is computed of each row of a batch."""

BATCHES: Final = (1, 5, 16)
LENGTHS: Final = (3, 17, 64, 300)


def module_of(name: str, batch: int | str, length: int) -> Any:
    shape, more, body = BODIES[name]
    text = HEADER.format(batch=batch, shape=shape, more=more, body=body)
    return plica.from_text(text.replace("K", str(length)))


def arrays(module: Any, seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    exe = plica.compile(module, effort="fast")
    return [random.standard_normal(port.shape).astype(np.float32) for port in exe.inputs]


def spread() -> list[Any]:
    """Every body at every length; one length of each is always tried, the others are slow."""
    return [
        pytest.param(name, length, 2 + (n + at) % 3, id=f"{name}-{length}",
                     marks=() if (n + at) % len(LENGTHS) == 0 else pytest.mark.slow)
        for n, name in enumerate(BODIES) for at, length in enumerate(LENGTHS)
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "length", "threads"), spread())
def test_a_row_has_its_bits_in_any_batch_on_any_threads(
    name: str, length: int, threads: int
) -> None:
    largest = module_of(name, BATCHES[-1], length)
    data, *weights = arrays(largest, length)
    whole = np.asarray(plica.interpret(largest, data, *weights))
    open_ = plica.compile(module_of(name, '"n"', length), contract=exact, threads=threads)
    for batch in BATCHES:
        assert np.asarray(open_(data[:batch], *weights)).tobytes() == whole[:batch].tobytes()
        module = module_of(name, batch, length)
        for count in (1, threads) if batch == BATCHES[1] else (threads,):
            exe = plica.compile(module, contract=exact, threads=count, cache=False)
            found = np.asarray(exe(data[:batch], *weights))
            assert found.tobytes() == whole[:batch].tobytes(), (batch, count)


@settings(max_examples=8)
@given(cases(), st.sampled_from((2, 3, 4)))
def test_threads_change_no_bit_of_a_drawn_program(case: Case, threads: int) -> None:
    module, inputs = case
    meaning = Meaning(module, inputs, exact)
    if not meaning.defined:
        return
    try:
        found = plica.compile(module, contract=exact, threads=threads, cache=False)(*inputs)
    except UnsupportedError:
        return
    assert unlike(meaning.value, shaped(found, module), exact) is None
