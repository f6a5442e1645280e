"""Whether the weights of a file fit an architecture: their names, shapes and dtypes.

A weight that is missing, left over or of another shape is refused by the name that the file gives
it: text computed without it would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from plica.ir.type.dtype import DType
from plica.runtime.error import PlicaError
from plica_lm.architecture import Architecture
from plica_lm.naming import canonical, spellings
from plica_lm.refusal import DAMAGED, refusal
from plica_lm.weight import Weight

IGNORED: Final = re.compile(
    r"(^|\.)rotary_emb\.|\.attn\.(bias|masked_bias)$|^rope_(freqs|factors_long|factors_short)\."
    r"|^(model\.)?(vision_tower|multi_modal_projector)\."
)
"""Weights that text needs none of: tables of rotary positions and masks, parts for images."""

# fmt: off
SHAPES: Final[Mapping[str, tuple[str, ...]]] = {
    "embedding": ("vocabulary", "width"), "position_embedding": ("positions", "width"),
    "head": ("vocabulary", "width"), "norm": ("width",), "attention_norm": ("width",),
    "mlp_norm": ("width",), "attention_post_norm": ("width",), "mlp_post_norm": ("width",),
    "q": ("queries", "width"), "k": ("keys", "width"), "v": ("keys", "width"),
    "qkv": ("queries + 2 keys", "width"), "o": ("width", "queries"),
    "q_norm": ("head",), "k_norm": ("head",), "gate": ("inner", "width"), "up": ("inner", "width"),
    "gate_up": ("2 inner", "width"), "down": ("width", "inner"), "router": ("experts", "width"),
    "experts_gate": ("experts", "inner", "width"), "experts_up": ("experts", "inner", "width"),
    "experts_down": ("experts", "width", "inner"),
}
"""The axes of each weight, (out, in); a bias has the first.  Axes that no configuration states
have the size that the first weight of a layer gives them."""

BIASES: Final[Mapping[str, frozenset[str]]] = {
    "qwen2": frozenset({"q", "k", "v", "qkv"}),
    "phi": frozenset({"q", "k", "v", "qkv", "o", "up", "down"}),
    "gpt2": frozenset({"qkv", "o", "up", "down"}),
}
"""Projections that have a bias in every model of a family."""
# fmt: on


def check_weights(of: Architecture, weights: Mapping[str, Weight], names: Iterable[str]) -> None:
    """Refuse weights by canonical name, read from a file with these names, that do not fit."""
    names = tuple(names)
    for name in names:
        if not IGNORED.search(name) and canonical(name, of.family) is None:
            raise _misfit(f"The weight {name} is not one that {of.family} uses.",
                          "only weights of the architecture", name)  # fmt: skip
    for name, weight in weights.items():
        layer = re.match(r"layer(\d+)_", name)
        if layer and int(layer[1]) >= len(of.layers):
            raise _misfit(
                f"The file has weights of more layers than num_hidden_layers: {weight.name}.",
                f"{len(of.layers)} layers", f"layer {layer[1]} (counted from 0)")  # fmt: skip
        if isinstance(weight.format, DType) and "f" not in str(weight.format):
            raise _misfit(f"The weight {weight.name} has the wrong dtype.", "floats",
                          str(weight.format))  # fmt: skip
    for name in needed_weights(of, weights):
        if name not in weights:
            expected = " or ".join(spellings(name, of.family, names))
            layer = re.match(r"layer(\d+)_", name)
            where = f" of layer {layer[1]} (of {len(of.layers)})" if layer else ""
            raise _misfit(f"The file lacks the weight {expected}{where}.", expected,
                          f"{len(names)} other weights")  # fmt: skip
    _check_shapes(of, weights)


def needed_weights(of: Architecture, has: Mapping[str, Weight]) -> Iterator[str]:
    """The canonical names of the weights that an architecture cannot do without."""
    yield "embedding"
    yield "norm"
    if not of.tied:
        yield "head"
    if of.family == "gpt2":
        yield "position_embedding"
    inner = ["norm"]
    for at in range(len(of.layers)):
        own = f"layer{at}_"
        parts = ["qkv"] if f"{own}qkv" in has or of.family == "gpt2" else ["q", "k", "v"]
        parts.append("o")
        if any(f"{own}{part}" in has for part in ("router", "experts_gate")):
            parts += ["router", "experts_gate", "experts_up", "experts_down"]
        elif of.family in ("gpt2", "phi"):
            parts += ["up", "down"]
        elif f"{own}gate_up" in has:
            parts += ["gate_up", "down"]
        else:
            parts += ["gate", "up", "down"]
        norms = ["attention_norm"] if of.family == "phi" else ["attention_norm", "mlp_norm"]
        if of.family.startswith("gemma"):
            norms += ["attention_post_norm", "mlp_post_norm"]
        if of.family in ("qwen3", "qwen3_moe", "gemma3_text"):
            norms += ["q_norm", "k_norm"]
        yield from (own + part for part in (*norms, *parts))
        biased = BIASES.get(of.family, frozenset())
        yield from (f"{own}{part}_bias" for part in parts if part in biased)
        inner += [own + norm for norm in norms]
    if of.norm == "layer":
        yield from (f"{norm}_bias" for norm in inner)


def _check_shapes(of: Architecture, weights: Mapping[str, Weight]) -> None:
    whole = {"width": of.width, "queries": of.heads * of.head, "keys": of.shared * of.head,
             "head": of.head}  # fmt: skip
    whole["queries + 2 keys"] = whole["queries"] + 2 * whole["keys"]
    whole |= {} if of.vocabulary is None else {"vocabulary": of.vocabulary}
    whole |= {} if of.trained is None else {"positions": of.trained}
    layers: dict[str, dict[str, int]] = {}
    for name, weight in sorted(weights.items()):
        match = re.fullmatch(r"(layer\d+_|)(\w+?)(_bias|)", name)
        layer, kind = (match[1], match[2]) if match else ("", name)
        axes = SHAPES.get(kind)
        if axes is None:
            raise _misfit(f"The weight {weight.name} is not one that {of.family} uses.",
                          "only weights of the architecture", name)  # fmt: skip
        axes = axes[:1] if match and match[3] else axes
        sizes = layers.setdefault(layer, {})
        turned = of.transposed and len(axes) == 2 and layer != "" and kind != "router"
        shape = weight.shape[::-1] if turned else weight.shape
        for axis, size in zip(axes, shape, strict=False):
            free = axis.removeprefix("2 ")
            times = 2 if axis != free else 1
            if axis not in whole:
                sizes.setdefault(free, size // times)
        known = {**sizes, **whole, "2 inner": 2 * sizes.get("inner", 0)}
        expected = tuple([known.get(axis) for axis in axes])
        if shape != expected:
            order = tuple(reversed(expected)) if turned else expected
            words = ", ".join(reversed(axes) if turned else axes)
            raise _misfit(f"The weight {weight.name} has the wrong shape.",
                          f"{order}: ({words})", str(weight.shape))  # fmt: skip
        if kind == "router" and not 0 < of.experts_per_token <= shape[0]:
            raise _misfit("num_experts_per_tok does not fit the router.", f"1 to {shape[0]}",
                          str(of.experts_per_token))  # fmt: skip


def _misfit(message: str, expected: str, found: str) -> PlicaError:
    hint = f"Use the configuration that belongs to these weights. {DAMAGED}"
    return refusal("bad-model", message, expected, found, hint)
