"""The row of n-grams: how often runs of integers of a pool occur in sequences of integers."""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, dtype, shape
from plica.frontend.onnx.storage import Array
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type import f32, known

MOST: Final = 1 << 24  # this many places are compared with this many runs at most, together


def _tf_idf(node: OnnxNode) -> Expr:
    if node.texts("pool_strings") or not dtype(node.x()).is_integer:
        node.unsupported("There are no strings.", "a pool of integers", "pool_strings")
    pool, starts = (node.integers(each) for each in ("pool_int64s", "ngram_counts"))
    columns, mode = node.integers("ngram_indexes"), node.text("mode", "TF")
    weights = node.reals("weights")
    least, most = node.integer("min_gram_length"), node.integer("max_gram_length")
    skips, sizes = node.integer("max_skip_count"), node.sizes(0)
    if not pool or not starts or not columns or mode not in ("TF", "IDF", "TFIDF"):
        node.malformed("A pool, its counts, indexes and a mode are given.", "TF, IDF, TFIDF", mode)
    if len(sizes) not in (1, 2) or min(columns) < 0 or skips < 0:
        node.malformed("TfIdfVectorizer takes one or several sequences.", "rank 1 or 2", str(sizes))
    rows = op.reshape(node.x(), (1, sizes[0])) if len(sizes) == 1 else node.x()
    counts, at = [], 0
    for length in range(1, len(starts) + 1):
        end = starts[length] if length < len(starts) else len(pool)
        runs = np.array(pool[starts[length - 1] : end], np.int64)
        if runs.size % length or starts[length - 1] != at:
            node.malformed("The pool does not fit its counts.", "whole n-grams", str(starts))
        at = end
        runs = runs.reshape(-1, length)
        if not len(runs):
            continue
        wanted = least <= length <= most
        counts.append(_counted(node, rows, runs, skips if length > 1 else 0, wanted))
    expr = op.concat(tuple(counts), axis=1)  # one column for each n-gram, in the pool's order
    total = known(shape(expr)[1])
    wide = max(columns) + 1
    if total != len(columns) or (weights is not None and len(weights) != wide):
        message = "There is an index for each n-gram, and a weight for each column if for any."
        node.malformed(message, f"{total} and {wide}", f"{len(columns)} and {len(weights or ())}")
    if mode == "IDF":
        expr = op.cast(expr > const(np.float32(0)), f32)
    placed = np.zeros((total, wide), np.float32)
    placed[np.arange(total), columns] = 1
    made = op.matmul(expr, const(placed))
    if mode != "TF" and weights is not None:
        made = made * const(np.array(weights, np.float32))
    return op.reshape(made, (wide,)) if len(sizes) == 1 else made


def _counted(node: OnnxNode, rows: Expr, runs: Array, skips: int, wanted: bool) -> Expr:
    """The number of occurrences of each n-gram in each row, with gaps up to a given length."""
    count, width = node.sizes(0)[0] if node.rank(0) == 2 else 1, node.sizes(0)[-1]
    length = runs.shape[1]
    expr: Expr = const(np.zeros((count, len(runs)), np.float32))
    for apart in range(1, skips + 2):
        first = width - (length - 1) * apart
        if not wanted or first < 1:
            break
        if count * first * runs.size > MOST:
            node.unsupported("There are too many places and n-grams.", str(MOST), str(runs.shape))
        places = np.arange(first)[:, None] + apart * np.arange(length)[None, :]
        windows = op.reshape(op.take(rows, const(places), axis=1), (count, first, 1, length))
        same = op.equal(windows, const(runs.astype(dtype(rows).numpy).reshape(1, 1, *runs.shape)))
        expr = expr + op.sum(op.cast(op.all(same, axis=(3,)), f32), axis=(1,))
    return expr


TABLE: Final[dict[str, Row]] = {"TfIdfVectorizer": _tf_idf}
