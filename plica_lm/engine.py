"""The engine: many texts continued side by side, in batches that texts join and leave at any step.

A step processes at most one chunk of one prompt and then computes a token for every text past its
prompt. A text does not depend on the others: batch rows are computed identically, and samples have
their own keys.

With a draft model a step produces several tokens per text: the draft proposes some, the model
checks all of them at once, and the accepted ones are taken, followed by one of its own. The result
is the model's own text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from attrs import define, field, frozen

from plica_lm.model import LanguageModel, Span
from plica_lm.refusal import refusal
from plica_lm.rows import Rows
from plica_lm.sampling import GREEDY, Sampler, choose, likeliest, log_chances
from plica_lm.tokenizer import TokenStream
from plica_lm.value import FLAG, Value, check, integer, is_unicode

Array = np.ndarray[Any, Any]
Finish: TypeAlias = Literal["stop", "length"]
Mask: TypeAlias = Callable[[Sequence[int]], Array]
"""Which tokens may follow those that were made: a bool for each, as a grammar says."""

ROOM: Final = 4096  # the default number of cache rows per text, allocated in advance
CHUNK: Final = 512  # tokens of a prompt that are read in one step


_STOP: Final = Value((tuple,), "texts of at least one character", lambda words: all(
    isinstance(word, str) and word and is_unicode(word) for word in words))  # fmt: skip
_PROMPT: Final = Value((tuple,), "a text, or a sequence of token ids")


def _sequence(value: Any) -> Any:  # Any: whatever was given; `check` refuses the rest
    """A tuple of a list, and of one stop word."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


@frozen(eq=False)
class GenerationRequest:
    """A text to be continued by at most `limit` tokens (fewer where the context ends), up to one
    of the words in `stop` or a token that ends texts.

    Each piece has the log-probabilities of the `logprobs` likeliest tokens; None omits them.
    """

    prompt: tuple[int, ...]
    sampling: Sampler = GREEDY
    limit: int = 256
    stop: Sequence[str] = field(default=(), converter=_sequence)
    logprobs: int | None = None
    mask: Mask | None = None
    ends: bool = True

    def __attrs_post_init__(self) -> None:
        check("prompt", self.prompt, _PROMPT)
        check("sampling", self.sampling, Value((Sampler,), "a Sampler"))
        check("limit", self.limit, integer(1))
        check("stop", self.stop, _STOP)
        check("ends", self.ends, FLAG)
        if self.logprobs is not None:
            check("logprobs", self.logprobs, integer(0))


@frozen
class TextPiece:
    """A token that was made, and the text that is certain with it.  The last piece of a text says
    why it ended: "stop" at a word or token that ends it, "length" at the limit or the end of the
    context."""

    token: int
    text: str
    logprob: float | None = None
    likeliest: tuple[tuple[int, float], ...] = ()
    finish: Finish | None = None


@define(eq=False)
class GeneratedText:
    """A text that is being made: its tokens, the rows it has, and how many of them are read by the
    model and by the draft."""

    request: GenerationRequest
    stream: TokenStream
    tokens: list[int]
    rows: list[int] = field(factory=list)
    read: int = 0
    drafted: int = 0
    held: str = ""
    finish: Finish | None = None

    @property
    def made(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    def span(self, start: int, stop: int, more: Sequence[int] = ()) -> Span:
        """The part of it to process, with uncertain tokens."""
        tokens = [*self.tokens[start:stop], *more]
        return Span(tokens, start, self.rows[: start + len(tokens)], 1 + len(more))


class Engine:
    """Texts of one model: at most `slots` at once, and `waiting` that wait for a place.

    The caches have `rows`, one per token of each text, which bounds the length of texts.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        slots: int = 64,
        waiting: int = 256,
        rows: int | None = None,
        draft: LanguageModel | None = None,
        ahead: int = 4,
    ) -> None:
        self.model, self.slots, self.draft = model, slots, draft
        self.ahead = ahead if draft is not None else 0
        for name, value in (
            ("slots", slots),
            ("waiting", waiting),
            ("rows", rows),
            ("ahead", ahead),
        ):
            check(name, 1 if value is None else value, integer(1))
        self.vocabulary = model.vocabulary
        count = rows or slots * (min(model.context, ROOM) + self.ahead)
        self.context = min(model.context, count - self.ahead)
        self.rows = Rows(1 + count)
        self._caches = model.caches(1 + count)
        self._drafts = {} if draft is None else draft.caches(1 + count)
        self._waiting, self._max_waiting = deque[GeneratedText](), waiting
        self._running: list[GeneratedText] = []

    @property
    def busy(self) -> bool:
        """Whether there is work."""
        return bool(self._waiting or self._running)

    @property
    def load(self) -> tuple[int, int]:
        """How many texts are being made, and how many wait."""
        return len(self._running), len(self._waiting)

    def submit(self, request: GenerationRequest) -> GeneratedText:
        """Accepts a request, or refuses it if it is too long or there is no room."""
        length, context = len(request.prompt), self.context
        expected = f"1 to {context - 1} tokens"
        if not length:
            raise refusal("input-value", "The prompt is empty.", expected, "0 tokens",
                          "Give at least one character.", at="prompt")  # fmt: skip
        if length >= context:
            hint = "Shorten it, or load the model with a larger context and more rows."
            raise refusal("input-value", "The prompt leaves no room in the context.", expected,
                          f"{length} tokens", hint, at="prompt")  # fmt: skip
        token = integer(0, self.vocabulary - 1)
        for each in request.prompt:
            check("prompt", each, token, at="prompt")
        if len(self._waiting) >= self._max_waiting:
            raise refusal("busy", "The server is at its limit of requests.",
                          f"at most {self._max_waiting} waiting requests",
                          f"{len(self._waiting)} waiting, {len(self._running)} running",
                          "Try again later.")  # fmt: skip
        text = GeneratedText(request, self.model.tokenizer.stream(), list(request.prompt))
        self._waiting.append(text)
        return text

    def cancel(self, text: GeneratedText) -> None:
        """Cancels a text."""
        if text in self._waiting:
            self._waiting.remove(text)
        elif text in self._running:
            self._leave(text)

    def step(self) -> list[tuple[GeneratedText, TextPiece]]:
        """One step for all texts; returns the new pieces."""
        self._admit()
        pieces: list[tuple[GeneratedText, TextPiece]] = []
        ready = [each for each in self._running if each.read == len(each.tokens) - 1]
        if reading := next((each for each in self._running if each not in ready), None):
            pieces += self._read(reading)
        if ready:
            pieces += self._extend(ready)
        for text in [each for each in self._running if each.finish is not None]:
            self._leave(text)
        return pieces

    def _needed(self, request: GenerationRequest) -> int:
        return min(len(request.prompt) + request.limit, self.context) + self.ahead

    def _admit(self) -> None:
        """Admits waiting texts in order, while there are slots and rows."""
        while self._waiting and len(self._running) < self.slots:
            text = self._waiting[0]
            if (found := self.rows.take(text.tokens, self._needed(text.request))) is None:
                return
            text.rows, text.read = found
            text.drafted = text.read
            self._running.append(self._waiting.popleft())

    def _leave(self, text: GeneratedText) -> None:
        self._running.remove(text)
        known = text.read if self.draft is None else min(text.read, text.drafted)
        self.rows.give(text.tokens[:known], text.rows)

    def _read(self, text: GeneratedText) -> list[tuple[GeneratedText, TextPiece]]:
        """Read some of a prompt; with its end the first token is made."""
        stop = min(text.read + CHUNK, len(text.tokens))
        (logits,) = self.model.logits(self._caches, [text.span(text.read, stop)])
        text.read = stop
        return [] if stop < len(text.tokens) else [(text, self._take(text, logits[-1]))]

    def _extend(self, ready: Sequence[GeneratedText]) -> list[tuple[GeneratedText, TextPiece]]:
        """Make a token of each text, or several where a draft proposed them."""
        proposed = self._proposed(ready)
        spans = [text.span(text.read, text.read + 1, more)
                 for text, more in zip(ready, proposed, strict=True)]  # fmt: skip
        pieces: list[tuple[GeneratedText, TextPiece]] = []
        arrays = self.model.logits(self._caches, spans)
        for text, more, logits in zip(ready, proposed, arrays, strict=True):
            for at, logit in enumerate(logits):
                text.read += 1
                pieces.append((text, self._take(text, logit)))
                if text.finish or at == len(more) or text.tokens[-1] != more[at]:
                    break
            text.drafted = min(text.drafted, text.read)
        return pieces

    def _proposed(self, ready: Sequence[GeneratedText]) -> list[list[int]]:
        """The draft's proposals, a few tokens per text."""
        more: list[list[int]] = [[] for _ in ready]
        if self.draft is None:
            return more
        for _ in range(self.ahead):
            spans = list[Span]()
            for text, own in zip(ready, more, strict=True):
                while len(text.tokens) - text.drafted > CHUNK:
                    part = text.span(text.drafted, text.drafted + CHUNK)
                    self.draft.logits(self._drafts, [part])
                    text.drafted += CHUNK
                known = [*text.tokens, *own]
                start = min(text.drafted, len(known) - 1)
                spans.append(Span(known[start:], start, text.rows[: len(known)]))
                text.drafted = len(known)
            for text, own, logits in zip(
                ready, more, self.draft.logits(self._drafts, spans), strict=True
            ):
                own.append(self._chosen(text, logits[-1], own))
        room = [min(len(text.rows), self.context) - len(text.tokens) for text in ready]
        return [own[: max(count, 0)] for own, count in zip(more, room, strict=True)]

    def _chosen(self, text: GeneratedText, logits: Array, more: Sequence[int] = ()) -> int:
        """The token that follows a text, and tokens that are not certain yet."""
        request, known = text.request, [*text.tokens, *more]
        made = text.made + len(more)
        mask = None if request.mask is None else request.mask(known[len(request.prompt) :])
        return choose(logits, request.sampling, made, known, made, mask)

    def _take(self, text: GeneratedText, logits: Array) -> TextPiece:
        """Choose the next token of a text, and see whether it ends there."""
        request, token = text.request, self._chosen(text, logits)
        text.tokens.append(token)
        logs = log_chances(logits) if request.logprobs is not None else None
        if request.ends and token in self.model.tokenizer.ends:
            text.finish, certain = "stop", text.held + text.stream.rest()
        else:
            certain = self._certain(text, text.stream(token))
        return TextPiece(
            token, certain, None if logs is None else float(logs[token]),
            () if logs is None else tuple(likeliest(logs, request.logprobs or 0)), text.finish,
        )  # fmt: skip

    def _certain(self, text: GeneratedText, new: str) -> str:
        """The text that is certain, less what may be the beginning of a stop word."""
        request = text.request
        last = text.made >= request.limit or len(text.tokens) >= self.context
        certain = text.held + new + (text.stream.rest() if last else "")
        ends = [at for word in request.stop if (at := certain.find(word)) >= 0]
        if ends:
            text.finish, text.held = "stop", ""
            return certain[: min(ends)]
        if last:
            text.finish, text.held = "length", ""
            return certain
        held = max((size for word in request.stop for size in range(1, len(word))
                    if certain.endswith(word[:size])), default=0)  # fmt: skip
        text.held = certain[len(certain) - held :]
        return certain[: len(certain) - held]
