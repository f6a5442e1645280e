"""Another batch: row by row, a model computes what it did for one example."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica.ir.text.script import from_text
from plica.rewrite.graph.batch import rebatched
from plica.runtime.error import InputError
from tests.frontend.zoo.small import SMALL

HEAD = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32, i64
"""
RESHAPED = (
    HEAD
    + """
@plica.function
def main(x: Tensor[(1, 8), f32], w: Tensor[(4, 2), f32]) -> Tensor[(1, 4), f32]:
    y = op.reshape(x, (1, 2, 4))
    z = op.reshape(y, (2, 4)) @ w
    return op.reshape(nn.softmax(z, axis=-1), (1, 4))
"""
)


@pytest.mark.parametrize("size", [1, 3])
def test_rows_are_those_of_single_examples(size: int) -> None:
    module, made = from_text(RESHAPED), rebatched(from_text(RESHAPED), size)
    random = np.random.default_rng(0)
    x = random.standard_normal((size, 8)).astype(np.float32)
    w = random.standard_normal((4, 2)).astype(np.float32)
    rows = [plica.interpret(module, row[None], w) for row in x]
    np.testing.assert_array_equal(plica.interpret(made, x, w), np.concatenate(rows))
    np.testing.assert_allclose(plica.compile(made)(x, w), np.concatenate(rows), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "resnet18", "mobilenet_v2"])
def test_networks_of_another_batch(name: str) -> None:
    module = SMALL[name]()
    exe, many = plica.compile(module), plica.compile(rebatched(module, 3))
    shape = exe.inputs[0].shape
    x = np.random.default_rng(1).standard_normal((3, *shape[1:])).astype(np.float32)
    rows = np.concatenate([exe(row[None]) for row in x])
    np.testing.assert_allclose(many(x), rows, rtol=1e-3, atol=1e-5)


def test_inputs_by_name() -> None:
    made = rebatched(from_text(RESHAPED), 2, inputs=("x",))
    assert [str(each.type) for each in made.main_function().params] == [
        "Tensor[(2, 8), f32]", "Tensor[(4, 2), f32]",
    ]  # fmt: skip


def test_what_has_no_batch_is_refused() -> None:
    module = from_text(RESHAPED)
    with pytest.raises(InputError, match="one example or more"):
        rebatched(module, 0)
    with pytest.raises(InputError, match="no such input"):
        rebatched(module, 2, inputs=("y",))
    loop = (
        HEAD
        + """
@plica.function
def main(n: Tensor[(1,), f32]) -> Tensor[(1,), f32]:
    if op.sum(n) <= 0.0:
        r = n
    else:
        r = n + 1.0
    return r
"""
    )
    with pytest.raises(InputError, match="control flow"):
        rebatched(from_text(loop), 2)
    with pytest.raises(InputError, match="not known"):
        rebatched(from_text(RESHAPED), 2, inputs=("x", "w"))
