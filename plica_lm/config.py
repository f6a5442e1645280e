"""Configurations: the table of the entries that are read, by type and range.

>>> normalised({"n_embd": 0})
Traceback (most recent call last):
plica.core.diagnostic.Malformed: n_embd is out of range. [bad-model]
  expected: an integer from 1 to 16777216
  found: 0
  suggestion: Set n_embd to an integer from 1 to 16777216.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from plica.runtime.error import PlicaError
from plica_lm.refusal import refusal
from plica_lm.value import FLAG, TOKEN, Value, check, integer, items, number

Config: TypeAlias = Mapping[str, Any]  # Any: what JSON holds

ALIASES: Final[Mapping[str, str]] = {
    "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings", "layer_norm_eps": "rms_norm_eps",
    "layer_norm_epsilon": "rms_norm_eps", "hidden_activation": "hidden_act",
    "activation_function": "hidden_act", "type": "rope_type",
}  # fmt: skip
"""Other names of entries, from `config.json` of older families."""

_SIZE, _POSITIONS, _CAP = integer(1, 1 << 24), integer(1, 1 << 40), number(0, above=True)
_NAME = Value((str,), "a name")
_OBJECT = Value((dict,), "an object")
_FACTORS = Value((list,), "a list of positive numbers", lambda found: bool(found) and all(
    type(each) in (int, float) and each > 0 for each in found))  # fmt: skip
_KINDS = Value((list,), "a list of full_attention or sliding_attention", lambda found: all(
    each in ("full_attention", "sliding_attention") for each in found))  # fmt: skip

ENTRIES: Final[Mapping[str, Value]] = {
    "model_type": _NAME, "hidden_act": _NAME, "rope_type": _NAME,
    "hidden_size": _SIZE, "num_attention_heads": _SIZE, "num_key_value_heads": _SIZE,
    "head_dim": _SIZE, "vocab_size": integer(1, 1 << 31), "num_hidden_layers": integer(1, 1 << 16),
    "num_experts_per_tok": integer(0, 1 << 16), "max_position_embeddings": _POSITIONS,
    "original_max_position_embeddings": integer(2), "sliding_window": _POSITIONS,
    "max_window_layers": integer(0), "sliding_window_pattern": integer(1),
    "use_sliding_window": FLAG, "norm_topk_prob": FLAG, "tie_word_embeddings": FLAG,
    "interleaved": FLAG, "truncate": FLAG, "layer_types": _KINDS,
    "rms_norm_eps": number(0, 1, above=True), "rope_theta": number(1, above=True),
    "rope_local_base_freq": number(1, above=True), "query_pre_attn_scalar": _CAP,
    "attn_logit_softcapping": _CAP, "final_logit_softcapping": _CAP,
    "partial_rotary_factor": number(0, 1, above=True), "factor": _CAP, "attention_factor": _CAP,
    "low_freq_factor": _CAP, "high_freq_factor": _CAP, "beta_fast": _CAP, "beta_slow": _CAP,
    "mscale": number(0), "mscale_all_dim": number(0), "long_factor": _FACTORS,
    "short_factor": _FACTORS, "rope_parameters": _OBJECT, "rope_scaling": _OBJECT,
    "text_config": _OBJECT, "full_attention": _OBJECT, "sliding_attention": _OBJECT,
    "eos_token_id": items(TOKEN, "a token, or a list of tokens"),
}  # fmt: skip


def normalised(said: Config, spelled: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The entries that are not null by one name each, all checked; refusals call an entry as
    `spelled` says."""
    found: dict[str, Any] = {}
    for key, value in said.items():
        if value is None:
            continue
        name = ALIASES.get(key, key)
        if name in ENTRIES:
            check((spelled or {}).get(key, key), value, ENTRIES[name], "bad-model")
        nested = ENTRIES.get(name) is _OBJECT
        if key in ALIASES or name not in found:
            found[name] = normalised(value) if nested else value
    return found


def needed(of: Config, key: str, spelled: Mapping[str, str] | None = None) -> Any:
    """An entry that has to be there."""
    if of.get(key) is None:
        others = [old for old, new in ALIASES.items() if new == key]
        name = (spelled or {}).get(key) or " or ".join([key, *others])
        words = ENTRIES[key].words
        raise refusal("bad-model", f"The configuration lacks {name}.", words, "nothing",
                      f"Set {name}: the model's publisher states it.")  # fmt: skip
    return of[key]


def conflict(message: str, expected: str, found: object, key: str) -> PlicaError:
    """The refusal of entries that do not fit one another."""
    hint = f"Correct {key} in the configuration, or use the weights that belong to it."
    return refusal("bad-model", message, expected, found, hint)
