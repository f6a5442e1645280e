"""Models: a decoder, compiled, with its weights and its tokenizer.

The weights are arguments of the code, as they lie in their file: compiling reads none of them, and
models of one architecture share code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

import plica
from plica_lm.architecture import Architecture
from plica_lm.decoder import caches_of, decoder
from plica_lm.refusal import refusal
from plica_lm.tokenizer import Tokenizer
from plica_lm.value import Value, check
from plica_lm.weight import Weight

Array = np.ndarray[Any, Any]
Caches = dict[str, Array]

CACHES: Final = ("f32", "f16", "bf16")  # the dtypes that keys and values may be stored in
SPARE: Final = 0  # the padding row of a cache, written by batch padding


@frozen
class Span:
    """Tokens of one text that are read in one call, from position `start` on.

    `rows` are those of the text from its beginning to the last of the tokens; logits are made
    for the last `wanted` tokens.
    """

    tokens: Sequence[int]
    start: int
    rows: Sequence[int]
    wanted: int = 1


class LanguageModel:
    """A compiled decoder.  Any number of texts and threads may use it, each with caches."""

    def __init__(
        self,
        architecture: Architecture,
        weights: Mapping[str, Weight],
        tokenizer: Tokenizer,
        *,
        name: str = "model",
        cache: str = "f32",
        **options: Any,  # Any: options of plica.compile
    ) -> None:
        target = str(options.get("target", "cpu"))
        if not target.startswith("cpu"):
            raise refusal("unsupported", "Language models run on cpu targets only.", "cpu",
                          target, "Omit target (--target), or give cpu.")  # fmt: skip
        check("cache", cache, Value((str,), "one of f32, f16, bf16", CACHES.__contains__))
        module = decoder(architecture, weights, cache)
        names = caches_of(architecture)
        self.architecture, self.tokenizer, self.name = architecture, tokenizer, name
        self.vocabulary = weights["embedding"].shape[0]
        self.exe = plica.compile(module, donate=names, **options)
        ports = {port.name: port for port in self.exe.inputs}
        self._weights = {each: of.data for each, of in weights.items() if each in ports}
        self._caches = {each: ports[each] for each in names}

    @property
    def context(self) -> int:
        """How many tokens a text may have."""
        return self.architecture.context

    def caches(self, rows: int) -> Caches:
        """Empty caches with a number of rows, one of which is for padding."""
        return {
            name: np.zeros((rows, *port.shape[1:]), port.numpy)
            for name, port in self._caches.items()
        }

    def logits(self, caches: Caches, spans: Sequence[Span]) -> list[Array]:
        """The logits of each span's wanted positions: (wanted, vocabulary). Writes the caches."""
        new = max(len(span.tokens) for span in spans)
        length = max(len(span.rows) for span in spans)
        tokens, positions, rows = np.zeros((3, len(spans), new), np.int64)
        seen = np.full((len(spans), length), SPARE)
        rows[:] = SPARE
        wanted = list[int]()
        for at, span in enumerate(spans):
            count = len(span.tokens)
            tokens[at, :count] = span.tokens
            positions[at, :count] = np.arange(span.start, span.start + count)
            rows[at, :count] = span.rows[span.start :]
            seen[at, : len(span.rows)] = span.rows
            wanted += range(at * new + count - span.wanted, at * new + count)
        found = self.exe(
            tokens=tokens, positions=positions, rows=rows, seen=seen, wanted=np.array(wanted),
            **caches, **self._weights,
        )[0]  # fmt: skip
        ends = np.cumsum([span.wanted for span in spans])[:-1]
        return np.split(np.asarray(found), ends)
