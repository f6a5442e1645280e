"""Sampling beside the warpers of `transformers`, and by keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.runtime.error import InputError
from plica_lm.sampling import Sampler, choose, kept, likeliest, log_chances, penalised

CASES = [
    Sampler(temperature=0.7),
    Sampler(temperature=1.3, top_k=5),
    Sampler(temperature=1.0, top_p=0.6),
    Sampler(temperature=0.9, min_p=0.2),
    Sampler(temperature=1.1, top_k=40, top_p=0.9, min_p=0.05, repetition=1.3),
    Sampler(temperature=2.0, top_p=0.999),
]


@pytest.mark.parametrize("of", CASES, ids=str)
def test_chances_are_those_of_transformers(of: Sampler) -> None:
    import torch
    from transformers.generation import logits_process as process

    warp: Any = process  # Any: classes without types
    draw = np.random.default_rng(0)
    for size in (7, 50, 3000):
        logits = (draw.standard_normal(size) * 3).astype(np.float32)
        text = draw.integers(0, size, 5).tolist()
        scores, ids = torch.tensor(logits)[None], torch.tensor([text])
        for made in (
            warp.RepetitionPenaltyLogitsProcessor(of.repetition),
            warp.TemperatureLogitsWarper(of.temperature),
            *([warp.TopKLogitsWarper(of.top_k)] if of.top_k else []),
            *([warp.TopPLogitsWarper(of.top_p)] if of.top_p < 1 else []),
            *([warp.MinPLogitsWarper(of.min_p)] if of.min_p else []),
        ):
            scores = made(ids, scores)
        expected = torch.softmax(scores[0].double(), -1).numpy()
        places, chances = kept(penalised(logits, of, text, 0), of)
        found = np.zeros(size)
        found[places] = chances / chances.sum()
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-9)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits, of = (np.log(np.array([0.5, 0.0, 0.2, 0.3]) + 1e-30), Sampler(temperature=1.0, seed=5))
    counts = np.bincount([choose(logits, of, step) for step in range(4000)], minlength=4)
    np.testing.assert_allclose(counts / 4000, [0.5, 0, 0.2, 0.3], atol=0.03)


def test_a_key_gives_the_same_token_and_other_keys_others() -> None:
    logits = np.zeros(1000, np.float32)
    drawn = {choose(logits, Sampler(1.0, seed=seed), step) for seed in (0, 9) for step in (0, 7)}
    assert len(drawn) == 4
    again = {choose(logits, Sampler(1.0, seed=seed), step) for seed in (0, 9) for step in (0, 7)}
    assert again == drawn


def test_penalties_are_for_tokens_that_were_made() -> None:
    logits, of = np.zeros(4, np.float32), Sampler(presence=1.0, frequency=0.5)
    assert penalised(logits, of, [0, 1, 1, 2], 3).tolist() == [0, -2, -1.5, 0]


def test_a_mask_is_kept_to_by_greedy_choice_too() -> None:
    assert choose(np.array([3.0, 2, 1]), Sampler(), 0, allowed=np.array([False, True, True])) == 1


def test_chances_sum_up_and_are_sorted() -> None:
    logs = log_chances(np.array([1e4, 0, -1e4, 1e4], np.float32))
    assert np.exp(logs).sum() == pytest.approx(1)
    assert [at for at, _ in likeliest(logs, 3)] == [0, 3, 1]
    assert likeliest(logs, 0) == []


@pytest.mark.parametrize("wrong", [
    {"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0},
    {"min_p": 1.5}, {"repetition": 0.0}, {"seed": -1},
])  # fmt: skip
def test_what_is_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is out of range"):
        Sampler(**wrong)
