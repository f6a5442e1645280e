"""Shapes: the same elements in another arrangement.

Nothing is computed here: every element of a result is one element of an argument (or padding), so
all of these are injective index maps.

>>> from plica.ir.type.term import tensor
>>> n = dim_var("n")
>>> wanted = {"shape": (index(-1), index(2))}
>>> same_dim(reshape.relation(wanted, tensor((n, 4), "f32")).shape[0], 2 * n)
True
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator, Values
from plica.ir.loop.scalar import Buffer, FloorDiv, FloorMod, Scalar, index
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import AXES, attribute, axes, axis, dims, indices, integers, new_shape
from plica.ir.op.record import composite, plus, primitive, tensor_of, times
from plica.ir.op.relation import Shape, axes_of, axis_of, need, refuse, shown
from plica.ir.type import TensorType, dim_var, known, normal_dim, product, quotient, same_dim

__all__ = ["dim_var", "same_dim"]

# --- reshape -------------------------------------------------------------------------------------


def new_shape_of(shape: Shape, wanted: Shape) -> Shape:
    """The requested shape, with -1 replaced by the inferred dim."""
    whole = product(shape)
    rest = [scalar for scalar in wanted if known(scalar) != -1]
    if len(rest) < len(wanted):
        part = product(rest)
        left = None if known(part) == 0 else quotient(whole, part)
        if left is None:
            refuse(
                "shape-conflict",
                "reshape cannot tell what -1 stands for.",
                f"a divisor of the {shown((whole,))} elements of {shown(shape)}",
                shown(rest),
            )
        return tuple(left if known(scalar) == -1 else normal_dim(scalar) for scalar in wanted)
    if not same_dim(whole, product(wanted)):
        refuse(
            "shape-conflict",
            "reshape keeps the number of elements.",
            f"{shown((whole,))} elements, as in {shown(shape)}",
            shown(wanted),
        )
    return tuple(map(normal_dim, wanted))


def _reshape_rule(attrs: Values, x: TensorType) -> TensorType:
    return TensorType(new_shape_of(x.shape, attrs["shape"]), x.dtype)


def regroup(axes_: Sequence[Scalar], shape: Shape, into: Shape) -> list[Scalar]:
    """The place in `into` of the element at `axes_` of `shape`: both hold the same elements.

    Axes are grouped as finely as both shapes allow, so that axes unaffected by the reshape keep
    plain indices.
    """
    if known(product(into)) == 0:
        return [index(0)] * len(into)  # nothing is ever read
    places: list[Scalar] = []
    i = j = 0
    while i < len(shape) or j < len(into):
        low, row = i, j
        here, i = (shape[i], i + 1) if i < len(shape) else (index(1), i)
        there, j = (into[j], j + 1) if j < len(into) else (index(1), j)
        while not same_dim(here, there) and (i < len(shape) or j < len(into)):
            if j == len(into) or (i < len(shape) and not _covers(here, there)):
                here, i = product((here, shape[i])), i + 1
            else:
                there, j = product((there, into[j])), j + 1
        places += _unravel(_ravel(axes_[low:i], shape[low:i]), into[row:j])
    return places


def _covers(large: Scalar, small: Scalar) -> bool:
    a, b = known(large), known(small)
    if a is not None and b is not None:
        return a >= b
    return quotient(large, small) is not None


def _ravel(axes_: Sequence[Scalar], sizes: Shape) -> Scalar:
    flat: Scalar = index(0)
    for at, extent in zip(axes_, sizes, strict=True):
        flat = plus(times(flat, extent), at) if known(extent) != 1 else flat
    return flat


def _unravel(flat: Scalar, sizes: Shape) -> list[Scalar]:
    wide = [at for at, extent in enumerate(sizes) if known(extent) != 1]
    places: list[Scalar] = [index(0)] * len(sizes)
    for at in wide:
        inner = product(sizes[at + 1 :])
        place = flat if known(inner) == 1 else FloorDiv(flat, inner)
        places[at] = place if at == wide[0] else FloorMod(place, sizes[at])
    return places


def _reshape_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    return compute((x,), out.shape, lambda *i: x[tuple(regroup(i, out.shape, x.shape))])


def _unshaped(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    """The same elements in the shape they came in."""
    return [reshape(d, tensor_of(x).shape)]


reshape = primitive(
    "reshape", ("x",), _reshape_rule, _reshape_body,
    "Reshape x in row-major order; one dim may be -1.",
    attributes=(attribute("shape", new_shape),), onnx=("Reshape",), gradient=_unshaped,
)  # fmt: skip
ravel = composite(
    "ravel", ("x",), lambda attrs, x: TensorType((product(x.shape),), x.dtype),
    lambda attrs, x: reshape(x, (product(tensor_of(x).shape),)),
    "Flatten x to a vector in row-major order.",
)  # fmt: skip


def _flat_shape(shape: Shape, at: int) -> Shape:
    if not -len(shape) <= at <= len(shape):
        message = f"nn.flatten has no axis {at} in a tensor of rank {len(shape)}."
        refuse("bad-attribute", message, f"from {-len(shape)} to {len(shape)}", str(at))
    at = at + len(shape) if at < 0 else at
    return product(shape[:at]), product(shape[at:])


flatten = composite(
    "nn.flatten", ("x",), lambda attrs, x: TensorType(_flat_shape(x.shape, attrs["axis"]), x.dtype),
    lambda attrs, x: reshape(x, _flat_shape(tensor_of(x).shape, attrs["axis"])),
    "Reshape to a matrix: the axes before `axis` are rows, the others columns.",
    attributes=(attribute("axis", axis, 1),), onnx=("Flatten",), aliases=("nn.batch_flatten",),
)  # fmt: skip

# --- order of axes -------------------------------------------------------------------------------


def _permutation(attrs: Values, rank: int) -> tuple[int, ...]:
    if (given := attrs["axes"]) is None:
        return tuple(reversed(range(rank)))
    order = tuple(axis_of("transpose", at, rank) for at in given)
    if sorted(order) != list(range(rank)):
        message = "transpose names each axis once."
        refuse("bad-attribute", message, f"the axes 0 to {rank - 1}", str(given))
    return order


def _transpose_rule(attrs: Values, x: TensorType) -> TensorType:
    order = _permutation(attrs, len(x.shape))
    return TensorType(tuple(x.shape[at] for at in order), x.dtype)


def _transpose_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    order = _permutation(attrs, len(x.shape))
    back = [order.index(at) for at in range(len(order))]
    return compute((x,), out.shape, lambda *i: x[tuple(i[at] for at in back)])


def _transpose_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    order = _permutation(attrs, len(tensor_of(x).shape))
    return [transpose(d, tuple(order.index(at) for at in range(len(order))))]


transpose = primitive(
    "transpose", ("x",), _transpose_rule, _transpose_body,
    "Permute the axes of x (default: reverse).",
    attributes=(attribute("axes", axes, None),), onnx=("Transpose",), aliases=("permute_dims",),
    gradient=_transpose_pullback,
)  # fmt: skip


def _swapped(attrs: Values, rank: int) -> tuple[int, ...]:
    a, b = (axis_of("swapaxes", attrs[name], rank) for name in ("axis1", "axis2"))
    order = list(range(rank))
    order[a], order[b] = b, a
    return tuple(order)


def _moved(attrs: Values, rank: int) -> tuple[int, ...]:
    source = [axis_of("moveaxis", at, rank) for at in attrs["source"]]
    target = [axis_of("moveaxis", at, rank) for at in attrs["destination"]]
    if not len(set(source)) == len(source) == len(target) == len(set(target)):
        message = "moveaxis names as many different sources as destinations."
        refuse("bad-attribute", message, str(attrs["source"]), str(attrs["destination"]))
    order = [at for at in range(rank) if at not in source]
    for to, at in sorted(zip(target, source, strict=True)):
        order.insert(to, at)
    return tuple(order)


def _permuted(shape: Shape, order: tuple[int, ...]) -> Shape:
    return tuple(shape[at] for at in order)


swapaxes = composite(
    "swapaxes", ("x",),
    lambda attrs, x: TensorType(_permuted(x.shape, _swapped(attrs, len(x.shape))), x.dtype),
    lambda attrs, x: transpose(x, _swapped(attrs, len(tensor_of(x).shape))),
    "x with two axes exchanged.", attributes=(attribute("axis1", axis), attribute("axis2", axis)),
)  # fmt: skip
moveaxis = composite(
    "moveaxis",
    ("x",),
    lambda attrs, x: TensorType(_permuted(x.shape, _moved(attrs, len(x.shape))), x.dtype),
    lambda attrs, x: transpose(x, _moved(attrs, len(tensor_of(x).shape))),
    "Move axes of x to new positions; the others keep their order.",
    attributes=(attribute("source", integers), attribute("destination", integers)),
)

# --- asserted sizes ------------------------------------------------------------------------------


def _matched(attrs: Values, x: TensorType) -> TensorType:
    wanted: Shape = attrs["shape"]
    if len(wanted) != len(x.shape):
        message = "match_shape says the size of every axis."
        refuse("shape-conflict", message, f"{len(x.shape)} sizes", shown(wanted))
    for mine, other in zip(x.shape, wanted, strict=True):
        if same_dim(mine, other):
            continue
        if known(mine) is not None and known(other) is not None:
            refuse(
                "shape-conflict", "A size is not what it should be.", shown(wanted), shown(x.shape)
            )
        need(normal_dim(mine - other))
        need(normal_dim(other - mine))
    for least in attrs["least"]:
        if (known(least) or 0) < 0:
            refuse(
                "shape-conflict", "A size is less than it must be.", "0 or more", shown((least,))
            )
        need(least)
    return TensorType(tuple(map(normal_dim, wanted)), x.dtype)


match_shape: Operator = primitive(
    "match_shape", ("x",), _matched,
    lambda attrs, out, x: compute((x,), out.shape, lambda *i: x[i]),
    "x, with its shape asserted at run time, and that no term of `least` is negative.",
    attributes=(attribute("shape", dims), attribute("least", indices, ())),
    gradient=lambda attrs, d, y, x: [match_shape(d, tensor_of(x).shape)],
)  # fmt: skip

# --- axes of size one ----------------------------------------------------------------------------


def _squeezed(attrs: Values, shape: Shape) -> tuple[int, ...]:
    if attrs["axis"] is None:
        if any(known(extent) is None for extent in shape):
            message = "squeeze without axes needs sizes that are known: one that is open may be 1."
            refuse("shape-conflict", message, "the axes, or sizes that are known", shown(shape))
        return tuple(at for at, extent in enumerate(shape) if known(extent) == 1)
    chosen = axes_of("squeeze", attrs["axis"], len(shape))
    for at in chosen:
        if known(shape[at]) != 1:
            message = f"squeeze removes axes of size 1, and axis {at} is not."
            refuse("shape-conflict", message, "1", shown((shape[at],)))
    return chosen


def _squeeze_rule(attrs: Values, x: TensorType) -> TensorType:
    gone = _squeezed(attrs, x.shape)
    return TensorType(tuple(s for at, s in enumerate(x.shape) if at not in gone), x.dtype)


def _squeeze_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    gone = _squeezed(attrs, x.shape)

    def element(*i: Scalar) -> Scalar:
        kept = iter(i)
        return x[tuple(index(0) if at in gone else next(kept) for at in range(len(x.shape)))]

    return compute((x,), out.shape, element)


squeeze = primitive(
    "squeeze", ("x",), _squeeze_rule, _squeeze_body,
    "Remove axes of size 1 (default: all of known size 1).",
    attributes=(AXES,), onnx=("Squeeze",), gradient=_unshaped,
)  # fmt: skip


def _expanded(attrs: Values, rank: int) -> tuple[int, ...]:
    return axes_of("expand_dims", attrs["axis"], rank + len(attrs["axis"]))


def _expand_rule(attrs: Values, x: TensorType) -> TensorType:
    new = _expanded(attrs, len(x.shape))
    old = iter(x.shape)
    whole = len(x.shape) + len(new)
    return TensorType(tuple(index(1) if at in new else next(old) for at in range(whole)), x.dtype)


def _expand_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    new = _expanded(attrs, len(x.shape))
    return compute(
        (x,), out.shape, lambda *i: x[tuple(a for at, a in enumerate(i) if at not in new)]
    )


expand_dims = primitive(
    "expand_dims", ("x",), _expand_rule, _expand_body,
    "Insert axes of size 1 at given positions of the result.",
    attributes=(attribute("axis", integers),), onnx=("Unsqueeze",), aliases=("unsqueeze",),
    gradient=_unshaped,
)  # fmt: skip


def along_axis(value: Expr, at: int, rank: int) -> Expr:
    """A vector as a tensor that broadcasts along axis `at` of another of the given rank."""
    (size,) = tensor_of(value).shape
    return reshape(value, tuple(size if n == at else index(1) for n in range(rank)))
