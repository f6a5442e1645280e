"""Shape arithmetic: the integers that an expression gives, as numbers and terms over dims.

>>> from plica.ir.op.namespace import op
>>> from plica.ir.type import dim_var
>>> n = op.dim_value(dim_var("n"))
>>> terms_of(op.stack((n, n * const(2, "i64")), axis=0) * const(0, "i64")).tolist()
[0, 0]
>>> terms_of(op.trunc_divide(n, const(0, "i64"))) is None
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from plica.core.binding import free_vars
from plica.core.fold import post_order
from plica.frontend.onnx.storage import Array
from plica.ir.graph.expression import Apply, Call, Const, Expr, Function, Literal, Project, const
from plica.ir.graph.module import main_module
from plica.ir.loop.scalar import FloorDiv, Max, Min, Scalar, index
from plica.ir.op.record import tensor_of
from plica.ir.type import (
    TensorType,
    is_size,
    known,
    normal_dim,
    product,
    same_dim,
    static_shape,
    type_of,
)
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.interpret.graph_machine import computed
    from plica.ir.interpret.interpreter import interpret

Term = Any  # int or Scalar: numpy's arrays of objects do not say

SMALL: Final = 1 << 12  # constants of at most this many elements are computed at once
LARGE: Final = 1 << 22  # the maximum intermediate elements of a folded value
MOST_TERMS: Final = 1 << 10  # no more integers than this are shapes


def terms_of(root: Expr) -> Array | None:
    """The integers of an expression as int and Scalar, or None if they depend on elements."""
    done: dict[Expr, Array] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        count, args = size_of(node), _operands(node)
        if count is None or count > MOST_TERMS:
            return None
        if missing := [arg for arg in args if arg not in done]:
            stack += missing
            continue
        array = _computed(node, [done[arg] for arg in args]) if args else _leaf(node)
        if array is None or any(term is None for term in array.flat):
            return None
        done[node] = as_objects([_normal(term) for term in array.flat], array.shape)
    return done[root]


def _operands(node: Expr) -> Sequence[Expr]:
    """The expressions whose terms say those of a node; none for others."""
    match node:
        case _ if not free_vars(node):
            return ()
        case Project(Apply("split", args), _):
            return args
        case Apply(name, args) if name in _TABLE:
            return args
        case _:
            return ()


def _leaf(node: Expr) -> Array | None:
    match node:
        case Apply("dim_value", (), attrs):
            return as_objects([dict(attrs)["dim"]], ())
        case Apply("shape_of", (x,)):
            sizes = tensor_of(x).shape
            return as_objects(list(sizes), (len(sizes),))
        case Apply("size", (x,), attrs) if dict(attrs)["axis"] is None:
            return as_objects([product(tensor_of(x).shape)], ())
        case _:
            whole = settled(node)
            numbers = whole.numpy() if isinstance(whole, Const) else None
            if numbers is None or numbers.dtype.kind not in "biu":
                return None
            return as_objects(numbers.tolist(), numbers.shape)


def _computed(node: Expr, arrays: Sequence[Array]) -> Array | None:
    if isinstance(node, Project):
        assert isinstance(node.value, Apply)
        attrs = dict(node.value.attrs)
        ends = attrs["indices_or_sections"]
        ends = [_normal(end) for end in ends] if isinstance(ends, tuple) else _normal(ends)
        if not all(isinstance(end, int) for end in np.ravel(ends)):
            return None
        return np.asarray(np.split(arrays[0], ends, attrs["axis"])[node.index], object)
    assert isinstance(node, Apply)
    return _TABLE[node.op](dict(node.attrs), tensor_of(node), *arrays)


def _normal(term: Term) -> Term:
    if not isinstance(term, Scalar):
        return term
    number = known(scalar := normal_dim(term))
    return scalar if number is None else number


Attrs = Mapping[str, Any]
Compute = Callable[..., "Array | None"]


def _elementwise(function: Callable[[Term, Term], Term | None]) -> Compute:
    joined = np.frompyfunc(function, 2, 1)

    def compute(attrs: Attrs, of: TensorType, left: Array, right: Array) -> Array:
        whole, _ = np.broadcast_arrays(left, right)
        return as_objects(np.asarray(joined(left, right), object), whole.shape)

    return compute


def _divided(a: Term, b: Term) -> Term | None:
    """Division rounded towards zero, which is down where both sides are no less than zero."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    return _floored(a, b) if _is_size(a) else None


def _floored(a: Term, b: Term) -> Term | None:
    if not isinstance(b, int) or b <= 0:
        return None
    return a // b if isinstance(a, int) else normal_dim(FloorDiv(a, index(b)))


def _is_size(term: Term) -> bool:
    return term >= 0 if isinstance(term, int) else is_size(term)


def _equal(a: Term, b: Term) -> bool | None:
    left, right = (term if isinstance(term, Scalar) else index(term) for term in (a, b))
    if same_dim(left, right):
        return True
    if (apart := known(normal_dim(left - right))) is not None:
        return apart == 0
    # A size is never negative: the -1 that exported models compare dims with is none.
    sides = ((a, b), (b, a))
    return False if any(isinstance(x, int) and x < 0 and _is_size(y) for x, y in sides) else None


def _extreme(numbers: Callable[..., int], terms: type[Min | Max]) -> Compute:
    def join(a: Term, b: Term) -> Term:
        if isinstance(a, int) and isinstance(b, int):
            return numbers(a, b)
        return normal_dim(terms(*(x if isinstance(x, Scalar) else index(x) for x in (a, b))))

    return _elementwise(join)


def _in_shape(attrs: Attrs, of: TensorType, data: Array) -> Array | None:
    sizes = static_shape(of)
    return None if sizes is None else data.reshape(sizes)


def _broadcast(attrs: Attrs, of: TensorType, data: Array) -> Array | None:
    sizes = static_shape(of)
    return None if sizes is None else np.broadcast_to(data, sizes)


def _taken(attrs: Attrs, of: TensorType, data: Array, at: Array) -> Array | None:
    size = data.shape[attrs["axis"]]
    if not all(isinstance(place, int) and -size <= place < size for place in at.flat):
        return None
    return np.asarray(np.take(data, at.astype(np.int64), axis=attrs["axis"]), object)


def _sliced(attrs: Attrs, of: TensorType, data: Array) -> Array | None:
    starts, stops = ([_normal(end) for end in attrs[name]] for name in ("starts", "stops"))
    if not all(end is None or isinstance(end, int) for end in (*starts, *stops)):
        return None
    cut = [slice(None)] * data.ndim
    ends = zip(starts, stops, attrs["steps"] or (1,) * len(starts), strict=True)
    axes = range(len(starts)) if attrs["axes"] is None else attrs["axes"]
    for axis, each in zip(axes, ends, strict=True):
        cut[axis] = slice(*each)
    return data[tuple(cut)]


def _where(attrs: Attrs, of: TensorType, condition: Array, yes: Array, no: Array) -> Array | None:
    flags, a, b = np.broadcast_arrays(condition, yes, no)
    chosen = zip(flags.flat, a.flat, b.flat, strict=True)
    return as_objects([x if flag else y for flag, x, y in chosen], flags.shape)


def _folded(fold: np.ufunc) -> Compute:
    def compute(attrs: Attrs, of: TensorType, data: Array) -> Array:
        whole = fold.reduce(data, attrs["axis"], keepdims=attrs["keepdims"], initial=fold.identity)
        return as_objects(whole, np.shape(whole))

    return compute


def _stacked(attrs: Attrs, of: TensorType, *parts: Array) -> Array:
    return np.stack(parts, axis=attrs["axis"])


# fmt: off
_TABLE: Final[dict[str, Compute]] = {
    "copy":         lambda attrs, of, data: data,
    "cast":         lambda attrs, of, data: data,
    "add":          _elementwise(lambda a, b: a + b),
    "subtract":     _elementwise(lambda a, b: a - b),
    "multiply":     _elementwise(lambda a, b: a * b),
    "trunc_divide": _elementwise(_divided),
    "floor_divide": _elementwise(_floored),
    "minimum":      _extreme(min, Min),
    "maximum":      _extreme(max, Max),
    "equal":        _elementwise(_equal),
    "negative":     lambda attrs, of, data: as_objects([-term for term in data.flat], data.shape),
    "concat":       lambda attrs, of, *parts: np.concatenate(parts, axis=attrs["axis"]),
    "stack":        _stacked,
    "transpose":    lambda attrs, of, data: data.transpose(attrs["axes"]),
    "take":         _taken,
    "reshape":      _in_shape,
    "squeeze":      _in_shape,
    "expand_dims":  _in_shape,
    "nn.flatten":   _in_shape,
    "broadcast_to": _broadcast,
    "slice":        _sliced,
    "where":        _where,
    "prod":         _folded(np.multiply),
    "sum":          _folded(np.add),
}
# fmt: on


def as_objects(values: object, shape: tuple[int, ...]) -> Array:
    """An array of objects, whatever numpy would make of them."""
    flat = np.empty(math.prod(shape), object)
    flat[:] = np.asarray(values, object).reshape(-1)
    return flat.reshape(shape)


def size_of(expr: Expr) -> int | None:
    """The number of elements of a tensor, or None if symbolic."""
    of = type_of(expr)
    shape = static_shape(of) if isinstance(of, TensorType) else None
    return None if shape is None else math.prod(shape)


def settled(expr: Expr, most: int = SMALL) -> Expr:
    """The constant an expression without variables is, if it has no more elements than `most`."""
    count = size_of(expr)
    if isinstance(expr, Const) or count is None or count > most or free_vars(expr):
        return expr
    # A small result may be cut from a huge intermediate, or need many steps; a loop may never end.
    whole = list(post_order(expr))
    parts = [size_of(each) for each in whole if isinstance(each, Apply)]
    if sum(size for size in parts if size is not None) > LARGE:
        return expr
    if any(isinstance(term, Call) for term in whole):
        return expr
    of = type_of(expr)
    assert isinstance(of, TensorType)
    if all(isinstance(each, Apply | Const | Literal) for each in whole if isinstance(each, Expr)):
        return const(computed(expr), of.dtype)
    return const(interpret(main_module(Function((), (), (), None, expr))), of.dtype)
