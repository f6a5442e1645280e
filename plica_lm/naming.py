"""Names of weights: from Hugging Face checkpoints and GGUF files to one canonical name each.

    model.layers.3.self_attn.q_proj.weight  -> layer3_q         blk.3.attn_q.bias  -> layer3_q_bias

>>> canonical("model.layers.3.self_attn.q_proj.weight", "llama")
'layer3_q'
>>> canonical("blk.0.ffn_gate_exps.weight", "llama"), canonical("rope_freqs.weight", "llama")
('layer0_experts_gate', None)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

# fmt: off
OUTER: Final[Mapping[str, str]] = {
    "embed_tokens": "embedding", "wte": "embedding", "token_embd": "embedding",
    "wpe": "position_embedding", "position_embd": "position_embedding",
    "lm_head": "head", "output": "head",
    "norm": "norm", "ln_f": "norm", "final_layernorm": "norm", "output_norm": "norm",
}
"""Weights outside of layers."""

INNER: Final[Mapping[str, str]] = {
    "input_layernorm": "attention_norm", "ln_1": "attention_norm", "attn_norm": "attention_norm",
    "self_attn.q_proj": "q", "attn_q": "q", "self_attn.k_proj": "k", "attn_k": "k",
    "self_attn.v_proj": "v", "attn_v": "v", "self_attn.qkv_proj": "qkv", "attn.c_attn": "qkv",
    "attn_qkv": "qkv", "self_attn.o_proj": "o", "self_attn.dense": "o", "attn.c_proj": "o",
    "attn_output": "o", "self_attn.q_norm": "q_norm", "attn_q_norm": "q_norm",
    "self_attn.q_layernorm": "q_norm", "self_attn.k_layernorm": "k_norm",
    "self_attn.k_norm": "k_norm", "attn_k_norm": "k_norm",
    "post_attention_layernorm": "mlp_norm", "ln_2": "mlp_norm", "ffn_norm": "mlp_norm",
    "pre_feedforward_layernorm": "mlp_norm", "post_attention_norm": "attention_post_norm",
    "post_feedforward_layernorm": "mlp_post_norm", "post_ffw_norm": "mlp_post_norm",
    "mlp.gate_proj": "gate", "ffn_gate": "gate", "mlp.up_proj": "up", "ffn_up": "up",
    "mlp.fc1": "up", "mlp.c_fc": "up", "mlp.gate_up_proj": "gate_up", "mlp.down_proj": "down",
    "mlp.fc2": "down", "mlp.c_proj": "down", "ffn_down": "down",
    "mlp.gate": "router", "block_sparse_moe.gate": "router", "ffn_gate_inp": "router",
    "ffn_gate_exps": "experts_gate", "ffn_up_exps": "experts_up", "ffn_down_exps": "experts_down",
}
"""Weights of layers."""

OF_FAMILY: Final[Mapping[str, Mapping[str, str]]] = {
    "gemma2": {"post_attention_layernorm": "attention_post_norm"},
    "gemma3_text": {"post_attention_layernorm": "attention_post_norm"},
    "phi3": {"ffn_up": "gate_up"},
}

EXPERT: Final[Mapping[str, str]] = {
    "gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down",
    "w2": "down",
}
# fmt: on

_PREFIX: Final = re.compile(r"^(?:model\.|language_model\.|transformer\.)+")
_LAYER: Final = re.compile(r"^(?:layers|h|blk)\.(\d+)\.(.*)$")
_EXPERT: Final = re.compile(r"^(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)$")


def canonical(name: str, family: str) -> str | None:
    """The canonical name of a weight; None where the decoder does not read it.

    A weight of one of several experts ends with `:` and its number.
    """
    bare, _, kind = _PREFIX.sub("", name).rpartition(".")
    end = {"weight": "", "bias": "_bias"}.get(kind)
    if end is None:
        return None
    if not (found := _LAYER.match(bare)):
        return None if (word := OUTER.get(bare)) is None else word + end
    if expert := _EXPERT.match(found[2]):
        return f"layer{found[1]}_experts_{EXPERT[expert[2]]}:{expert[1]}"
    inner = {**INNER, **OF_FAMILY.get(family, {})}.get(found[2])
    return None if inner is None else f"layer{found[1]}_{inner}{end}"


def grouped(names: Iterable[str], family: str) -> Mapping[str, tuple[str, ...]]:
    """From canonical names to the names of what they are made of: one weight, or those of all
    experts in their order."""
    found: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if (word := canonical(name, family)) is not None:
            whole, _, number = word.partition(":")
            found[whole][int(number or 0)] = name
    return {word: tuple([each[at] for at in sorted(each)]) for word, each in found.items()}
