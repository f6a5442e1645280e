"""The example that trains a language model: its folder is read by the command and by torch."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from plica.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_lm.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def folder(example: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stories")
    example["train"](made, steps=40)
    return made


def perplexity_of_torch(example: dict[str, Any], folder: Path, kind: str) -> float:
    """The perplexity of the same weights, decoded by the gguf package, in `transformers`."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    maker: Any = AutoModelForCausalLM  # Any: a class without types
    network = maker.from_pretrained(folder)
    number = gguf.GGMLQuantizationType[kind]
    for weight in network.parameters():
        if weight.ndim > 1:
            data = gguf.quants.quantize(weight.detach().numpy(), number)
            weight.data = torch.tensor(gguf.quants.dequantize(data, number))
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = torch.tensor(next(example["batches"](words, example["stories"](seed=2, tested=True))))
    with torch.no_grad():
        scores = network(rows[:, :-1]).logits.double()
    lost = torch.nn.functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())
    return float(np.exp(lost.item()))


@pytest.mark.parametrize(
    ("kind", "share"), [("F32", 1e-4), ("F16", 1e-3), ("Q8_0", 2e-3), ("Q4_0", 2e-3)]
)
def test_perplexities_are_those_of_torch(
    example: dict[str, Any], folder: Path, kind: str, share: float
) -> None:
    found = example["perplexity"](example["stored"](folder, kind))
    assert 1 < found < 20
    assert found == pytest.approx(perplexity_of_torch(example, folder, kind), rel=share)


def test_the_command_continues_a_story(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "Anna has seven apples. She loses three."
    assert main(["generate", str(folder), prompt, "--limit", "4", "--threads", "1"]) == 0
    assert capsys.readouterr().out.strip()


def test_stories_of_the_test_are_in_no_batch(example: dict[str, Any]) -> None:
    learnt, tested = (
        {next(each) for each in [example["stories"](0, some)] for _ in range(300)}
        for some in (False, True)
    )
    assert learnt.isdisjoint(tested)
