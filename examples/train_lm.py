"""A language model trained in compiled code: short stories of what somebody has, and has then.

    python examples/train_lm.py [FOLDER] [--steps N]
    plica generate FOLDER "Anna has seven apples. She loses three."

A Llama of 350,000 weights learns stories that the script makes and is tested with others: a step of
`plica_lm.loss` is one native call (`plica.training`).  Needs `pip install plica[lm,examples]`.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from plica.ir.type import dtype, f32
from plica.training import adam, trainer
from plica_lm.architecture import from_config
from plica_lm.format import FORMATS
from plica_lm.generate import generate
from plica_lm.load import read
from plica_lm.loss import loss
from plica_lm.model import LanguageModel, Span
from plica_lm.naming import canonical
from plica_lm.weight import Weight

Stories = Iterator[tuple[str, str]]
BATCH, LENGTH, WIDTH, INNER, LAYERS, WORDS, END = 16, 48, 96, 256, 3, 192, "<end>"
CONFIG = {
    "model_type": "llama", "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": 4, "max_position_embeddings": LENGTH,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "eos_token_id": 0,
}  # fmt: skip
PEOPLE = {"Anna": "She", "Ben": "He", "Clara": "She", "Emil": "He", "Ida": "She", "Otto": "He"}
THINGS = ("apples", "books", "coins", "eggs", "flowers", "pencils", "stones")
GAINS, LOSSES = ("finds", "buys", "gets"), ("loses", "sells", "gives away")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def stories(seed: int, tested: bool = False) -> Stories:
    """Beginnings and ends of stories; one story of sixteen is for tests."""
    draw = np.random.default_rng(seed)
    while True:
        first, last = draw.choice(len(NUMBERS), 2, replace=False)
        verbs, change = LOSSES if last < first else GAINS, NUMBERS[abs(last - first)]
        name, thing, verb = (str(draw.choice([*each])) for each in (PEOPLE, THINGS, verbs))
        had, has = (f"{NUMBERS[n]} {thing[:-1] if n == 1 else thing}" for n in (first, last))
        start = f"{name} has {had}. {PEOPLE[name]} {verb} {change}."
        if (zlib.crc32(start.encode()) % 16 == 0) == tested:
            yield start, f" Now {PEOPLE[name].lower()} has {has}."


def tokenizer() -> Tokenizer:
    """Byte-level BPE, merged until each word is a token; token 0 ends a story."""
    found, some = Tokenizer(models.BPE()), stories(seed=0)
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    texts = ["".join(next(some)) for _ in range(4000)]
    found.train_from_iterator(texts, trainers.BpeTrainer(special_tokens=[END], show_progress=False))
    return found


def batches(tokens: Tokenizer, some: Stories) -> Iterator[np.ndarray[Any, Any]]:
    """Rows of stories, the last of which is cut: (BATCH, LENGTH + 1)."""
    while True:
        texts = ["".join(["".join(next(some)) + END for _ in range(4)]) for _ in range(BATCH)]
        yield np.array([tokens.encode(text).ids[: LENGTH + 1] for text in texts])


def beginning() -> dict[str, Weight]:
    """Random weights by their names in the decoder, each with its name in Hugging Face."""
    layer: dict[str, tuple[int, ...]] = {"mlp.down_proj": (WIDTH, INNER)}
    layer |= {f"{name}_layernorm": (WIDTH,) for name in ("input", "post_attention")}
    layer |= {f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"}
    layer |= {f"mlp.{name}_proj": (INNER, WIDTH) for name in ("gate", "up")}
    shapes = {"embed_tokens": (WORDS, WIDTH), "norm": (WIDTH,)}
    shapes |= {f"layers.{at}.{name}": of for at in range(LAYERS) for name, of in layer.items()}
    draw, weights = np.random.default_rng(0), {}
    for name, shape in shapes.items():
        whole = f"model.{name}.weight"
        data = np.ones(shape) if len(shape) == 1 else 0.05 * draw.standard_normal(shape)
        weights[str(canonical(whole, "llama"))] = Weight(whole, shape, f32, data.astype(np.float32))
    return weights


def train(folder: Path, steps: int) -> None:
    """Train a model and save it in the layout of Hugging Face."""
    tokens, weights = tokenizer(), beginning()
    of = loss(from_config(CONFIG), weights, BATCH, LENGTH)
    step = trainer(of, adam(rate=None), wrt=tuple(weights), threads=1)
    state = step.start(**{name: each.data for name, each in weights.items()})
    for at, rows in zip(range(steps), batches(tokens, stories(seed=1)), strict=False):
        rate = 4e-3 * min(1, (at + 1) / 50) * (1 + np.cos(np.pi * at / steps)) / 2
        value, state = step(state, rows[:, :-1], rows[:, 1:].reshape(-1), rate=rate)
        if at % 200 == 0 or at == steps - 1:
            print(f"step {at}: loss {float(value):.4f}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tokens.save(str(folder / "tokenizer.json"))
    learnt = {each.name: state[name] for name, each in weights.items()}
    save_file(learnt, folder / "model.safetensors")


def stored(folder: Path, form: str) -> LanguageModel:
    """The model with matrices in a format, as the gguf package quantises them."""
    of, weights, tokens = read(folder)
    kind = FORMATS[form] if form in FORMATS else dtype(form.lower())
    for name, each in weights.items():
        if len(each.shape) > 1:
            data = gguf.quants.quantize(each.data, gguf.GGMLQuantizationType[form])
            weights[name] = Weight(name, each.shape, kind, data)
    return LanguageModel(of, weights, tokens, threads=1)


def perplexity(model: LanguageModel) -> float:
    """The perplexity on stories that are in no batch."""
    rows = next(batches(model.tokenizer.inner, stories(seed=2, tested=True)))
    own = np.arange(1, 1 + BATCH * LENGTH).reshape(BATCH, LENGTH).tolist()  # 0 is spare
    spans = [Span([*row[:-1]], 0, at, LENGTH) for row, at in zip(rows, own, strict=True)]
    scores = np.stack(model.logits(model.caches(1 + BATCH * LENGTH), spans)).astype(np.float64)
    right = np.take_along_axis(scores, rows[:, 1:, None], 2)
    return float(np.exp(np.mean(np.log(np.exp(scores).sum(axis=2, keepdims=True)) - right)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small language model.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("stories"))
    parser.add_argument("--steps", type=int, default=1200)
    args = parser.parse_args()
    train(args.folder, args.steps)
    for form in ("Q4_0", "Q8_0", "F16", "F32"):
        model = stored(args.folder, form)
        print(f"{form}: perplexity {perplexity(model):.4f}")
    right = 0
    for _, (start, end) in zip(range(100), stories(seed=3, tested=True), strict=False):
        said = "".join([piece.text for piece in generate(model, start)])
        right += said == end
    print(f"{right} of 100 stories end right: {start}|{said}")


if __name__ == "__main__":
    main()
