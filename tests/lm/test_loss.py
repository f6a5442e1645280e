"""The loss of a decoder and its gradient beside `transformers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica_lm.loss import loss
from plica_lm.naming import canonical
from tests.lm.network import CASES, loaded, saved

BATCH, LENGTH = 2, 8


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_the_loss_and_its_gradient_are_those_of_torch(name: str) -> None:
    import torch

    network, folder = saved(name)
    of, weights = loaded(folder)
    draw = np.random.default_rng(3)
    tokens, targets = draw.integers(0, 96, (2, BATCH, LENGTH))
    scores = network(torch.tensor(tokens)).logits
    expected: Any = torch.nn.functional.cross_entropy(
        scores.reshape(-1, 96), torch.tensor(targets).reshape(-1)
    )
    network.zero_grad()
    expected.backward()

    module = plica.value_and_grad(loss(of, weights, BATCH, LENGTH), tuple(weights))
    found, *slopes = plica.compile(module, threads=1)(
        tokens, targets.reshape(-1), **{each: weight.data for each, weight in weights.items()}
    )
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
    for each, slope in zip(weights, slopes, strict=True):
        ((_, wanted),) = [
            (word, weight.grad.numpy())
            for word, weight in network.named_parameters()
            if canonical(word, CASES[name][0]) == each
        ]
        np.testing.assert_allclose(slope, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
