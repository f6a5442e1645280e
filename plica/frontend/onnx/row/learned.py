"""Rows of ai.onnx.ml but for trees: what exporters of classical learning write around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.score import best_label, labels_of, one_of_two, samples, transformed
from plica.frontend.onnx.row.word import Row, dtype, like, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.type import f32, i64, known, product

NORMS: Final = ("MAX", "L1", "L2")


def _features(node: OnnxNode, x: Expr) -> int:
    """How many features samples have, which must be known."""
    if (found := known(shape(x)[-1])) is None or not found:
        node.unsupported("How many features samples have must be known.", "a number", str(shape(x)))
    return found


def _products(node: OnnxNode, columns: int | None) -> tuple[Expr, int]:
    """Scores from coefficients and intercepts, and their number per sample."""
    x = to(samples(node), f32)
    width = _features(node, x)
    weights = np.array(node.reals("coefficients") or (), np.float32)
    count = weights.size // width if columns is None else columns
    if not count or weights.size != count * width:
        message = "There is a coefficient for each feature and target."
        node.malformed(message, f"{count} times {width}", str(weights.size))
    scores = op.matmul(x, const(np.ascontiguousarray(weights.reshape(count, width).T)))
    if given := node.reals("intercepts"):
        if len(given) != count:
            node.malformed("There is an intercept for each target.", str(count), str(len(given)))
        scores = scores + const(np.array(given, np.float32))
    return scores, count


def _linear_regressor(node: OnnxNode) -> Expr:
    scores, count = _products(node, node.integer("targets", 1))
    return transformed(node, scores, node.text("post_transform", "NONE"), count)


def _linear_classifier(node: OnnxNode) -> list[Expr]:
    node.ignore("multi_class")  # how it was trained
    scores, count = _products(node, None)
    labels, how = labels_of(node, "classlabels_ints", count), node.text("post_transform", "NONE")
    if count > 1:
        return [best_label(scores, labels), transformed(node, scores, how, count)]
    if how != "LOGISTIC" or len(labels) != 2:
        message = "One row of coefficients tells two classes apart, by their probabilities."
        node.refused_for_good(message, "two labels and LOGISTIC", f"{len(labels)} and {how}")
    label = one_of_two(scores > like(0, scores), labels)
    return [label, op.concat((op.nn.sigmoid(-scores), op.nn.sigmoid(scores)), axis=1)]


def _per_feature(node: OnnxNode, values: Sequence[Any], x: Expr, kind: Any) -> Expr:
    """One number for all features, or one for each."""
    if len(values) != 1 and len(values) != _features(node, x):
        message = f"{node.proto.op_type} has one number, or one for each feature."
        node.malformed(message, f"1 or {_features(node, x)}", str(len(values)))
    return const(np.array(values, kind))


def _scaler(node: OnnxNode) -> Expr:
    x = to(node.x(), f32)
    offset, scale = (node.reals(name) or (start,) for name, start in (("offset", 0), ("scale", 1)))
    moved = x - _per_feature(node, offset, x, np.float32)
    return moved * _per_feature(node, scale, x, np.float32)


def _normalizer(node: OnnxNode) -> Expr:
    x, norm = to(node.x(), f32), node.text("norm", "MAX")
    if norm not in NORMS or rank(x) not in (1, 2):
        found = f"{norm}, rank {rank(x)}"
        node.malformed("Normalizer takes samples and a norm.", "MAX, L1 or L2; rank 1 or 2", found)
    axis = (rank(x) - 1,)
    if norm == "MAX":
        by = op.max(x, axis=axis, keepdims=True)
    elif norm == "L1":
        by = op.sum(op.absolute(x), axis=axis, keepdims=True)
    else:
        by = op.sqrt(op.sum(x * x, axis=axis, keepdims=True))
    return x / op.where(op.equal(by, like(0, by)), like(1, by), by)


def _binarizer(node: OnnxNode) -> Expr:
    x = node.x()
    least = node.real("threshold", 0.0)
    wide = x if dtype(x).is_float else to(x, f32)
    return to(wide > like(least, wide), dtype(x))


def _imputer(node: OnnxNode) -> Expr:
    x = node.x()
    floats, ints = node.reals("imputed_value_floats"), node.integers("imputed_value_int64s")
    lost, number = node.real("replaced_value_float", 0.0), node.integer("replaced_value_int64", 0)
    values: Sequence[Any] | None = floats if dtype(x).is_float else ints
    if not values:
        message = "Imputer has values of the kind that its input has."
        node.malformed(message, str(dtype(x)), "others, or none")
    by = _per_feature(node, values, x, dtype(x).numpy)
    if dtype(x).is_float and math.isnan(lost):
        missing = op.isnan(x)
    else:
        missing = op.equal(x, like(lost if dtype(x).is_float else number, x))
    return op.where(missing, by, x)


def _one_hot(node: OnnxNode) -> Expr:
    if node.texts("cats_strings"):
        node.refused_for_good("There are no strings.", "cats_int64s", "cats_strings")
    values = node.integers("cats_int64s") or ()
    if not node.flag("zeros", True):
        message = "OneHotEncoder gives zeros for what is no category."
        node.refused_for_good(message, "zeros of 1", "0: an error at the call")
    if not values or len(set(values)) != len(values):
        node.malformed("OneHotEncoder has different categories.", "one or more", str(values))
    x = node.x()
    whole = to(op.trunc(x) if dtype(x).is_float else x, i64)
    apart = op.reshape(whole, (*shape(whole), index(1)))
    return to(op.equal(apart, const(np.array(values, np.int64))), f32)


def _label_encoder(node: OnnxNode) -> Expr:
    """The value of each key: the first of equal keys."""
    pairs = {}
    for word in ("keys", "values"):
        if node.texts(f"{word}_strings"):
            node.refused_for_good("There are no strings.", f"{word} that are numbers", "strings")
        tensor = node.tensor(f"{word}_tensor")
        listed = (node.integers(f"{word}_int64s"), node.reals(f"{word}_floats"))
        kinds = (np.int64, np.float32)
        arrays = [np.array(v, kind) for v, kind in zip(listed, kinds, strict=True) if v is not None]
        pairs[word] = tensor if tensor is not None else arrays[0] if arrays else np.zeros(0)
    keys, values = (pair.reshape(-1) for pair in pairs.values())
    given = node.tensor("default_tensor")
    node.ignore("default_string")
    whole, real = node.integer("default_int64", -1), node.real("default_float", -0.0)
    x = node.x()
    if not keys.size or keys.size != values.size or keys.dtype != dtype(x).numpy:
        message = "LabelEncoder has a value for each key, and keys of its input's kind."
        node.malformed(message, str(dtype(x)), f"{keys.size} of {keys.dtype}, {values.size} values")
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        node.refused_for_good("LabelEncoder has no key that is no number.", "numbers", "nan")
    start = real if values.dtype.kind == "f" else whole
    expr: Expr = const(np.array(start if given is None else given.reshape(())).astype(values.dtype))
    _, first = np.unique(keys, return_index=True)
    keys, values = keys[first], values[first]
    hit = op.equal(op.reshape(x, (*shape(x), index(1))), const(keys))
    place = op.sum(
        op.where(hit, const(np.arange(1, keys.size + 1)), const(0, i64)), axis=(rank(x),)
    )
    table = op.concat((op.reshape(expr, (1,)), const(values)), axis=0)
    return op.take(table, place, axis=0, mode="clip")


def _feature_vectorizer(node: OnnxNode) -> Expr:
    node.ignore("inputdimensions")  # that of the inputs themselves
    parts = []
    for expr in node.all():
        if rank(expr) not in (1, 2):
            node.malformed("FeatureVectorizer takes samples.", "rank 1 or 2", str(rank(expr)))
        rows = op.reshape(expr, (index(1), *shape(expr))) if rank(expr) == 1 else expr
        parts.append(to(rows, f32))
    return op.concat(tuple(parts), axis=1) if len(parts) > 1 else parts[0]


def _array_feature_extractor(node: OnnxNode) -> Expr:
    x, at = node.x(), node.x(1)
    flat = op.reshape(at, (product(shape(at)),))
    expr = op.take(x, flat, axis=rank(x) - 1)
    return op.reshape(expr, (index(1), *shape(expr))) if rank(x) == 1 else expr


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer":             _binarizer,
    "FeatureVectorizer":     _feature_vectorizer,
    "Imputer":               _imputer,
    "LabelEncoder":          _label_encoder,
    "LinearClassifier":      _linear_classifier,
    "LinearRegressor":       _linear_regressor,
    "Normalizer":            _normalizer,
    "OneHotEncoder":         _one_hot,
    "Scaler":                _scaler,
}
# fmt: on
