"""Loading: a model of a file or a folder, ready to make text.

    load("model.gguf")                  metadata, tokenizer and weights in one file
    load("folder")                      config.json, tokenizer.json, *.safetensors

Weights stay where they are mapped; only experts that a folder holds one by one are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica_lm.architecture import Architecture, from_config, from_gguf
from plica_lm.gguf import open_gguf
from plica_lm.model import Model
from plica_lm.naming import grouped
from plica_lm.safetensors import open_safetensors
from plica_lm.tokenizer import Tokenizer
from plica_lm.weight import Weight


def load(
    path: str | Path,
    *,
    context: int | None = None,
    say: Callable[[str], None] = lambda word: None,
    **options: Any,  # Any: options of a model
) -> Model:
    """The model of a GGUF file or of a folder of Hugging Face, for texts of at most `context`
    tokens.  `say` is told of each step."""
    say("reading")
    of, weights, tokenizer = read(Path(path), context)
    say("compiling")
    return Model(of, weights, tokenizer, name=Path(path).stem, **options)


def read(
    path: Path, context: int | None = None
) -> tuple[Architecture, dict[str, Weight], Tokenizer]:
    """The architecture, the weights by their canonical names, and the tokenizer."""
    if path.is_dir():
        found = open_safetensors(path)
        of = from_config(found.config, context)
    elif path.suffix == ".gguf":
        found = open_gguf(path)
        of = from_gguf(found.config, context, _factors(found.config, found.weights, context))
    else:
        message, expected = "No model is read from this.", "a folder with config.json, or FILE.gguf"
        raise UnsupportedError(Diagnostic("unsupported", message, Place(file=str(path)), expected))
    return of, canonical_weights(found.weights, of.family), found.tokenizer()


def _factors(
    config: Mapping[str, Any], weights: Mapping[str, Weight], context: int | None
) -> list[float] | None:
    """What frequencies are divided by, which GGUF has as a tensor: Any: as it says."""
    family = config.get("general.architecture")
    trained = config.get(f"{family}.rope.scaling.original_context_length", 0)
    long = (context or config.get(f"{family}.context_length", 0)) > trained
    names = ("rope_freqs.weight", f"rope_factors_{'long' if long else 'short'}.weight")
    found = next((weights[name] for name in names if name in weights), None)
    return None if found is None else found.data.astype(np.float64).tolist()


def canonical_weights(of: Mapping[str, Weight], family: str) -> dict[str, Weight]:
    """Weights by the names that the decoder knows."""
    found = {}
    for name, parts in grouped(of, family).items():
        first = of[parts[0]]
        if len(parts) == 1 and not name.rpartition("_experts_")[1]:
            found[name] = first
            continue
        data = np.stack([of[part].data for part in parts]) if first.data.ndim == 2 else first.data
        shape = (len(data), *first.shape[-2:])
        found[name] = Weight(name, shape, first.format, data)
    return found
