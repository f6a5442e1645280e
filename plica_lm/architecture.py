"""Architectures: the computation of a decoder, from a Hugging Face `config.json` or GGUF metadata.

    Llama, Mistral, Mixtral, Qwen 2 and 3, Qwen3-MoE, Gemma 2 and 3, Phi, Phi-3, GPT-2

The names of weights determine the rest: biases, head norms, a tied head, experts, fused projections
(`plica_lm.naming`).

>>> small = from_config({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
...                   "num_hidden_layers": 2, "max_position_embeddings": 512})
>>> small.head, small.scale, len(small.layers)
(16, 0.25, 2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from plica_lm.config import Config, conflict, needed, normalised
from plica_lm.refusal import refusal, unsupported
from plica_lm.rotary import Rotary, rotary
from plica_lm.value import check, integer


@frozen
class Layer:
    """What differs between layers: the positions, and how many tokens back attention looks."""

    rotary: Rotary | None
    window: int | None


@frozen
class Architecture:
    """A decoder without its weights. `shared` key heads serve `heads` query heads. The model was
    `trained` on this many tokens; `tied` means that the head may be the embedding."""

    family: str
    width: int
    heads: int
    shared: int
    head: int
    context: int
    layers: tuple[Layer, ...]
    scale: float
    epsilon: float
    norm: str = "rms"
    norm_offset: float = 0.0
    activation: str = "silu"
    embedding_scale: float = 1.0
    attention_cap: float | None = None
    logit_cap: float | None = None
    experts_per_token: int = 0
    renormalise: bool = True
    transposed: bool = False
    trained: int | None = None
    vocabulary: int | None = None
    tied: bool = True


FAMILIES: Final[Mapping[str, Config]] = {
    "llama": {}, "mistral": {"windowed": True}, "qwen2": {}, "qwen3": {},
    "mixtral": {"windowed": True, "epsilon": 1e-5}, "qwen3_moe": {"renormalise": "norm_topk_prob"},
    "gemma2": {"norm_offset": 1.0, "windowed": True, "pattern": 2},
    "gemma3_text": {"norm_offset": 1.0, "windowed": True, "pattern": 6},
    "phi": {"norm": "layer", "epsilon": 1e-5}, "phi3": {"windowed": True, "epsilon": 1e-5},
    "gpt2": {"norm": "layer", "epsilon": 1e-5},
}  # fmt: skip
"""The defaults of each family's configuration; of `pattern` layers all but one have sliding
windows."""

ACTIVATIONS: Final = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu",
    "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip


def from_config(
    config: Config,
    context: int | None = None,
    factors: Sequence[float] | None = None,
    spelled: Mapping[str, str] | None = None,
) -> Architecture:
    """The architecture of a `config.json`, for texts of at most `context` tokens.  Refusals call
    an entry as `spelled` says."""
    said = normalised(config, spelled)
    said |= said.get("text_config", {})

    def need(name: str) -> Any:  # Any: what JSON holds
        return needed(said, name, spelled)

    family = {"gemma3": "gemma3_text"}.get(need("model_type"), need("model_type"))
    if family not in FAMILIES:
        raise unsupported("The model_type", family, FAMILIES)
    if "quantization_config" in said:
        found = said["quantization_config"]
        raise refusal("unsupported", "Quantised weights of Hugging Face are not supported.",
                      "no quantization_config", found, "Use a quantised GGUF file.")  # fmt: skip
    defaults = FAMILIES[family]
    width, heads, count = (
        need(name) for name in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    shared = said.get("num_key_value_heads", heads)
    if heads % shared:
        message = "num_attention_heads is not a multiple of num_key_value_heads."
        raise conflict(message, f"a divisor of {heads}", shared, "num_key_value_heads")
    if "head_dim" not in said and width % heads:
        message = "hidden_size is not a multiple of num_attention_heads, and head_dim is missing."
        raise conflict(message, f"a multiple of {heads}", width, "num_attention_heads")
    head = said.get("head_dim", width // heads)
    trained = need("max_position_embeddings")
    if context is not None:
        # Learnt positions end with the table of them; rotary ones go on.
        check("context", context, integer(1, trained) if family == "gpt2" else integer(1))
    context = context or trained
    activation = said.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise unsupported("The activation", activation, ACTIVATIONS)
    kinds = said.get("layer_types") or _kinds(said, defaults, count)
    if len(kinds) != count:
        message = "layer_types does not list one kind for each layer."
        raise conflict(message, f"{count} kinds", len(kinds), "layer_types")
    gemma = family.startswith("gemma")
    return Architecture(
        family=family, width=width, heads=heads, head=head, context=context, shared=shared,
        layers=tuple([_layer(said, family, kind, head, context, factors) for kind in kinds]),
        scale=said.get("query_pre_attn_scalar", head) ** -0.5,
        epsilon=said.get("rms_norm_eps") or defaults.get("epsilon", 1e-6),
        norm=defaults.get("norm", "rms"), logit_cap=said.get("final_logit_softcapping"),
        norm_offset=said.get("norm_offset") or defaults.get("norm_offset", 0.0),
        activation=ACTIVATIONS[activation], embedding_scale=width**0.5 if gemma else 1.0,
        attention_cap=said.get("attn_logit_softcapping"),
        experts_per_token=said.get("num_experts_per_tok") or 0,
        renormalise=bool(said.get(defaults.get("renormalise", ""), "renormalise" not in defaults)),
        transposed=said.get("transposed", family == "gpt2"), trained=trained,
        vocabulary=said.get("vocab_size"), tied=said.get("tie_word_embeddings", True),
    )  # fmt: skip


def _kinds(said: Config, defaults: Config, count: int) -> list[str]:
    """Which layers look back through a window, where the configuration lists none."""
    windowed = defaults.get("windowed") and said.get("sliding_window") is not None
    if said.get("use_sliding_window"):
        first = said.get("max_window_layers", count)
        return ["sliding_attention" if at >= first else "full_attention" for at in range(count)]
    pattern = said.get("sliding_window_pattern", defaults.get("pattern"))
    return [
        "sliding_attention" if windowed and (not pattern or (at + 1) % pattern) else
        "full_attention" for at in range(count)
    ]  # fmt: skip


def _layer(  # noqa: PLR0917  # what a configuration says, and of what
    said: Config, family: str, kind: str, head: int, context: int, factors: Sequence[float] | None
) -> Layer:
    window = said.get("sliding_window") if kind == "sliding_attention" else None
    if family == "gpt2":
        return Layer(None, window)
    scaling = said.get("rope_parameters") or said.get("rope_scaling") or {}
    scaling = scaling.get(kind) or scaling
    local = family == "gemma3_text" and kind == "sliding_attention"
    if local and "rope_parameters" not in said:
        scaling = {}
    base = said.get("rope_local_base_freq", 10000.0) if local else said.get("rope_theta", 10000.0)
    whole = {"trained": said.get("max_position_embeddings"), "rope_theta": base}
    for name in ("partial_rotary_factor", "original_max_position_embeddings", "interleaved"):
        if said.get(name) is not None:
            whole[name] = said[name]
    return Layer(rotary({**whole, **scaling}, head, context, factors), window)


GGUF_FAMILIES: Final = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3moe": "qwen3_moe", "phi2": "phi",
    "gemma2": "gemma2", "gemma3": "gemma3_text", "phi3": "phi3", "gpt2": "gpt2",
}  # fmt: skip

GGUF_NAMES: Final[Mapping[str, str]] = {
    "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "context_length": "max_position_embeddings",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
    "attention.layer_norm_epsilon": "rms_norm_eps", "expert_used_count": "num_experts_per_tok",
    "attention.sliding_window": "sliding_window", "rope.local_freq_base": "rope_local_base_freq",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
}  # fmt: skip
"""What GGUF calls the entries of a configuration, below the name of the architecture."""


def from_gguf(
    metadata: Config, context: int | None = None, factors: Sequence[float] | None = None
) -> Architecture:
    """The architecture of a GGUF file; `factors` is its tensor `rope_freqs` (or the one of the
    wanted context of `rope_factors_short` and `rope_factors_long`)."""
    name = metadata.get("general.architecture")
    if name not in GGUF_FAMILIES:
        raise unsupported("The GGUF architecture (general.architecture)", name, GGUF_FAMILIES)
    said = {key.removeprefix(f"{name}."): value for key, value in metadata.items()}
    spelled = {new: f"{name}.{old}" for old, new in GGUF_NAMES.items()}
    family = GGUF_FAMILIES[name]
    layer_norm = FAMILIES[family].get("norm") == "layer"
    spelled["rms_norm_eps"] = f"{name}.attention.layer_norm_{'' if layer_norm else 'rms_'}epsilon"
    config = normalised({new: said[old] for old, new in GGUF_NAMES.items() if old in said}, spelled)
    needed(config, "rms_norm_eps", spelled)
    width, heads = (needed(config, key, spelled) for key in ("hidden_size", "num_attention_heads"))
    head = config.get("head_dim") or width // heads
    scaling = said.get("rope.scaling.type", "none")
    rope = {"rope_type": scaling if scaling in ("linear", "yarn") else "default",
            "factor": said.get("rope.scaling.factor") or 1.0,  # 0 is none, as in llama.cpp
            "attention_factor": said.get("rope.scaling.attn_factor") or None}  # fmt: skip
    rotated = said.get("rope.dimension_count", head)
    check(f"{name}.rope.dimension_count", rotated, integer(1, max(head, 1)), "bad-model")
    config |= {
        "model_type": family, "norm_offset": 0.0, "transposed": False, "head_dim": head,
        "rope_scaling": rope, "interleaved": name == "llama", "norm_topk_prob": True,
        "partial_rotary_factor": rotated / max(head, 1),
        "hidden_act": {"gpt2": "gelu_new", "phi2": "gelu_new"}.get(
            name, "gelu_pytorch_tanh" if name.startswith("gemma") else "silu"),
    }  # fmt: skip
    return from_config(config, context, factors, spelled)
