"""Rotary positions: the frequencies of each pair of a head, and the published ways to scale them.

>>> rotary({"rope_theta": 10000.0}, 8, 4096).frequencies
(1.0, 0.1, 0.01, 0.001)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica_lm.config import Config, conflict, needed
from plica_lm.refusal import unsupported

Array = np.ndarray[Any, Any]


@frozen
class Rotary:
    """The angle of a pair per position, what cosine and sine are multiplied by, and whether pairs
    are neighbours (`interleaved`) or lie half a head apart."""

    frequencies: tuple[float, ...]
    scale: float = 1.0
    interleaved: bool = False


def rotary(of: Config, head: int, context: int, factors: Sequence[float] | None = None) -> Rotary:
    """The rotary positions of a configuration, for a context length.

    `factors` divide the frequencies (GGUF stores scaled variants this way). Length-dependent
    variants (`dynamic`, `longrope`) are those of the whole context for all lengths, because a cache
    has one kind of keys.
    """
    kind = of.get("rope_type", of.get("type", "default"))
    if kind not in SCALINGS:
        raise unsupported("The rope_type", kind, SCALINGS)
    for key in NEEDED.get(kind, ()):
        needed(of, key)
    size = int(head * of.get("partial_rotary_factor", 1.0))
    least = 4 if kind == "dynamic" else 2
    if size % 2 or size < least:
        message = "The rotated elements of a head (head_dim * partial_rotary_factor) are not pairs."
        raise conflict(message, f"an even number of at least {least}", size, "head_dim")
    base = of["rope_theta"]
    if kind == "dynamic":
        base *= _ntk(of, context) ** (size / (size - 2))
    plain = base ** -(np.arange(0, size, 2) / size)
    for key in ("long_factor", "short_factor"):
        if kind in ("longrope", "su") and len(of[key]) != len(plain):
            message = f"{key} does not have one factor for each pair of a head."
            raise conflict(message, f"{len(plain)} factors", len(of[key]), key)
    scaled, scale = SCALINGS[kind](of, plain, context)
    if factors is not None:
        scaled = scaled / np.asarray(factors, np.float64)
    return Rotary(tuple(map(float, scaled)), scale, bool(of.get("interleaved", False)))


def _ntk(of: Config, context: int) -> float:
    trained, factor = of["trained"], of["factor"]
    return float(factor * max(context, trained) / trained - (factor - 1))


def _default(of: Config, plain: Array, context: int) -> tuple[Array, float]:
    return plain, of.get("attention_factor") or 1.0


def _linear(of: Config, plain: Array, context: int) -> tuple[Array, float]:
    return plain / of["factor"], 1.0


def _llama3(of: Config, plain: Array, context: int) -> tuple[Array, float]:
    """Scales long waves by the factor, keeps short ones, and interpolates between."""
    factor, low, high = of["factor"], of["low_freq_factor"], of["high_freq_factor"]
    if high <= low:
        message = "high_freq_factor is not above low_freq_factor."
        raise conflict(message, f"above {low}", high, "high_freq_factor")
    turns = of["original_max_position_embeddings"] * plain / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return plain * ((1 - smooth) / factor + smooth), 1.0


def _yarn(of: Config, plain: Array, context: int) -> tuple[Array, float]:
    """YaRN (Peng et al., 2023): interpolation by a ramp over the number of rotations."""
    trained, base, size = of["original_max_position_embeddings"], of["rope_theta"], 2 * len(plain)
    factor = of.get("factor") or of["trained"] / trained

    def pair(turns: float) -> float:
        return size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(of.get("beta_fast") or 32), pair(of.get("beta_slow") or 1)
    if of.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(len(plain)) - low) / max(high - low, 0.001), 0, 1)

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    told, all_dim = of.get("mscale"), of.get("mscale_all_dim")
    own = scale(told) / scale(all_dim) if told and all_dim else scale(1)
    return plain * (ramp / factor + 1 - ramp), of.get("attention_factor") or own


def _longrope(of: Config, plain: Array, context: int) -> tuple[Array, float]:
    """LongRoPE (Ding et al., 2024): a factor per pair, others past the length it was trained on."""
    trained = of["original_max_position_embeddings"]
    factor = of.get("factor") or of["trained"] / trained
    own = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
    divisors = of["long_factor" if context > trained else "short_factor"]
    return plain / np.asarray(divisors, np.float64), of.get("attention_factor") or own


SCALINGS: Final[Mapping[str, Callable[[Config, Array, int], tuple[Array, float]]]] = {
    "default": _default, "dynamic": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn,
    "longrope": _longrope, "su": _longrope,
}  # fmt: skip
"""From the plain frequencies to those of a variant, and the scale of cosine and sine."""

_LONG: Final = ("original_max_position_embeddings", "short_factor", "long_factor")
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "dynamic": ("factor",), "linear": ("factor",), "yarn": ("original_max_position_embeddings",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": _LONG, "su": _LONG,
}  # fmt: skip
"""The entries that a variant cannot do without."""
