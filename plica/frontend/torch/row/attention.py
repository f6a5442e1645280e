"""Rows of attention: scaled dot products, and the layers that torch computes in one go."""

from __future__ import annotations

import math
from typing import Final

from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import dtype, in_f32, like, rank, shape
from plica.ir.graph.expression import Expr
from plica.ir.op.namespace import op
from plica.ir.type.dim import known


def _attention(node: TorchNode) -> Expr:
    """Scaled dot products, as torch defines them: a row with nothing to look at gives zero."""
    if node.number("dropout_p"):
        node.unsupported("Dropout in training draws random numbers.", "dropout_p=0")
    of = node.dtype()
    query, key, value = (in_f32(node.x(name)) for name in ("query", "key", "value"))
    if node.has("enable_gqa") and node.flag("enable_gqa"):
        many, few = (known(shape(x)[-3]) for x in (query, key))
        if many is None or few is None or not few:
            node.unsupported("Grouped heads need known numbers of heads.", "numbers")
        key, value = (op.repeat(x, many // few, axis=rank(x) - 3) for x in (key, value))
    scores = _scores(node, query, key)
    weights = op.nn.softmax(scores, axis=-1)
    if node.has("attn_mask"):
        most = op.max(scores, axis=(rank(scores) - 1,), keepdims=True)
        weights = op.where(op.equal(most, like(-math.inf, most)), like(0, weights), weights)
    return casted(op.matmul(weights, value), of)


def _scale(node: TorchNode, query: Expr) -> Expr:
    if (scale := node.argument("scale")) is None:
        if (width := known(shape(query)[-1])) is None:
            node.unsupported("Attention needs a known width of its heads.", "a number")
        scale = 1.0 / math.sqrt(width)
    return like(scale, query)


def _scores(node: TorchNode, query: Expr, key: Expr) -> Expr:
    """How much each query looks at each key; -inf where it must not."""
    scores = op.matmul(query, _transposed(key)) * _scale(node, query)
    mask = node.maybe("attn_mask")
    nothing = like(-math.inf, scores)
    if node.flag("is_causal"):
        rows, columns = shape(scores)[-2:]
        below = op.iota(shape=(rows, columns), axis=0, dtype="i64") >= op.iota(
            shape=(rows, columns), axis=1, dtype="i64"
        )
        scores = op.where(below, scores, nothing)
    if mask is not None:
        masked = dtype(mask).name == "bool"
        scores = op.where(mask, scores, nothing) if masked else scores + casted(mask, dtype(query))
    return scores


def _transposed(x: Expr) -> Expr:
    """Matrices with their last two axes exchanged."""
    return op.transpose(x, (*range(rank(x) - 2), rank(x) - 1, rank(x) - 2))


def _flash(node: TorchNode) -> list[Expr | None]:
    """Attention, and the logarithm of the sum that its weights are divided by."""
    expr = _attention(node)
    scores = _scores(node, *(in_f32(node.x(name)) for name in ("query", "key")))
    return [expr, op.logsumexp(scores, axis=(rank(scores) - 1,))]


def _flash_backward(node: TorchNode) -> list[Expr | None]:
    """The gradients of attention for queries, keys and values, from the saved sums."""
    if node.number("dropout_p"):
        node.unsupported("Dropout in training draws random numbers.", "dropout_p=0")
    d, query, key, value, out = (
        in_f32(node.x(name)) for name in ("grad_out", "query", "key", "value", "out")
    )
    total = op.expand_dims(node.x("logsumexp"), axis=(rank(query) - 1,))
    away = op.exp(_scores(node, query, key) - total)
    # A row with nothing to look at has no weights.
    weights = op.where(op.equal(total, like(-math.inf, total)), like(0, away), away)
    mean_ = op.sum(d * out, axis=(rank(out) - 1,), keepdims=True)
    by_score = weights * (op.matmul(d, _transposed(value)) - mean_)
    by_score = by_score * _scale(node, query)
    pairs = ((by_score, key), (_transposed(by_score), query), (_transposed(weights), d))
    return [casted(op.matmul(*pair), node.dtype(at)) for at, pair in enumerate(pairs)]


# --- layers --------------------------------------------------------------------------------------


def _heads(node: TorchNode, x: Expr, heads: int, width: int) -> tuple[Expr, Expr]:
    """Self-attention with all heads at once: the result before its projection, and the weights."""
    both = _layer(node, x, "qkv_weight", "qkv_bias")
    batch, length, _ = shape(x)
    size = width // heads
    parts = []
    for at in range(3):
        part = op.slice(both, (at * width,), ((at + 1) * width,), None, (2,))
        parts.append(op.transpose(op.reshape(part, (batch, length, heads, size)), (0, 2, 1, 3)))
    query, key, value = map(in_f32, parts)
    scores = op.matmul(query, op.transpose(key, (0, 1, 3, 2)))
    weights = op.nn.softmax(scores * like(1.0 / math.sqrt(size), scores), axis=3)
    joined = op.transpose(casted(op.matmul(weights, value), dtype(x)), (0, 2, 1, 3))
    return op.reshape(joined, (batch, length, width)), weights


def _layer(node: TorchNode, x: Expr, weight: str, bias: str) -> Expr:
    return op.nn.dense(x, node.x(weight)) + node.x(bias)


def _check_layer(node: TorchNode, x: Expr) -> None:
    if node.has("mask"):
        node.unsupported(f"{node.kind} with a mask is not supported.", "no mask")
    node.has("mask_type")
    if rank(x) != 3:
        node.unsupported(f"{node.kind} takes a batch of sequences.", "rank 3", str(rank(x)))


def _encoder_layer(node: TorchNode) -> Expr:
    x = node.x("src")
    _check_layer(node, x)
    of = dtype(x)
    first, epsilon = node.flag("norm_first"), float(node.number("eps"))
    bend = op.nn.gelu if node.flag("use_gelu") else op.nn.relu
    width, heads = node.integer("embed_dim"), node.integer("num_heads")

    def normed(y: Expr, number: int) -> Expr:
        names = (f"norm_weight_{number}", f"norm_bias_{number}")
        wide, gamma, beta = (casted(expr, opmath(of)) for expr in (y, *map(node.x, names)))
        return casted(op.nn.layer_norm(wide, gamma, beta, axis=2, epsilon=epsilon), of)

    def layer(y: Expr, number: int) -> Expr:
        return _layer(node, y, f"ffn_weight_{number}", f"ffn_bias_{number}")

    joined, _ = _heads(node, normed(x, 1) if first else x, heads, width)
    x = x + _layer(node, joined, "proj_weight", "proj_bias")
    x = x if first else normed(x, 1)
    bent = bend(casted(layer(normed(x, 2) if first else x, 1), opmath(of)))
    x = x + layer(casted(bent, of), 2)
    return x if first else normed(x, 2)


def _multi_head(node: TorchNode) -> list[Expr | None]:
    x = node.x("query")
    _check_layer(node, x)
    if node.x("key") is not x or node.x("value") is not x:
        node.unsupported(f"{node.kind} of three tensors is not supported.", "self-attention")
    of = dtype(x)
    width, heads = node.integer("embed_dim"), node.integer("num_head")
    joined, weights = _heads(node, x, heads, width)
    averaged = node.flag("average_attn_weights")
    expr = _layer(node, joined, "proj_weight", "proj_bias")
    if not node.flag("need_weights"):
        return [expr, None]
    return [expr, casted(op.mean(weights, axis=(1,)) if averaged else weights, of)]


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "scaled_dot_product_attention.default":                _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward.default": _flash_backward,
    "_scaled_dot_product_flash_attention_for_cpu.default": _flash,
    "_transformer_encoder_layer_fwd.default":              _encoder_layer,
    "_native_multi_head_attention.default":                _multi_head,
}
# fmt: on
