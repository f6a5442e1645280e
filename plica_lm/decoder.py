"""The decoder: one program of the graph language for all architectures.

    logits, caches = main(tokens, positions, rows, seen, wanted, caches…, weights…)

    tokens     (batch, new)      what is read now
    positions  (batch, new)      where each of them stands in its text
    rows       (batch, new)      the row of the caches that each of them is written to
    seen       (batch, length)   the rows of each text in the order of its positions
    wanted     (outputs,)        which of the batch * new tokens logits are made for
    caches     (cached, shared heads, head), two for each layer, donated: written in place

All batch and cache sizes are open: one code serves prompts, single steps and every length. The
caches of all texts are in shared rows, which `seen` gathers: texts of any lengths share a batch,
and common prefixes share rows. A token attends to the rows up to its own position; padding rows (of
shorter texts) are masked.

Weights are arguments: (out, in) arrays of their dtype, or the raw bytes of a block format.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from plica import op
from plica.core import Name
from plica.ir.graph.expression import Expr, Function, Project, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type import dim_var
from plica.ir.type.dim import DimLike
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.op import nn
from plica_lm.architecture import Architecture, Layer
from plica_lm.format import BlockFormat
from plica_lm.refusal import refusal
from plica_lm.rotary import Rotary
from plica_lm.weight import Weight

BATCH, NEW, LENGTH, CACHED, OUTPUTS = map(dim_var, ("batch", "new", "length", "cached", "outputs"))

INPUTS = ("tokens", "positions", "rows", "seen", "wanted")

HIDDEN = -1e30  # the score of masked positions


def caches_of(of: Architecture) -> tuple[str, ...]:
    """The names of the caches, in the order of the outputs."""
    return tuple(f"{kind}{at}" for at in range(len(of.layers)) for kind in ("keys", "values"))


def decoder(of: Architecture, weights: Mapping[str, Weight], cache: str = "f32") -> Module:
    """The program of an architecture for weights of these shapes and formats."""
    return _Decoder(of, weights, cache).module()


class _Decoder:
    """The values computed from the inputs, in order of use."""

    def __init__(self, of: Architecture, weights: Mapping[str, Weight], cache: str) -> None:
        self.of, self.weights, self.cache = of, weights, cache
        self.params: dict[str, Var] = {}
        for name in INPUTS[:3]:
            self.given(name, (BATCH, NEW), "i64")
        self.given("seen", (BATCH, LENGTH), "i64")
        self.given("wanted", (OUTPUTS,), "i64")
        for name in caches_of(of):
            self.given(name, (CACHED, of.shared, of.head), cache)

    def given(self, name: str, shape: tuple[DimLike, ...], dtype: str) -> Var:
        return self.params.setdefault(name, Var(Name(name), tensor(shape, dtype)))

    def module(self) -> Module:
        of, written = self.of, list[Expr]()
        tokens, positions = self.params["tokens"], self.params["positions"]
        x = self.rows_of("embedding", tokens) * of.embedding_scale
        if "position_embedding" in self.weights:
            x = x + self.rows_of("position_embedding", positions)
        for at, layer in enumerate(of.layers):
            x = self.layer(x, at, layer, written)
        logits = self.dense(self.norm(op.squeeze(x, (0,)), "norm"), "head", tied="embedding")
        if of.logit_cap is not None:
            logits = _capped(logits, of.logit_cap)
        main = Var(Name("main"), None)
        dims = (BATCH, NEW, LENGTH, OUTPUTS, CACHED)
        function = Function(dims, (), tuple(self.params.values()), None, Tuple((logits, *written)))
        return infer(module({main: function}, main))

    # --- weights -------------------------------------------------------------------------------

    def weight(self, name: str) -> Var:
        """A weight in its stored form."""
        if name not in self.weights:
            raise refusal("bad-model", f"The model lacks the weight {name!r}.",
                          f"the weights of {self.of.family}", f"{len(self.weights)} others",
                          "Use the configuration that belongs to these weights.")  # fmt: skip
        of = self.weights[name]
        stored = "u8" if isinstance(of.format, BlockFormat) else str(of.format)
        return self.given(name, of.data.shape, stored)

    def numbers(self, name: str, raw: Expr, lead: int = 1) -> Expr:
        """The dequantised numbers of a weight, or of some of its rows: `lead` row axes."""
        kind = self.weights[name].format
        return kind.decode(raw, lead) if isinstance(kind, BlockFormat) else op.cast(raw, "f32")

    def rows_of(self, name: str, places: Expr) -> Expr:
        """The rows of a table."""
        return self.numbers(name, op.take(self.weight(name), places, axis=0), 2)

    def dense(self, x: Expr, name: str, tied: str | None = None) -> Expr:
        """A projection with an optional bias."""
        used = tied if tied is not None and name not in self.weights else name
        weight = self.numbers(used, self.weight(used))
        turned = self.of.transposed and used == name and name != "head" and "router" not in name
        y = op.matmul(x, weight) if turned else nn.dense(x, weight)
        return y + self.vector(f"{name}_bias") if f"{name}_bias" in self.weights else y

    def vector(self, name: str) -> Expr:
        return self.numbers(name, self.weight(name))

    def norm(self, x: Expr, name: str) -> Expr:
        """The norm of this name; x itself where the model has none."""
        if name not in self.weights:
            return x
        gamma = self.vector(name)
        if self.of.norm == "layer":
            return nn.layer_norm(x, gamma, self.vector(f"{name}_bias"), epsilon=self.of.epsilon)
        if self.of.norm_offset:
            gamma = gamma + self.of.norm_offset
        return nn.rms_norm(x, gamma, epsilon=self.of.epsilon)

    # --- layers --------------------------------------------------------------------------------

    def layer(self, x: Expr, at: int, layer: Layer, written: list[Expr]) -> Expr:
        """Attention and feed-forward, sequential or, in Phi, parallel."""
        own = f"layer{at}_"
        h = self.norm(x, f"{own}attention_norm")
        mixed = self.norm(self.attention(h, at, layer, written), f"{own}attention_post_norm")
        if at + 1 == len(self.of.layers):  # no other token is read from here on
            x, mixed, h = map(self.wanted, (x, mixed, h))
        if f"{own}mlp_norm" not in self.weights:
            return x + mixed + self.mlp(h, own)
        x = x + mixed
        inner = self.mlp(self.norm(x, f"{own}mlp_norm"), own)
        return x + self.norm(inner, f"{own}mlp_post_norm")

    def wanted(self, x: Expr) -> Expr:
        """The tokens that logits are made for: (1, outputs, width)."""
        rows = op.reshape(x, (BATCH * NEW, self.of.width))
        return op.expand_dims(op.take(rows, self.params["wanted"], axis=0), (0,))

    def attention(self, h: Expr, at: int, layer: Layer, written: list[Expr]) -> Expr:
        """Attention over the rows that are seen, after the new ones are written."""
        of, own = self.of, f"layer{at}_"
        q, k, v = self.projections(h, own)
        q = self.norm(op.reshape(q, (BATCH, NEW, of.heads, of.head)), f"{own}q_norm")
        k = self.norm(op.reshape(k, (BATCH, NEW, of.shared, of.head)), f"{own}k_norm")
        if layer.rotary is not None:
            q = self.rotated(q, of.heads, layer.rotary)
            k = self.rotated(k, of.shared, layer.rotary)
        keys, values = self.written(f"keys{at}", k), self.written(f"values{at}", v)
        written += [keys, values]
        group = of.heads // of.shared
        q = op.reshape(q * of.scale, (BATCH, NEW, of.shared, group, of.head))
        q = op.reshape(op.transpose(q, (0, 2, 3, 1, 4)), (BATCH, of.shared, group * NEW, of.head))
        scores = op.matmul(q, op.transpose(self.seen(keys), (0, 1, 3, 2)))
        if of.attention_cap is not None:
            scores = _capped(scores, of.attention_cap)
        scores = op.where(self.visible(layer.window, group), scores, HIDDEN)
        mixed = op.matmul(nn.softmax(scores, axis=-1), self.seen(values))
        mixed = op.reshape(mixed, (BATCH, of.shared, group, NEW, of.head))
        joined = op.reshape(op.transpose(mixed, (0, 3, 1, 2, 4)), (BATCH, NEW, of.heads * of.head))
        return self.dense(joined, f"{own}o")

    def projections(self, h: Expr, own: str) -> tuple[Expr, Expr, Expr]:
        """Queries, keys and values, from one product if one weight holds all."""
        of = self.of
        if f"{own}qkv" not in self.weights:
            q, k, v = (self.dense(h, f"{own}{name}") for name in "qkv")
            return q, k, v
        first, second = of.heads * of.head, (of.heads + of.shared) * of.head
        parts = op.split(self.dense(h, f"{own}qkv"), (first, second), axis=2)
        return Project(parts, 0), Project(parts, 1), Project(parts, 2)

    def rotated(self, x: Expr, heads: int, of: Rotary) -> Expr:
        """Each head with pairs of its first elements rotated by the angle of its position."""
        pairs, head = len(of.frequencies), self.of.head
        place = op.expand_dims(op.cast(self.params["positions"], "f32"), (2, 3))
        angle = place * const(np.array(of.frequencies, np.float32))
        cos, sin = (expr * of.scale for expr in (op.cos(angle), op.sin(angle)))

        def part(start: int, stop: int) -> Expr:
            return op.slice(x, (start,), (stop,), axes=(3,))

        if of.interleaved:
            both = op.reshape(part(0, 2 * pairs), (BATCH, NEW, heads, pairs, 2))
            first, second = (op.take(both, const(at, "i64"), axis=4) for at in (0, 1))
        else:
            first, second = part(0, pairs), part(pairs, 2 * pairs)
        turned = (first * cos - second * sin, second * cos + first * sin)
        if of.interleaved:
            whole = op.reshape(op.stack(turned, axis=4), (BATCH, NEW, heads, 2 * pairs))
        else:
            whole = op.concat(turned, axis=3)
        return op.concat((whole, part(2 * pairs, head)), axis=3) if 2 * pairs < head else whole

    def written(self, name: str, new: Expr) -> Expr:
        """The cache with new rows."""
        rows = op.reshape(self.params["rows"], (BATCH * NEW,))
        whole = op.reshape(new, (BATCH * NEW, self.of.shared, self.of.head))
        return op.scatter_rows(self.params[name], rows, op.cast(whole, self.cache))

    def seen(self, cache: Expr) -> Expr:
        """The rows of each text: (batch, shared heads, length, head)."""
        heads = self.of.shared
        table = op.reshape(cache, (CACHED * heads, self.of.head))
        rows = op.expand_dims(self.params["seen"], (1,)) * heads
        places = rows + op.reshape(op.iota((heads,)), (heads, 1))
        return op.cast(op.take(table, places, axis=0), "f32")

    def visible(self, window: int | None, group: int) -> Expr:
        """Which rows each query sees, of all queries that share a head: (batch, 1, …, length)."""
        places = op.expand_dims(self.params["positions"], (1,))
        queries = op.broadcast_to(places, (BATCH, group, NEW))
        place, other = op.reshape(queries, (BATCH, 1, group * NEW, 1)), op.iota((LENGTH,))
        seen = op.less_equal(other, place)
        if window is None:
            return seen
        return op.logical_and(seen, op.greater(other, place - window))

    def mlp(self, h: Expr, own: str) -> Expr:
        """What follows attention: gated or plain, by one weight for all tokens or by experts."""
        if f"{own}router" in self.weights:
            return self.experts(h, own)
        if f"{own}gate_up" in self.weights:
            parts = op.split(self.dense(h, f"{own}gate_up"), 2, axis=2)
            inner = self.activated(Project(parts, 0)) * Project(parts, 1)
        elif f"{own}gate" in self.weights:
            inner = self.activated(self.dense(h, f"{own}gate")) * self.dense(h, f"{own}up")
        else:
            inner = self.activated(self.dense(h, f"{own}up"))
        return self.dense(inner, f"{own}down")

    def activated(self, x: Expr) -> Expr:
        match self.of.activation:
            case "gelu_tanh":
                return nn.gelu(x, approximate="tanh")
            case name:
                return getattr(nn, name)(x)  # type: ignore[no-any-return]  # an operator's result

    def experts(self, h: Expr, own: str) -> Expr:
        """The sum of the experts that a token chose, by their weights: only those are read."""
        count = self.of.experts_per_token
        chances = nn.softmax(self.dense(h, f"{own}router"), axis=-1)
        expr = op.topk(chances, count)
        share: Expr = Project(expr, 0)
        if self.of.renormalise:
            share = share / op.sum(share, axis=-1, keepdims=True)

        def of_expert(x: Expr, name: str) -> Expr:
            """(batch, new, chosen, in) by the weight of each that is chosen."""
            raw = op.take(self.weight(name), Project(expr, 1), axis=0)
            weight = self.numbers(name, raw, 4)
            return op.squeeze(op.matmul(weight, op.expand_dims(x, (4,))), (4,))

        x = op.expand_dims(h, (2,))
        gate, up, down = (f"{own}experts_{name}" for name in ("gate", "up", "down"))
        inner = self.activated(of_expert(x, gate)) * of_expert(x, up)
        made = of_expert(inner, down)
        return op.sum(made * op.expand_dims(share, (3,)), axis=2)


def _capped(x: Expr, cap: float) -> Expr:
    return op.tanh(x * (1 / cap)) * cap
