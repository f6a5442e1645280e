"""The decoder beside `transformers`: logits of prompts and of steps, and greedy text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica_lm.decoder import caches_of, decoder
from tests.lm.network import CASES, loaded, saved

Array = np.ndarray[Any, Any]

BATCH, PROMPT, TEXT, CONTEXT = 2, 12, 64, 128


class _Run:
    """A compiled decoder with a cache for a batch."""

    def __init__(self, name: str) -> None:
        self.torch, folder = saved(name)
        of, weights = loaded(folder)
        module = decoder(of, weights)
        self.exe = plica.compile(module, threads=1, donate=caches_of(of))
        self.weights = {name: each.data for name, each in weights.items()}
        shape = (BATCH * CONTEXT, of.shared, of.head)
        self.caches = {name: np.full(shape, 9.0, np.float32) for name in caches_of(of)}
        self.table = np.random.default_rng(0).permutation(BATCH * CONTEXT).reshape(BATCH, CONTEXT)

    def __call__(self, tokens: Array, start: int) -> Array:
        """The logits of new tokens, all of whose texts are as long."""
        batch, new = tokens.shape
        places = np.arange(start, start + new)
        logits, *caches = self.exe(
            tokens=tokens, positions=np.tile(places, (batch, 1)),
            rows=self.table[:, places], seen=self.table[:, : start + new].copy(),
            wanted=np.arange(batch * new), **self.caches, **self.weights,
        )  # fmt: skip
        given = self.caches.values()
        assert all(new is old for new, old in zip(caches, given, strict=True))  # in place
        return np.asarray(logits).reshape(batch, new, -1)


LATER = ("llama linear", "llama llama3", "qwen2 yarn", "phi3 longrope", "qwen2", "phi3", "mistral")
"""What differs from others in frequencies, or in less; these are compared below, too."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each in LATER)) for each in CASES]
)
def test_logits_and_greedy_text_are_those_of_torch(name: str) -> None:
    import torch

    run = _Run(name)
    tokens = np.random.default_rng(1).integers(0, 96, (BATCH, PROMPT))
    with torch.no_grad():
        said = run.torch.generate(torch.tensor(tokens), max_new_tokens=TEXT, do_sample=False)
        expected = run.torch(said).logits.numpy()
    text = said.numpy()
    found = [run(tokens[:, :7], 0), run(tokens[:, 7:], 7)]
    for at in range(PROMPT, PROMPT + TEXT):
        best = found[-1][:, -1].argmax(axis=-1)
        np.testing.assert_array_equal(best, text[:, at])
        found.append(run(best[:, None], at))
    error = np.abs(np.concatenate(found, axis=1) - expected).max() / np.abs(expected).max()
    assert error < 1e-5
    assert run.exe.stats.at_call == 0  # one code for all lengths


@pytest.mark.parametrize("name", [each for each in CASES if "gpt2" not in each])
def test_frequencies_are_those_of_transformers(name: str) -> None:
    network, folder = saved(name)
    of, _ = loaded(folder)
    parts: Any = dict(network.model.rotary_emb.named_buffers())
    kinds = getattr(network.config, "layer_types", None) or ["full_attention"] * len(of.layers)
    for layer, kind in zip(of.layers, kinds, strict=True):
        assert layer.rotary is not None
        own = parts.get(f"{kind}_inv_freq", parts.get("inv_freq"))
        np.testing.assert_allclose(layer.rotary.frequencies, own.numpy(), rtol=1e-5)
        scale = getattr(network.model.rotary_emb, "attention_scaling", 1.0)
        assert layer.rotary.scale == pytest.approx(scale)
