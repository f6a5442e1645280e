"""Sampling: from logits to the next token, with an explicit key.

The number that decides is a function of the seed and of how many tokens were made: the same request
gives the same text whatever else shares its batch, and a draft model changes nothing.

>>> logits = np.log(np.array([0.1, 0.6, 0.3], np.float32))
>>> choose(logits, GREEDY, 0)
1
>>> [choose(logits, Sampler(temperature=1.0, seed=7), step) for step in range(6)]
[2, 0, 0, 1, 0, 1]
>>> Sampler(top_p=2.0)
Traceback (most recent call last):
plica.runtime.error.InputError: top_p is out of range. [input-value]
  expected: a number above 0 and at most 1
  found: 2.0
  suggestion: Set top_p to a number above 0 and at most 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica_lm.refusal import refusal
from plica_lm.value import Value, check, integer, number

Array = np.ndarray[Any, Any]

RANGES: Final[Mapping[str, Value]] = {
    "temperature": number(0, 100), "top_k": integer(0, 1 << 31), "top_p": number(0, 1, above=True),
    "min_p": number(0, 1), "repetition": number(1e-3, 1e3), "presence": number(-100, 100),
    "frequency": number(-100, 100), "seed": integer(0, (1 << 64) - 1),
}  # fmt: skip


@frozen
class Sampler:
    """Sampling parameters. Temperature 0 is greedy; `top_k` 0 keeps all tokens.

    `repetition` divides positive and multiplies negative logits of the text's tokens (Keskar et
    al., 2019); `presence` and `frequency` are subtracted from those of generated tokens, once and
    per occurrence.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        for name, value in RANGES.items():
            check(name, getattr(self, name), value)


GREEDY: Final = Sampler()

FIRST: Final = 1024  # the number of most likely tokens that are sorted first


def choose(  # noqa: PLR0917  # what is asked, and of what text
    logits: Array, of: Sampler, step: int, text: Sequence[int] = (), made: int = 0,
    allowed: Array | None = None,
) -> int:  # fmt: skip
    """The next token of a text whose last `made` tokens were chosen so.

    At least one of `allowed`, a bool per token (a grammar), must be true.
    """
    scores = penalised(logits, of, text, made)
    if allowed is not None:
        if not allowed.any():
            message = "No token may follow: the mask of a grammar admits none."
            raise refusal("input-value", message, "at least one token", "none",
                          "Let the mask admit a token at every step.")  # fmt: skip
        scores = np.where(allowed, scores, -np.inf)
    if of.temperature == 0:
        return int(np.argmax(scores))
    places, chances = kept(scores, of)
    bits = np.random.Philox(key=of.seed, counter=step)
    threshold = np.random.Generator(bits).random() * chances.sum()
    found = int(np.searchsorted(np.cumsum(chances), threshold, side="right"))
    return int(places[min(found, len(places) - 1)])


def penalised(logits: Array, of: Sampler, text: Sequence[int], made: int) -> Array:
    """The logits, less what repetition costs."""
    scores = logits.astype(np.float32)
    if of.repetition != 1.0 and text:
        seen = np.unique(np.asarray(text))
        found = scores[seen]
        scores[seen] = np.where(found > 0, found / of.repetition, found * of.repetition)
    if (of.presence or of.frequency) and made:
        own, counts = np.unique(np.asarray(text[len(text) - made :]), return_counts=True)
        scores[own] -= of.presence + of.frequency * counts.astype(np.float32)
    return scores


def kept(scores: Array, of: Sampler) -> tuple[Array, Array]:
    """The tokens that may be drawn, and their chances up to a factor."""
    chances = np.exp((scores - scores.max()).astype(np.float64) / of.temperature)
    places, total = np.arange(len(chances)), chances.sum()
    if 0 < of.top_k < len(chances):
        places = np.argpartition(-chances, of.top_k - 1)[: of.top_k]
        total = chances[places].sum()
    if of.top_p < 1:
        for count in (FIRST, len(places)):  # the likeliest few are mostly enough
            first = places if count >= len(places) else _greatest(chances, places, count)
            first = first[np.lexsort((first, -chances[first]))]
            share = np.cumsum(chances[first]) / total
            if len(first) == len(places) or share[-1] >= of.top_p:
                places = first[: 1 + int(np.searchsorted(share, of.top_p))]
                break
    if of.min_p > 0:
        places = places[chances[places] >= of.min_p]  # the likeliest has the chance 1
    return places, chances[places]


def _greatest(chances: Array, places: Array, count: int) -> Array:
    array: Array = places[np.argpartition(-chances[places], count - 1)[:count]]
    return array


def log_chances(logits: Array) -> Array:
    """The logarithms of the chances of all tokens."""
    shifted = logits.astype(np.float64) - logits.max()
    logs: Array = shifted - np.log(np.exp(shifted).sum())
    return logs


def likeliest(logs: Array, count: int) -> list[tuple[int, float]]:
    """A number of most likely tokens with their log probabilities."""
    if count == 0:
        return []
    places = np.argpartition(-logs, min(count, len(logs)) - 1)[:count]
    return [(int(at), float(logs[at])) for at in places[np.argsort(-logs[places], kind="stable")]]
