"""Models of `transformers` by `torch.export`: the families of `plica_lm`, and others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from tests.lm.network import CASES, COMMON, saved

OTHERS: dict[str, dict[str, Any]] = {
    "falcon": {}, "gpt_neox": {}, "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 2, "n_head": 4}, "stablelm": {}, "olmo2": {}, "cohere": {},
    "starcoder2": {}, "granite": {}, "glm": {"head_dim": 8}, "smollm3": {},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2},
}  # fmt: skip
SOON = ("gpt2", "bloom")
FAMILIES = [each for each in CASES if " " not in each or each == "qwen3 moe"]


def network(name: str) -> Any:
    """A small random model."""
    if name in CASES:
        return saved(name)[0]
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    maker: Any = AutoModelForCausalLM  # functions without types
    config = AutoConfig.for_model(name, **{**COMMON, **OTHERS[name]})
    return maker.from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("name", [
    pytest.param(each, marks=[pytest.mark.slow] * (each not in SOON))
    for each in (*FAMILIES, *OTHERS)
])  # fmt: skip
def test_logits_of_exported_models_are_those_of_torch(name: str) -> None:
    import torch

    of = network(name)

    class Logits(torch.nn.Module):
        """The model without a cache."""

        def __init__(self) -> None:
            super().__init__()
            self.of = of

        def forward(self, tokens: Any) -> Any:
            return self.of(input_ids=tokens, use_cache=False).logits

    tokens = torch.randint(0, 96, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = of(tokens).logits.numpy()
    exported = torch.export.export(Logits(), (tokens,), strict=False)
    found = np.asarray(plica.compile(plica.from_torch(exported), threads=1)(tokens.numpy()))
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
