"""Generation: the continuation of a prompt, streamed in pieces.

for piece in generate(model, "Once upon a time", limit=64):
    print(piece.text, end="")
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from plica_lm.chat import Message, checked, rendered
from plica_lm.engine import Engine, GenerationRequest, TextPiece
from plica_lm.model import LanguageModel
from plica_lm.value import Value, check


def generate(
    model: LanguageModel | Engine,
    prompt: str | Sequence[int],
    **request: Any,  # Any: fields of a request
) -> Generator[TextPiece, None, None]:
    """The continuation of a prompt; pieces come as soon as they are certain.

    An engine of one's own remembers what texts began with, and may have a draft model.
    """
    engine = model if isinstance(model, Engine) else Engine(model, slots=1, waiting=1)
    if isinstance(prompt, (bytes, bytearray)) or not isinstance(prompt, Sequence):
        check("prompt", prompt, Value((str, list, tuple), "a str, or a sequence of token ids"))
    tokens = engine.model.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    text = engine.submit(GenerationRequest(tuple(tokens), **request))
    try:
        while text.finish is None:
            yield from (piece for other, piece in engine.step() if other is text)
    finally:
        engine.cancel(text)


def answer(
    model: LanguageModel | Engine,
    messages: Sequence[Message],
    **request: Any,  # Any: as above
) -> Generator[TextPiece, None, None]:
    """A model's answer to the messages of a chat."""
    inner = model.model if isinstance(model, Engine) else model
    return generate(model, chat_tokens(inner, messages), **request)


def chat_tokens(model: LanguageModel, messages: Sequence[Message]) -> list[int]:
    """The tokens of a chat, up to where the answer begins."""
    words = model.tokenizer
    text = rendered(words.template, checked(messages), bos=words.bos, eos=words.eos)
    return words.encode(text, special=words.template is None)
