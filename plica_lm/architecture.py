"""Architectures: what a decoder computes, read from a Hugging Face `config.json` or GGUF metadata.

    Llama, Mistral, Mixtral, Qwen 2 and 3, Qwen3-MoE, Gemma 2 and 3, Phi, Phi-3, GPT-2

Which weights there are says the rest: biases, norms of heads, a tied head, experts, fused
projections (`plica_lm.naming`).

>>> of = from_config({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
...                   "num_hidden_layers": 2, "max_position_embeddings": 512})
>>> of.head, of.scale, len(of.layers)
(16, 0.25, 2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from plica.core import did_you_mean
from plica.runtime.error import Diagnostic, UnsupportedError
from plica_lm.rotary import Config, Rotary, rotary


@frozen
class Layer:
    """What differs between layers: the positions, and how many tokens back attention looks."""

    rotary: Rotary | None
    window: int | None


@frozen
class Architecture:
    """A decoder, without its weights.  `shared` heads of keys serve `heads` of queries."""

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


FAMILIES: Final[Mapping[str, Config]] = {
    "llama": {}, "mistral": {"windowed": True}, "qwen2": {}, "qwen3": {},
    "mixtral": {"windowed": True}, "qwen3_moe": {"renormalise": "norm_topk_prob"},
    "gemma2": {"norm_offset": 1.0, "windowed": True, "pattern": 2},
    "gemma3_text": {"norm_offset": 1.0, "windowed": True, "pattern": 6},
    "phi": {"norm": "layer"}, "phi3": {"windowed": True}, "gpt2": {"norm": "layer"},
}  # fmt: skip
"""What a configuration leaves unsaid of each family; of `pattern` layers all but one slide."""

ACTIVATIONS: Final = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu",
    "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip


def from_config(
    config: Config, context: int | None = None, factors: Sequence[float] | None = None
) -> Architecture:
    """The architecture of a `config.json`, for texts of at most `context` tokens."""
    of = {**config, **config.get("text_config", {})}
    family = {"gemma3": "gemma3_text"}.get(of.get("model_type", ""), of.get("model_type", ""))
    if family not in FAMILIES:
        raise unsupported("Models of type", family, FAMILIES)
    own = FAMILIES[family]

    def asked(*names: str, default: Any = None) -> Any:  # Any: what JSON holds
        found = (of[name] for name in names if of.get(name) is not None)
        value = next(found, default)
        if value is None:
            message = f"The configuration does not say {names[0]!r}."
            raise UnsupportedError(Diagnostic("bad-model", message, expected=names[0]))
        return value

    width, heads = asked("hidden_size", "n_embd"), asked("num_attention_heads", "n_head")
    count = asked("num_hidden_layers", "n_layer")
    head = asked("head_dim", default=width // heads)
    trained = asked("max_position_embeddings", "n_positions")
    context = min(context or trained, trained) if family == "gpt2" else context or trained
    word = asked("hidden_activation", "hidden_act", "activation_function", default="silu")
    if word not in ACTIVATIONS:
        raise unsupported("Activations", word, ACTIVATIONS)
    kinds = of.get("layer_types") or _kinds(of, own, count)
    gemma = family.startswith("gemma")
    return Architecture(
        family=family, width=width, heads=heads, head=head, context=context,
        shared=asked("num_key_value_heads", default=heads),
        layers=tuple([_layer(of, family, kind, head, context, factors) for kind in kinds]),
        scale=asked("query_pre_attn_scalar", default=head) ** -0.5,
        epsilon=asked("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", default=1e-5),
        norm=own.get("norm", "rms"), logit_cap=of.get("final_logit_softcapping"),
        norm_offset=asked("norm_offset", default=own.get("norm_offset", 0.0)),
        activation=ACTIVATIONS[word], embedding_scale=width**0.5 if gemma else 1.0,
        attention_cap=of.get("attn_logit_softcapping"),
        experts_per_token=of.get("num_experts_per_tok") or 0,
        renormalise=bool(of.get(own.get("renormalise", ""), "renormalise" not in own)),
        transposed=of.get("transposed", family == "gpt2"),
    )  # fmt: skip


def _kinds(of: Config, own: Config, count: int) -> list[str]:
    """Which layers look back through a window, where the configuration lists none."""
    windowed = own.get("windowed") and of.get("sliding_window") is not None
    if of.get("use_sliding_window"):
        first = of.get("max_window_layers", count)
        return ["sliding_attention" if at >= first else "full_attention" for at in range(count)]
    pattern = of.get("sliding_window_pattern", own.get("pattern"))
    return [
        "sliding_attention" if windowed and (not pattern or (at + 1) % pattern) else
        "full_attention" for at in range(count)
    ]  # fmt: skip


def _layer(  # noqa: PLR0917  # what a configuration says, and of what
    of: Config, family: str, kind: str, head: int, context: int, factors: Sequence[float] | None
) -> Layer:
    window = of.get("sliding_window") if kind == "sliding_attention" else None
    if family == "gpt2":
        return Layer(None, window)
    told = of.get("rope_parameters") or of.get("rope_scaling") or {}
    told = told.get(kind, told) or {}
    local = family == "gemma3_text" and kind == "sliding_attention"
    if local and "rope_parameters" not in of:
        told = {}
    base = of.get("rope_local_base_freq", 10000.0) if local else of.get("rope_theta", 10000.0)
    whole = {"trained": of.get("max_position_embeddings"), "rope_theta": base}
    for name in ("partial_rotary_factor", "original_max_position_embeddings", "interleaved"):
        if of.get(name) is not None:
            whole[name] = of[name]
    return Layer(rotary({**whole, **told}, head, context, factors), window)


GGUF_FAMILIES: Final = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3moe": "qwen3_moe", "phi2": "phi",
    "gemma2": "gemma2", "gemma3": "gemma3_text", "phi3": "phi3", "gpt2": "gpt2",
}  # fmt: skip

GGUF_NAMES: Final[Mapping[str, str]] = {
    "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "context_length": "max_position_embeddings",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
    "attention.layer_norm_epsilon": "layer_norm_eps", "expert_used_count": "num_experts_per_tok",
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
    name = metadata.get("general.architecture", "")
    if name not in GGUF_FAMILIES:
        raise unsupported("GGUF models of architecture", name, GGUF_FAMILIES)
    said = {key.removeprefix(f"{name}."): value for key, value in metadata.items()}
    config = {new: said[old] for old, new in GGUF_NAMES.items() if old in said}
    family = GGUF_FAMILIES[name]
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    scaling = said.get("rope.scaling.type", "none")
    told = {"rope_type": scaling if scaling in ("linear", "yarn") else "default",
            "factor": said.get("rope.scaling.factor"),
            "attention_factor": said.get("rope.scaling.attn_factor")}  # fmt: skip
    config |= {
        "model_type": family, "norm_offset": 0.0, "transposed": False, "head_dim": head,
        "rope_scaling": told, "interleaved": name == "llama", "norm_topk_prob": True,
        "partial_rotary_factor": said.get("rope.dimension_count", head) / head,
        "hidden_act": {"gpt2": "gelu_new", "phi2": "gelu_new"}.get(
            name, "gelu_pytorch_tanh" if name.startswith("gemma") else "silu"),
    }  # fmt: skip
    return from_config(config, context, factors)


def unsupported(what: str, found: str, known: Mapping[str, object]) -> UnsupportedError:
    """The refusal of a word that is not in a table."""
    message = f"{what} {found!r} are not supported."
    hint = did_you_mean(found, tuple(known))
    return UnsupportedError(Diagnostic("unsupported", message, None, ", ".join(known), found, hint))
