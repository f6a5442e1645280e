"""A decoder for plans and training: rotary attention with shared heads, RMS norms, gated layers.

>>> module = decoder(DecoderSize(layers=1, width=16, heads=4, shared=2, hidden=32, words=64), 2, 8)
>>> len(module.main_function().params)
12
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from plica import op
from plica.core import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, main_module
from plica.ir.type import infer, tensor
from plica.op import nn


@frozen
class DecoderSize:
    """The sizes of a decoder; those of Llama 3 8B by default."""

    layers: int = 32
    width: int = 4096
    heads: int = 32
    shared: int = 8
    hidden: int = 14336
    words: int = 128256

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.width // self.heads

    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights by name."""
        w, h, g = self.width, self.heads * self.head, self.shared * self.head
        of_layer = {
            "attention_norm": (w,), "q": (w, h), "k": (w, g), "v": (w, g), "o": (h, w),
            "norm": (w,), "gate": (w, self.hidden), "up": (w, self.hidden),
            "down": (self.hidden, w),
        }  # fmt: skip
        layers = {f"layer{n}_{k}": s for n in range(self.layers) for k, s in of_layer.items()}
        return {"embedding": (self.words, w), **layers, "final_norm": (w,), "head": (w, self.words)}


def decoder(of: DecoderSize, batch: int, length: int, *, loss: bool = False) -> Module:
    """Logits of tokens; with `loss` the mean cross-entropy to `targets`."""
    weights = {name: Var(Name(name), tensor(s, "f32")) for name, s in of.weights().items()}
    tokens = Var(Name("tokens"), tensor((batch, length), "i64"))
    targets = Var(Name("targets"), tensor((batch * length,), "i64"))
    x = op.take(weights["embedding"], tokens, axis=0)
    for n in range(of.layers):
        own = {k.removeprefix(f"layer{n}_"): w for k, w in weights.items()
               if k.startswith(f"layer{n}_")}  # fmt: skip
        x = x + _attention(nn.rms_norm(x, own["attention_norm"]), own, of, batch, length)
        y = nn.rms_norm(x, own["norm"])
        inner = nn.silu(op.matmul(y, own["gate"])) * op.matmul(y, own["up"])
        x = x + op.matmul(inner, own["down"])
    scores: Expr = op.matmul(nn.rms_norm(x, weights["final_norm"]), weights["head"])
    params: tuple[Var, ...] = (tokens, *weights.values())
    if loss:
        flat = op.reshape(scores, (batch * length, of.words))
        scores = nn.cross_entropy(flat, targets, op.ones((of.words,)))
        params = (tokens, targets, *weights.values())
    return infer(main_module(Function((), (), params, None, scores)))


def _attention(x: Expr, own: dict[str, Var], of: DecoderSize, batch: int, length: int) -> Expr:
    group = of.heads // of.shared

    def heads(name: str, count: int) -> Expr:
        split = op.reshape(op.matmul(x, own[name]), (batch, length, count, of.head))
        return op.transpose(split, (0, 2, 1, 3))

    q = _rotated(heads("q", of.heads), length, of.head)
    k = _rotated(heads("k", of.shared), length, of.head)
    v = heads("v", of.shared)
    q = op.reshape(q, (batch, of.shared, group, length, of.head))
    k = op.transpose(op.expand_dims(k, (2,)), (0, 1, 2, 4, 3))
    scores = op.matmul(q, k) * of.head**-0.5
    mask = const(np.triu(np.full((length, length), -1e30, np.float32), 1))
    mixed = op.matmul(nn.softmax(scores + mask, axis=-1), op.expand_dims(v, (2,)))
    joined = op.reshape(mixed, (batch, of.heads, length, of.head))
    flat = op.reshape(op.transpose(joined, (0, 2, 1, 3)), (batch, length, of.heads * of.head))
    return op.matmul(flat, own["o"])


def _rotated(x: Expr, length: int, head: int) -> Expr:
    half = head // 2
    angle = np.arange(length)[:, None] / 10000.0 ** (np.arange(half) / half)
    cos, sin = const(np.cos(angle).astype("f4")), const(np.sin(angle).astype("f4"))
    first = op.slice(x, (0,), (half,), axes=(3,))
    second = op.slice(x, (half,), (head,), axes=(3,))
    return op.concat((first * cos - second * sin, second * cos + first * sin), axis=3)
