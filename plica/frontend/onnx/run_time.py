"""Sizes known at run time: integers of a model that become dims."""

from __future__ import annotations

from collections.abc import Sequence

from plica.frontend.measured import ONE, ZERO, Piece, amount, matched, places
from plica.frontend.onnx.arithmetic import settled
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.storage import MOST_AXES
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Apply, Const, Expr, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type import i64, known, normal_dim, product, same_dim
from plica.runtime.error import Diagnostic
from plica.runtime.late import lazy_imports
from plica.runtime.port import DEMAND, SIZE_OF, Reason, fault_name

with lazy_imports(__name__):
    from plica.frontend.word import rank, select, shape


def numbers_of(given: Sequence[Piece]) -> list[int] | None:
    """Static integers, or None if one is not."""
    found = [each for each in given if isinstance(each, int)]
    return found if len(found) == len(given) else None


def is_late(given: Sequence[Piece]) -> bool:
    """Whether an integer is neither a number nor a term over dims before the model runs."""
    return any(isinstance(each, Expr) for each in given)


def listed(
    node: OnnxNode, name: str, at: int, since: int, most: int = 2 * MOST_AXES
) -> list[Piece] | None:
    """Integers that are an attribute before a version, and an input since then; None if absent."""
    if node.opset < since:
        attribute = node.integers(name)
        return None if attribute is None else [*attribute]
    return None if node.value(at) is None else pieces(node, at, most)


def pieces(node: OnnxNode, at: int, most: int = 2 * MOST_AXES) -> list[Piece]:
    """The integers of an input of rank 1 or 0, one by one; their number must be static.

    They speak of axes, or of both ends of each; where they do not, there may be more of them.
    """
    value = node.need(at)
    if (terms := value.terms()) is not None:
        if terms.ndim > 1:
            message = f"Input {at} of {node.proto.op_type} must be a vector."
            node.malformed(message, "rank 1", f"rank {terms.ndim}")
        if terms.size > most:
            message = f"Input {at} of {node.proto.op_type} holds too many numbers."
            node.unsupported(message, f"at most {most}", str(terms.size))
        return list(terms.reshape(-1))
    found: list[Piece] = []
    stack = [value.expr]
    while stack:
        each = stack.pop()
        if (terms := TensorValue(each).terms()) is not None:
            found += list(terms.reshape(-1))
            continue
        if isinstance(each, Apply) and each.op == "concat" and rank(each) == 1:
            stack += reversed(each.args)
            continue
        count = known(product(shape(each)))
        if count is None or rank(each) > 1:
            node.undecided(
                f"How many numbers input {at} of {node.proto.op_type} has", node.need(at)
            )
        if count == 1:
            found.append(amount(each))
        else:
            found += [amount(select(each, number)) for number in range(count)]
    return found


def lawful(size: Expr, condition: Expr, why: Reason) -> Expr:
    """A size to be measured, if a condition on values holds; otherwise the negative number of the
    reason, which is refused before anything is written."""
    if isinstance(said := settled(condition), Const) and said.numpy():
        return size
    return op.where(condition, size, const(SIZE_OF[why], i64))


def demanded(
    node: OnnxNode, x: Expr, condition: Expr, why: Reason, fault: Diagnostic | None = None
) -> Expr:
    """x, which is refused where a condition on values does not hold, whatever sizes it has.

    The refusal names the node of `fault` and the problem.
    """
    if (asked := lawful(ZERO, condition, why)) is ZERO:
        return x
    whose = str(fault.place.node) if fault is not None and fault.place is not None else None
    none = node.measured(asked, DEMAND if fault is None else fault_name(fault), whose)
    return op.match_shape(x, shape(x), least=(index(0) - none,))


def size_from(node: OnnxNode, of: Piece, hint: object = "") -> Scalar:
    """A size: itself where it is known, otherwise a dim that is measured when the model runs."""
    if isinstance(of, Expr):
        return node.measured(of, hint)
    return of if isinstance(of, Scalar) else index(of)


def ceiling(number: Expr, by: Expr) -> Expr:
    """A quotient rounded up."""
    return -(-number // by)


def at_least_zero(of: Expr) -> Expr:
    """A number, 0 where it is below."""
    return op.maximum(of, ZERO)


def spread(node: OnnxNode, x: Expr, sizes: Sequence[Scalar]) -> Expr:
    """x broadcast to a shape of its rank; an axis that may be 1 is seen to when it runs."""
    for axis, (mine, wanted) in enumerate(zip(shape(x), sizes, strict=True)):
        if known(mine) == 1 or same_dim(mine, wanted):
            continue
        if known(mine) is not None:
            x = matched(x, tuple(wanted if at == axis else s for at, s in enumerate(shape(x))))
            continue
        apart = (mine - 1) * (wanted - mine)
        least = (normal_dim(apart), normal_dim(index(0) - apart))
        there = places(wanted)
        at = op.where(op.equal(amount(mine), ONE), there * ZERO, there)
        x = op.take(op.match_shape(x, shape(x), least=least), at, axis=axis)
    return op.broadcast_to(x, tuple(sizes)) if not all(map(same_dim, shape(x), sizes)) else x


def broadcast_size(node: OnnxNode, a: Scalar, b: Scalar) -> Scalar:
    """The size of an axis that two axes are broadcast to."""
    if known(a) == 1 or same_dim(a, b):
        return b
    if known(b) == 1:
        return a
    if known(a) is not None or known(b) is not None:  # the other is 1, or the same
        return a if known(a) is not None else b
    one, other = amount(a), amount(b)
    return node.measured(op.where(op.equal(one, ONE), other, one))


def common_shape(node: OnnxNode, shapes: Sequence[Shape]) -> Shape:
    """The shape that several are broadcast to."""
    width = max(map(len, shapes))
    whole: list[Scalar] = [index(1)] * width
    for scalars in shapes:
        for at, size in enumerate(scalars, width - len(scalars)):
            whole[at] = broadcast_size(node, whole[at], size)
    return tuple(whole)


def expandable(x: Expr, sizes: Sequence[Scalar]) -> Expr:
    """x, of which it is asserted that it broadcasts with sizes: one of two is 1, or they are one.

    That is where a product is 0, so neither it nor its opposite is negative.
    """
    least: list[Scalar] = []
    for mine, other in zip(reversed(shape(x)), reversed(sizes), strict=False):
        if 1 in (known(mine), known(other)) or same_dim(mine, other):
            continue
        apart = (other - 1) * (other - mine)
        apart = normal_dim(apart if known(mine) is not None else apart * (mine - 1))
        least += [apart, normal_dim(index(0) - apart)]
    return op.match_shape(x, shape(x), least=tuple(least)) if least else x


def wrapped_index(at: Expr, length: Expr) -> Expr:
    """An index, counted from the end where it is negative."""
    return op.where(at < ZERO, at + length, at)


def clamped(at: Expr, low: Expr, high: Expr) -> Expr:
    """A number inside of two others."""
    return op.minimum(op.maximum(at, low), high)


def reflected(at: Expr, length: Expr) -> Expr:
    """Places of an axis that is mirrored at its ends."""
    last = length - ONE
    turn = op.maximum(last * const(2, i64), ONE)
    inside = at % turn
    return op.minimum(inside, turn - inside)
