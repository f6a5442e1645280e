"""The engine: texts of a batch are those of each alone, and end where they should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from plica.runtime.error import InputError, PlicaError
from plica_lm.engine import Engine, GeneratedText, GenerationRequest, TextPiece
from plica_lm.generate import generate
from plica_lm.sampling import Sampler
from tests.lm.network import model, saved

PROMPT = "The quick brown fox"


def alone(prompt: str, of: Any = None, **asked: Any) -> list[TextPiece]:
    return list(generate(of or model("llama"), prompt, **asked))


def tokens_of(pieces: Sequence[TextPiece]) -> list[int]:
    return [each.token for each in pieces]


def text_of(pieces: Sequence[TextPiece]) -> str:
    return "".join([each.text for each in pieces])


def drawn(count: int, seed: int) -> list[GenerationRequest]:
    """Requests of all kinds."""
    draw = np.random.default_rng(seed)
    return [
        GenerationRequest(
            tuple(draw.integers(0, 95, draw.integers(1, 30)).tolist()),
            Sampler(temperature=float(draw.choice([0, 0.7])), top_k=int(draw.choice([0, 20])),
                     top_p=float(draw.choice([1, 0.9])), seed=at),
            limit=int(draw.integers(1, 30)), ends=bool(draw.integers(2)),
        )
        for at in range(count)
    ]  # fmt: skip


def run(
    engine: Engine, requests: Sequence[GenerationRequest], at_once: int = 1000
) -> list[list[int]]:
    """The tokens of each text, with a number of arrivals per step."""
    texts, found, left = list[GeneratedText](), dict[GeneratedText, list[int]](), list(requests)
    while left or engine.busy:
        for each in left[:at_once]:
            texts.append(engine.submit(each))
        left = left[at_once:]
        for text, piece in engine.step():
            found.setdefault(text, []).append(piece.token)
    return [found[each] for each in texts]


def test_greedy_text_is_that_of_torch() -> None:
    import torch

    network, _ = saved("llama")
    prompt = model("llama").tokenizer.encode(PROMPT)
    with torch.no_grad():
        said = network.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False)
    pieces = alone(PROMPT, limit=40, ends=False)
    assert tokens_of(pieces) == said[0, len(prompt) :].tolist()
    assert pieces[-1].finish == "length"


@pytest.mark.parametrize("name", ["llama", "gemma2", "mixtral"])
def test_texts_of_a_batch_are_those_of_each_alone(name: str) -> None:
    requests = drawn(20, 1)
    expected = [run(Engine(model(name), slots=1), [each])[0] for each in requests]
    assert run(Engine(model(name), slots=20), requests) == expected
    assert run(Engine(model(name), slots=3, rows=150), requests, at_once=2) == expected


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_draft_changes_nothing(name: str, seed: int) -> None:
    """One that is always right, and one that is often wrong."""
    requests = drawn(8, 2)
    expected = run(Engine(model(name), slots=8), requests)
    engine = Engine(model(name), slots=3, draft=model(name, seed=seed))
    steps = count_steps(engine)
    assert run(engine, requests) == expected
    if seed == 0:
        assert steps["verify"] < sum(map(len, expected)) / 2


def count_steps(engine: Engine) -> dict[str, int]:
    """How many texts the model was asked to go on with."""
    counts, ask = {"verify": 0}, engine.model.logits

    def counted(caches: Any, spans: Any) -> Any:
        counts["verify"] += sum(each.start > 0 for each in spans)
        return ask(caches, spans)

    engine.model = _Counted(engine.model, counted)  # type: ignore[assignment]  # as it is used
    return counts


class _Counted:
    """A model that counts."""

    def __init__(self, model: Any, logits: Any) -> None:
        self.logits, self.context, self.tokenizer = logits, model.context, model.tokenizer


def test_a_stop_word_ends_a_text_and_is_not_said() -> None:
    whole = text_of(alone(PROMPT, limit=40, ends=False))
    for start, size in ((5, 1), (7, 3), (20, 6)):
        word = whole[start : start + size]
        pieces = alone(PROMPT, limit=40, ends=False, stop=("never", word))
        assert text_of(pieces) == whole[: whole.index(word)]
        assert pieces[-1].finish == "stop"


def test_what_may_be_a_stop_word_is_held_back_and_said_later() -> None:
    whole = text_of(alone(PROMPT, limit=10, ends=False))
    pieces = alone(PROMPT, limit=10, ends=False, stop=(whole[3:5] + "never", whole[-1] + "no"))
    assert pieces[3].text == ""
    assert text_of(pieces) == whole


def test_a_token_that_ends_texts_is_not_said() -> None:
    end = np.arange(96) == 95
    pieces = alone(PROMPT, limit=9, mask=lambda made: end if len(made) == 3 else ~end)
    assert len(pieces) == 4
    assert (pieces[-1].finish, pieces[-1].text) == ("stop", "")


def test_a_mask_decides_what_may_follow() -> None:
    digits = np.array([chr(at + 32).isdigit() for at in range(96)])
    for temperature in (0.0, 1.5):
        how = Sampler(temperature=temperature)
        assert text_of(alone(PROMPT, limit=12, sampling=how, mask=lambda made: digits)).isdigit()
    with pytest.raises(InputError, match="admits none"):
        alone(PROMPT, mask=lambda made: np.zeros(96, bool))


def test_logprobs_are_those_of_the_tokens() -> None:
    pieces = alone(PROMPT, limit=5, logprobs=3)
    for each in pieces:
        assert each.likeliest[0] == (each.token, each.logprob)  # greedy
        assert sorted(each.likeliest, key=lambda pair: -pair[1]) == [*each.likeliest]
        assert sum(np.exp(logs) for _, logs in each.likeliest) <= 1


def test_a_text_ends_with_the_context() -> None:
    small = model("llama", context=24)
    pieces = alone(PROMPT, small, limit=1000, ends=False)
    assert len(pieces) == 24 - len(PROMPT)
    assert pieces[-1].finish == "length"
    with pytest.raises(InputError, match="no room in the context"):
        alone("x" * 24, small)
    with pytest.raises(InputError, match="prompt is empty"):
        alone("", small)


def test_texts_that_begin_alike_share_rows() -> None:
    engine = Engine(model("llama"), slots=2, rows=256)
    first = text_of(list(generate(engine, PROMPT, limit=8)))
    assert engine.rows.reused == 0
    again = list(generate(engine, PROMPT + first + "!", limit=8))
    assert engine.rows.reused >= len(PROMPT) + 7
    assert tokens_of(again) == tokens_of(alone(PROMPT + first + "!", limit=8))


def test_rows_are_given_back_however_a_text_ends() -> None:
    engine = Engine(model("llama"), slots=2, rows=64)
    for at in range(30):
        pieces = generate(engine, chr(40 + at) * 20, limit=20)
        next(pieces)
        pieces.close()
    assert not engine.busy
    assert len(list(generate(engine, PROMPT, limit=40, ends=False))) == 40


def test_a_full_engine_refuses() -> None:
    engine = Engine(model("llama"), slots=1, waiting=2, rows=64)
    request = GenerationRequest((1, 2, 3), limit=4)
    engine.submit(request)
    engine.submit(request)
    with pytest.raises(PlicaError, match="2 waiting") as refused:
        engine.submit(request)
    assert refused.value.diagnostics[0].code == "busy"
    with pytest.raises(InputError, match="no room in the context"):
        engine.submit(GenerationRequest((1,) * 64))
    with pytest.raises(InputError, match="limit is out of range"):
        engine.submit(GenerationRequest((1, 2, 3), limit=0))
