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
HUGGING_FACE: Final[Mapping[str, str]] = {
    "embed_tokens": "embedding", "wte": "embedding", "wpe": "position_embedding",
    "lm_head": "head", "norm": "norm", "ln_f": "norm", "final_layernorm": "norm",
    "input_layernorm": "attention_norm", "ln_1": "attention_norm",
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v",
    "self_attn.qkv_proj": "qkv", "attn.c_attn": "qkv", "self_attn.o_proj": "o",
    "self_attn.dense": "o", "attn.c_proj": "o", "self_attn.q_norm": "q_norm",
    "self_attn.q_layernorm": "q_norm", "self_attn.k_norm": "k_norm",
    "self_attn.k_layernorm": "k_norm", "post_attention_layernorm": "mlp_norm", "ln_2": "mlp_norm",
    "pre_feedforward_layernorm": "mlp_norm", "post_feedforward_layernorm": "mlp_post_norm",
    "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.fc1": "up", "mlp.c_fc": "up",
    "mlp.gate_up_proj": "gate_up", "mlp.down_proj": "down", "mlp.fc2": "down",
    "mlp.c_proj": "down", "mlp.gate": "router", "block_sparse_moe.gate": "router",
}
"""Weights of `safetensors` files, by their names without the prefix and the layer."""

GGUF: Final[Mapping[str, str]] = {
    "token_embd": "embedding", "position_embd": "position_embedding", "output": "head",
    "output_norm": "norm", "attn_norm": "attention_norm", "attn_q": "q", "attn_k": "k",
    "attn_v": "v", "attn_qkv": "qkv", "attn_output": "o", "attn_q_norm": "q_norm",
    "attn_k_norm": "k_norm", "ffn_norm": "mlp_norm", "post_attention_norm": "attention_post_norm",
    "post_ffw_norm": "mlp_post_norm", "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down",
    "ffn_gate_inp": "router", "ffn_gate_exps": "experts_gate", "ffn_up_exps": "experts_up",
    "ffn_down_exps": "experts_down",
}
"""Weights of GGUF files."""

OUTER: Final = frozenset({"embedding", "position_embedding", "head", "norm"})
"""Weights outside of layers."""

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
    """The canonical name of a weight, or None if the decoder does not use it.

    A weight of one of several experts ends with `:` and its number.
    """
    bare, _, kind = _PREFIX.sub("", name).rpartition(".")
    end = {"weight": "", "bias": "_bias"}.get(kind)
    if end is None:
        return None
    layer = _LAYER.match(bare)
    if layer and (expert := _EXPERT.match(layer[2])):
        part = EXPERT.get(expert[2])
        return None if part is None else f"layer{layer[1]}_experts_{part}:{expert[1]}"
    inner = _named(family).get(layer[2] if layer else bare)
    if inner is None or (inner in OUTER) == bool(layer):
        return None
    return f"layer{layer[1]}_{inner}{end}" if layer else inner + end


def _named(family: str) -> Mapping[str, str]:
    return {**HUGGING_FACE, **GGUF, **OF_FAMILY.get(family, {})}


def spellings(word: str, family: str, names: Iterable[str]) -> list[str]:
    """How a file that has these names may call the weight of a canonical name.

    >>> spellings("layer1_q", "llama", ["model.layers.0.self_attn.q_proj.weight"])
    ['model.layers.1.self_attn.q_proj.weight']
    """
    names = tuple(names)
    first = next((name for name in names if _LAYER.match(_PREFIX.sub("", name))), "")
    prefix = _PREFIX.match(first)
    parts = re.fullmatch(r"(?:layer(\d+)_|)(\w+?)(_bias|)", word)
    assert parts is not None
    group = re.match(r"(?:layers|h|blk)\.", _PREFIX.sub("", first))
    known = GGUF if group and group[0] == "blk." else HUGGING_FACE
    layer = f"{group[0] if group else 'layers.'}{parts[1]}." if parts[1] else ""
    end = ".bias" if parts[3] else ".weight"
    found = [
        f"{prefix[0] if prefix and old != 'lm_head' else ''}{layer}{old}{end}"
        for old in known if _named(family)[old] == parts[2]
    ]  # fmt: skip
    alike = {re.sub(r"\d+", "#", name) for name in names}
    return [each for each in found if re.sub(r"\d+", "#", each) in alike] or found or [word]


def grouped(names: Iterable[str], family: str) -> Mapping[str, tuple[str, ...]]:
    """From canonical names to their source tensors: one weight, or those of all experts in
    order."""
    found: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if (word := canonical(name, family)) is not None:
            whole, _, number = word.partition(":")
            found[whole][int(number or 0)] = name
    return {word: tuple([each[at] for at in sorted(each)]) for word, each in found.items()}
