"""Rows of operators that onnxruntime's optimiser puts in place of several (`com.microsoft`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.linear import TABLE as LINEAR
from plica.frontend.onnx.row.window import TABLE as WINDOW
from plica.frontend.onnx.row.word import Made, Row, dtype, in_f32, like, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type import i32, known

Settings = Sequence[float]

# fmt: off
_ACTIVATIONS: Final[dict[str, Callable[[Expr, Settings], Expr]]] = {
    "Relu":        lambda x, _: op.nn.relu(x),
    "Sigmoid":     lambda x, _: op.nn.sigmoid(x),
    "Tanh":        lambda x, _: op.tanh(x),
    "LeakyRelu":   lambda x, given: op.nn.leaky_relu(x, alpha=given[0] if given else 0.01),
    "Clip":        lambda x, given: op.clip(x, min=given[0], max=given[1]),
    "HardSigmoid": lambda x, given: op.nn.hard_sigmoid(x, alpha=given[0], beta=given[1]),
}
# fmt: on


def _activated(node: OnnxNode, x: Expr, name: str, given: Settings) -> Expr:
    if not name:
        return x
    if name not in _ACTIVATIONS:
        node.unsupported("An activation is not supported.", ", ".join(_ACTIVATIONS), name)
    if name in ("Clip", "HardSigmoid") and len(given) != 2:
        node.malformed(f"{name} has two settings.", "2", str(len(given)))
    return _ACTIVATIONS[name](x, given)


def _fused_conv(node: OnnxNode) -> Expr:
    made = WINDOW["Conv"](node)
    assert isinstance(made, Expr)
    if (more := node.maybe(3)) is not None:
        made = made + more
    return _activated(
        node, made, node.text("activation", ""), node.reals("activation_params") or ()
    )


def _fused_gemm(node: OnnxNode) -> Expr:
    made = LINEAR["Gemm"](node)
    assert isinstance(made, Expr)
    words = ("activation_alpha", "activation_beta", "activation_gamma")
    given = [node.real(word, 0.0) for word in words if node.has(word)]
    return _activated(node, made, node.text("activation", ""), given)


def _transposed(x: Expr) -> Expr:
    """A matrix, or each of a batch, transposed."""
    axes = range(rank(x))
    return op.transpose(x, (*axes[:-2], axes[-1], axes[-2])) if rank(x) > 1 else x


def _fused_matmul(node: OnnxNode) -> Expr:
    if node.flag("transBatchA") or node.flag("transBatchB"):
        node.unsupported("FusedMatMul takes batches where they stand.", "transBatchA=transBatchB=0")
    a, b = node.x(0), node.x(1)
    expr = op.matmul(
        _transposed(a) if node.flag("transA") else a, _transposed(b) if node.flag("transB") else b
    )
    alpha = node.real("alpha", 1.0)
    return expr if alpha == 1.0 else expr * like(alpha, expr)


def _bias_gelu(approximate: str) -> Row:
    def row(node: OnnxNode) -> Expr:
        x, bias = node.x(0), node.maybe(1)
        return op.nn.gelu(x if bias is None else x + bias, approximate=approximate)

    return row


def _quick_gelu(node: OnnxNode) -> Expr:
    x = node.x()
    return x * op.nn.sigmoid(x * like(node.real("alpha", 1.702), x))


def _normed(x: Expr, gamma: Expr, beta: Expr | None, epsilon: float, centred: bool) -> Expr:
    """Rows less their mean, if they are centred, by their spread, in f32."""
    inner = in_f32(x)
    if centred:
        inner = inner - op.mean(inner, axis=(-1,), keepdims=True)
    power = op.mean(op.square(inner), axis=(-1,), keepdims=True)
    scaled = inner * op.rsqrt(power + like(epsilon, power))
    expr = to(scaled, dtype(x)) * gamma
    return expr if beta is None else expr + beta


def _skip_norm(centred: bool) -> Row:
    """input, skip, gamma, beta where it is centred, bias; the sum is the fourth result."""

    def row(node: OnnxNode) -> Made:
        whole = node.x(0) + node.x(1)
        beta = node.maybe(3) if centred else None
        if (bias := node.maybe(4 if centred else 3)) is not None:
            whole = whole + bias
        epsilon = node.real("epsilon", 1e-12)
        if any(node.proto.output[1:3]):
            node.unsupported("Means and spreads are results while training.", "one result")
        expr = _normed(whole, node.x(2), beta, epsilon, centred)
        return [expr, whole, whole, whole][: max(1, len(node.proto.output))]

    return row


def _embed_norm(node: OnnxNode) -> Made:
    """ids, segments, words, positions, segments' table, gamma, beta, mask, places."""
    ids, segments, mask, places = node.x(0), node.maybe(1), node.maybe(7), node.maybe(8)
    batch, length = shape(ids)
    whole = op.take(node.x(2), ids, axis=0)
    position = node.x(3)
    if places is not None:
        whole = whole + op.take(position, places, axis=0)
    else:
        whole = whole + op.slice(position, (0,), (length,))
    if segments is not None and (table := node.maybe(4)) is not None:
        whole = whole + op.take(table, segments, axis=0)
    expr = _normed(whole, node.x(5), node.x(6), node.real("epsilon", 1e-12), centred=True)
    counted = (
        op.zeros(shape=(batch,), dtype=i32) if mask is None else op.sum(to(mask, i32), axis=(1,))
    )
    return [expr, counted, whole][: max(1, len(node.proto.output))]


# --- attention ------------------------------------------------------------------------------------


def _heads(node: OnnxNode, x: Expr) -> Expr:
    """(batch, length, heads * width) as (batch, heads, length, width)."""
    count, (batch, length, width) = node.integer("num_heads"), shape(x)
    whole = known(width)
    if count < 1 or whole is None or whole % count:
        node.malformed("Heads share the channels evenly.", f"a divisor of {whole}", str(count))
    return op.transpose(op.reshape(x, (batch, length, count, whole // count)), (0, 2, 1, 3))


def _masked(node: OnnxNode, scores: Expr, at: int) -> Expr:
    """Scores with masked elements replaced by a very low number."""
    if (mask := node.maybe(at)) is None:
        return scores
    length = shape(scores)[3]
    if rank(mask) == 1:
        if known(shape(mask)[0]) != known(shape(scores)[0]):
            node.unsupported("A mask of lengths has one a row.", None, str(node.type(at)))
        places = op.reshape(op.iota(shape=(length,), dtype=i32), (1, 1, 1, length))
        out = places < op.reshape(to(mask, i32), (*shape(mask), 1, 1, 1))
    elif rank(mask) == 2:
        out = op.expand_dims(to(mask, i32), axis=(1, 2)) > const(0, i32)
    elif rank(mask) == 3:
        out = op.expand_dims(to(mask, i32), axis=(1,)) > const(0, i32)
    else:
        node.unsupported("A mask has up to three axes.", "rank 1, 2 or 3", str(node.type(at)))
    return op.where(out, scores, scores + like(node.real("mask_filter_value", -10000.0), scores))


def _causal(scores: Expr) -> Expr:
    rows, columns = shape(scores)[2:]
    later = op.reshape(op.iota(shape=(columns,), dtype=i32), (1, columns)) > op.reshape(
        op.iota(shape=(rows,), dtype=i32), (rows, 1)
    )
    return op.where(later, like(float("-inf"), scores), scores)


def _attended(node: OnnxNode, of: Sequence[Expr], mask_at: int, bias: Expr | None) -> Expr:
    """What each query reads, (batch, length, heads * width)."""
    q, k, v = of
    width = known(shape(q)[3]) or 1
    scale = node.real("scale", 0.0) or 1.0 / sqrt(width)
    scores = op.matmul(q, _transposed(k)) * like(scale, q)
    if bias is not None:
        scores = scores + bias
    if node.flag("unidirectional"):
        scores = _causal(scores)
    read = op.matmul(op.nn.softmax(_masked(node, scores, mask_at), axis=-1), v)
    batch, heads, length, inner = shape(read)
    whole = (known(heads) or 0) * (known(inner) or 0)
    return op.reshape(op.transpose(read, (0, 2, 1, 3)), (batch, length, whole))


def _without_past(node: OnnxNode, *inputs: int) -> None:
    if any(node.maybe(at) is not None for at in inputs) or any(node.proto.output[1:]):
        node.unsupported("Attention with a cache is not supported.", "no past", "a past")


def _attention(node: OnnxNode) -> Expr:
    """x, weight (in, 3 * out), bias, mask, past, added to scores, length of the past."""
    _without_past(node, 4, 6)
    node.ignore("do_rotary", "past_present_share_buffer", "rotary_embedding_dim")
    if node.flag("do_rotary") or node.integers("qkv_hidden_sizes"):
        node.unsupported(
            "Attention has three parts of one width.", "no rotary, no qkv_hidden_sizes"
        )
    expr = op.matmul(node.x(0), node.x(1))
    if (bias := node.maybe(2)) is not None:
        expr = expr + bias
    width, rest = divmod(known(shape(expr)[2]) or 0, 3)
    if rest:
        node.malformed("The weight is for queries, keys and values.", "3 n", str(node.type(1)))
    parts = [op.slice(expr, (at * width,), ((at + 1) * width,), axes=(2,)) for at in range(3)]
    return _attended(node, [_heads(node, part) for part in parts], 3, node.maybe(5))


def _multi_head(node: OnnxNode) -> Expr:
    """query, key, value, bias of all three, padding of keys, added to scores, past."""
    _without_past(node, 6, 7)
    given = [node.x(0), node.x(1), node.x(2)]
    if any(rank(expr) != 3 for expr in given):
        node.unsupported("Queries, keys and values are given apart.", "rank 3", str(node.type(1)))
    if (bias := node.maybe(3)) is not None:
        at, parts = 0, []
        for expr in given:
            width = known(shape(expr)[2]) or 0
            parts.append(expr + op.slice(bias, (at,), (at + width,)))
            at += width
        given = parts
    return _attended(node, [_heads(node, expr) for expr in given], 4, node.maybe(5))


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Gelu":                             _bias_gelu("none"),
    "BiasGelu":                         _bias_gelu("none"),
    "FastGelu":                         _bias_gelu("tanh"),
    "QuickGelu":                        _quick_gelu,
    "FusedMatMul":                      _fused_matmul,
    "TransposeMatMul":                  _fused_matmul,
    "FusedGemm":                        _fused_gemm,
    "FusedConv":                        _fused_conv,
    "SkipLayerNormalization":           _skip_norm(centred=True),
    "SkipSimplifiedLayerNormalization": _skip_norm(centred=False),
    "EmbedLayerNormalization":          _embed_norm,
    "Attention":                        _attention,
    "MultiHeadAttention":               _multi_head,
}
# fmt: on
