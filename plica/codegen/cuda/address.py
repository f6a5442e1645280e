"""Addresses: index terms as whole numbers, and which of them are neighbours.

Adjacent elements are moved by one instruction, if the first is aligned to their number.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, i, v = buffer("x", (8, 4), f32), axis("i"), axis("v")
>>> lanes_of(x, (i, v), v, 4), lanes_of(x, (v, i), v, 4)
(True, False)
>>> lanes_of(buffer("y", (8, 2, 2), f32), (i, v // 2, v % 2), v, 4)
True
>>> lanes_of(buffer("z", (3, 24), f32), ((i * 8 + v) // 24, (i * 8 + v) % 24), v, 8)
True
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Final

from plica.analysis.enclosing import simple
from plica.analysis.index.context import conjuncts
from plica.codegen.cuda.dialect import MAX_VECTOR_BYTES
from plica.codegen.emit.expression import linear
from plica.core import Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.type import i64, polynomial

VECTORS: Final = {4: "unsigned int", 8: "uint2", 16: "uint4"}
"""The types by which this many bytes are moved at once."""


def wide(term: sc.Scalar) -> sc.Scalar:
    """An index term in 64 bits: of any width, they are the same whole numbers."""

    def change(node: Term) -> Term:
        match node:
            case sc.ScalarVar(name):
                return sc.ScalarVar(name, i64)
            case sc.Lit(value, _):
                return sc.index(int(value))
            case sc.Cast(value, _):
                return value
            case _:
                return node

    return map_bottom_up(change, term)


def valued(term: sc.Scalar, var: sc.ScalarVar, number: int) -> sc.Scalar:
    """An index term for a value of a variable."""
    scalar = substitute(wide(term), {sc.ScalarVar(var.name, i64): sc.index(number)})
    return simple(scalar)


def lanes_of(
    buffer: sc.Buffer, indices: tuple[sc.Scalar, ...], var: sc.ScalarVar, count: int
) -> bool:
    """Whether the lanes of a variable are neighbours, the first at a multiple of their number."""
    size = count * buffer.dtype.bytes
    if size not in VECTORS and size % MAX_VECTOR_BYTES:
        return False
    each = min(MAX_VECTOR_BYTES, size) // buffer.dtype.bytes
    own = False
    where = linear(buffer, indices)
    if any(
        isinstance(node, sc.FloorDiv | sc.FloorMod) and var in free_vars(node)
        for node in post_order(*indices)
    ):
        var = sc.ScalarVar(var.name, i64)
        where = simple(_with_last_digit(wide(where), var, count))  # digits of it, maybe all
    elif sc.dtype_of(where) is not sc.dtype_of(var):  # far away: variables are cast
        where, var = wide(where), sc.ScalarVar(var.name, i64)
    for atoms, factor in polynomial(where).values():
        if atoms == (var,):
            own = factor == 1
        elif any(var in free_vars(atom) for atom in atoms) or factor % each:
            return False
    return own


def are_neighbours(
    buffer: sc.Buffer, indices: tuple[sc.Scalar, ...], var: sc.ScalarVar, count: int
) -> bool:
    """Whether the lanes of a variable are adjacent, wherever the first is."""
    return _grows_by_one(linear(buffer, indices), var, count)


def first_lanes(
    condition: sc.Scalar, var: sc.ScalarVar, count: int
) -> tuple[list[sc.Scalar], sc.Lt | None] | None:
    """Splits a condition into a part uniform in the lanes and a part that holds for the first
    lanes; None for other conditions."""
    same: list[sc.Scalar] = []
    limit: sc.Lt | None = None
    stack = [condition]
    while stack:
        match stack.pop():
            case sc.And(left, right):
                stack += [right, left]
            case each if var not in free_vars(each):
                same.append(each)
            case sc.Lt(left, right) as each if limit is None and var not in free_vars(right):
                if not _grows_by_one(left, var, count):
                    return None
                limit = each
            case _:
                return None
    return same, limit


def at_both_ends(condition: sc.Scalar, var: sc.ScalarVar, count: int) -> sc.Scalar | None:
    """The condition that all lanes satisfy it: for a monotonic condition, that the first and the
    last do. None for other conditions."""
    ends = [sc.Lit(0, var.dtype), sc.Lit(count - 1, var.dtype)]
    scalars: list[sc.Scalar] = []
    for each in conjuncts(condition):
        if var not in free_vars(each):
            scalars.append(each)
        elif isinstance(each, sc.Lt | sc.Le) and _by_steps(each.left, each.right, var=var):
            scalars += [substitute(each, {var: end}) for end in ends]
        else:
            return None
    return reduce(sc.And, scalars) if scalars else None


def _by_steps(*sides: sc.Scalar, var: sc.ScalarVar) -> bool:
    """Whether integer terms are sums of multiples of a variable and what does not mention it."""
    return all(
        sc.dtype_of(side).is_integer
        and all(
            atoms == (var,) or not any(var in free_vars(atom) for atom in atoms)
            for atoms, _ in polynomial(side).values()
        )
        for side in sides
    )


def _grows_by_one(of: sc.Scalar, var: sc.ScalarVar, count: int) -> bool:
    """Whether an index term is a variable below `count` and what does not mention it."""
    var = sc.ScalarVar(var.name, i64)
    own = False
    for atoms, factor in polynomial(simple(_with_last_digit(wide(of), var, count))).values():
        if atoms == (var,):
            own = factor == 1
        elif any(var in free_vars(atom) for atom in atoms):
            return False
    return own


def _with_last_digit(of: sc.Scalar, var: sc.ScalarVar, count: int) -> sc.Scalar:
    """A term whose quotients leave a variable below `count` out, where it is but their last digit.

    (8 * a + v) // 24  -->  (8 * a) // 24           (8 * a + v) % 24  -->  8 * (a % 3) + v
    """

    def change(node: Term) -> Term:
        if not isinstance(node, sc.FloorDiv | sc.FloorMod) or var not in free_vars(node.left):
            return node
        by = node.right
        if not isinstance(by, sc.Lit) or int(by.value) % count or int(by.value) <= 0:
            return node
        rest = dict(polynomial(node.left).values())
        if rest.pop((var,), 0) != 1 or any(
            factor % count or any(var in free_vars(atom) for atom in atoms)
            for atoms, factor in rest.items()
        ):
            return node
        high = node.left - var
        if isinstance(node, sc.FloorDiv):
            return high // by
        # Multiples are recognised by the last factor, too.
        return high // count % (int(by.value) // count) * count + var

    return map_bottom_up(change, of)


def certain(value: sc.Scalar) -> Iterator[sc.Load]:
    """The loads of a term that happen whatever the guards in it say."""
    stack, done = [value], set[Term]()
    while stack:
        node = stack.pop()
        if node in done:
            continue
        done.add(node)
        if isinstance(node, sc.Load):
            yield node
        elif isinstance(node, sc.Select):
            stack.append(node.condition)
        elif isinstance(node, sc.And | sc.Or):
            stack.append(node.left)
        else:
            stack += [child for child in reversed(node._children) if isinstance(child, sc.Scalar)]
