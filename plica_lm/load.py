"""Loading: a model of a file or a folder, ready to make text.

    load("model.gguf")                  metadata, tokenizer and weights in one file
    load("folder")                      config.json, tokenizer.json, *.safetensors

Weights stay mapped; only experts stored separately are copied together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from plica.runtime.error import Place, PlicaError
from plica_lm.architecture import Architecture, from_config, from_gguf
from plica_lm.chat import check_template
from plica_lm.fit import check_weights
from plica_lm.gguf import open_gguf
from plica_lm.model import LanguageModel
from plica_lm.naming import grouped
from plica_lm.refusal import DAMAGED, refusal
from plica_lm.safetensors import open_safetensors
from plica_lm.tokenizer import Tokenizer
from plica_lm.value import check, integer
from plica_lm.weight import Weight

EXPECTED: Final = "a folder with config.json, or FILE.gguf"


def load(
    path: str | Path,
    *,
    context: int | None = None,
    say: Callable[[str], None] = lambda word: None,
    **options: Any,  # Any: options of a model
) -> LanguageModel:
    """The model of a GGUF file or of a Hugging Face folder, for texts of at most `context` tokens.
    `say` is called for each step."""
    say("reading")
    of, weights, tokenizer = read(Path(path), context)
    say("compiling")
    return LanguageModel(of, weights, tokenizer, name=Path(path).stem, **options)


def read(
    path: Path, context: int | None = None
) -> tuple[Architecture, dict[str, Weight], Tokenizer]:
    """The architecture, the weights by their canonical names, and the tokenizer."""
    if context is not None:
        check("context", context, integer(1))
    if not path.exists():
        raise refusal("unsupported", "There is no such file or folder.", EXPECTED, str(path),
                      "Check the path.", path)  # fmt: skip
    if not path.is_dir() and path.suffix != ".gguf":
        raise refusal("unsupported", "The file is not a language model.", EXPECTED, path.name,
                      "Give the folder that has config.json, or a GGUF file.", path)  # fmt: skip
    found = open_safetensors(path) if path.is_dir() else open_gguf(path)
    try:
        if path.is_dir():
            of = from_config(found.config, context)
        else:
            of = from_gguf(found.config, context, _factors(found.config, found.weights, context))
        weights = canonical_weights(found.weights, of.family)
        check_weights(of, weights, found.weights)
        tokenizer, rows = found.tokenizer(), weights["embedding"].shape[0]
        check_template(tokenizer.template)
        stated = found.config.get("eos_token_id") or []
        for token in (*tokenizer.ends, *(stated if isinstance(stated, list) else [stated])):
            check("eos_token_id", token, integer(0, rows - 1), "bad-model")
    except PlicaError as error:
        raise error.placed(Place(file=str(path))) from None
    if of.trained is not None and of.context > of.trained:
        warnings.warn(
            f"context {of.context} exceeds the {of.trained} tokens that {path.name} was trained "
            "for: expect worse text past them", stacklevel=3)  # fmt: skip
    return of, weights, tokenizer


def _factors(
    config: Mapping[str, Any], weights: Mapping[str, Weight], context: int | None
) -> list[float] | None:
    """The divisors of frequencies, which GGUF stores as a tensor. Any: as stored."""
    family = config.get("general.architecture")
    keys = (f"{family}.context_length", f"{family}.rope.scaling.original_context_length")
    length, trained = (config.get(key, 0) for key in keys)
    for key, value in zip(keys, (length, trained), strict=True):
        check(key, value, integer(0), "bad-model")
    long = (context or length) > trained
    names = ("rope_freqs.weight", f"rope_factors_{'long' if long else 'short'}.weight")
    weight = next((weights[name] for name in names if name in weights), None)
    return None if weight is None else weight.data.astype(np.float64).tolist()


def canonical_weights(of: Mapping[str, Weight], family: str) -> dict[str, Weight]:
    """Weights by the names that the decoder knows."""
    found = {}
    for name, parts in grouped(of, family).items():
        first = of[parts[0]]
        if len(parts) == 1 and not name.rpartition("_experts_")[1]:
            found[name] = first
            continue
        alike = f"{first.format} {first.shape}"
        for part in parts:
            if (shown := f"{of[part].format} {of[part].shape}") != alike:
                raise refusal("bad-model", f"The weight {part} differs from other experts.",
                              alike, shown, DAMAGED)  # fmt: skip
        data = np.stack([of[part].data for part in parts]) if first.data.ndim == 2 else first.data
        shape = (len(data), *first.shape[-2:])
        found[name] = Weight(name, shape, first.format, data)
    return found
