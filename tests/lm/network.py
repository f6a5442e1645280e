"""Small random models of `transformers`, one for each family and each way to scale rotary
positions, saved and read by `plica_lm`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import evolve

from plica.ir.type import dtype
from plica_lm.architecture import Architecture, from_config
from plica_lm.model import LanguageModel
from plica_lm.naming import grouped
from plica_lm.tokenizer import Tokenizer
from plica_lm.weight import Weight

COMMON: Final[Mapping[str, Any]] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "initializer_range": 0.3, "eos_token_id": None, "bos_token_id": None, "pad_token_id": None,
}  # fmt: skip


def _rotary(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


# fmt: off
CASES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "llama": ("llama", {}),
    "llama linear": ("llama", _rotary("linear", factor=4.0)),
    "llama llama3": ("llama", _rotary(
        "llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32)),
    "qwen2": ("qwen2", {}),
    "qwen2 yarn": ("qwen2", _rotary("yarn", factor=4.0, original_max_position_embeddings=16)),
    "qwen3": ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "mistral": ("mistral", {"sliding_window": 5}),
    "gemma2": ("gemma2", {
        "head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("gemma3_text", {
        "head_dim": 16, "sliding_window": 5, "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "phi": ("phi", {}),
    "phi3": ("phi3", {}),
    "phi3 longrope": ("phi3", {
        "original_max_position_embeddings": 128,
        **_rotary("longrope", short_factor=[1.0, 1.1, 1.2, 1.3],
                  long_factor=[2.0, 3.0, 4.0, 5.0], factor=4.0)}),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128,
                      "num_key_value_heads": None}),
    "mixtral": ("mixtral", {"num_local_experts": 4}),
    "qwen3 moe": ("qwen3_moe", {
        "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
}
# fmt: on


@cache
def saved(name: str) -> tuple[Any, Path]:
    """A model of torch, and the folder that it was saved to; Any: a PreTrainedModel."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, utils

    quiet: Any = utils.logging  # Any: functions without types
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    maker: Any = AutoModelForCausalLM  # as above
    family, own = CASES[name]
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**COMMON, **own})
    model = maker.from_config(config, attn_implementation="eager")
    centre = 0.0 if family.startswith("gemma") else 1.0
    for word, each in model.named_parameters():
        if "norm" in word or "ln_" in word or "bias" in word:
            each.data.normal_(centre if word.endswith("weight") else 0.0, 0.3)
    folder = Path(tempfile.mkdtemp())
    model.eval().save_pretrained(folder)
    return model, folder


def loaded(folder: Path) -> tuple[Architecture, dict[str, Weight]]:
    """The architecture and the weights of a folder."""
    from safetensors.numpy import load_file

    of = from_config(json.loads((folder / "config.json").read_text()))
    raw = load_file(folder / "model.safetensors")
    weights = {}
    for name, parts in grouped(raw, of.family).items():
        array = raw[parts[0]] if len(parts) == 1 else np.stack([raw[each] for each in parts])
        weights[name] = Weight(name, array.shape, dtype(str(array.dtype)[:1] + "32"), array)
    return of, weights


@cache
def model(name: str, context: int | None = None, seed: int = 0) -> LanguageModel:
    """A compiled model with a token for each printable character, the last of which ends a text."""
    _, folder = saved(name)
    of, weights = loaded(folder)
    if seed:
        draw = np.random.default_rng(seed)
        for word in sorted(weights):
            array = weights[word].data
            noise = draw.standard_normal(array.shape).astype(array.dtype) * array.std()
            weights[word] = evolve(weights[word], data=array + noise * np.float32(0.1))
    of = evolve(of, context=context or of.context)
    return LanguageModel(of, weights, characters(), threads=1)


@cache
def characters() -> Tokenizer:
    """95 printable characters and an end."""
    from tokenizers import Tokenizer as Inner, decoders, models

    words = {chr(at): at - 32 for at in range(32, 127)} | {"<end>": 95}
    inner = Inner(models.BPE(words, []))
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(["<end>"])
    return Tokenizer(inner, frozenset({95}), None, "", "<end>")
