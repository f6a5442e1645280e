"""Readings: what fusion asks about one operator, all of it derived from its tensor expression.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2, 3), "f32"))
>>> found = reading(Apply("reshape", (x,), (("shape", (sc.index(6),)),)))
>>> found.kind, found.is_view
('injective', True)
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from math import prod
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.constant_bound import interval
from plica.analysis.index import EMPTY, can_prove
from plica.analysis.index.prove import same
from plica.core import Name, Term, free_vars, post_order, substitute
from plica.ir.graph.expression import Apply, Attrs, Expr, Project
from plica.ir.loop import scalar as sc
from plica.ir.loop.fusion_kind import Kind, kind_of
from plica.ir.loop.scalar_table import ROWS
from plica.ir.loop.tensor import Compute, Prefix
from plica.ir.op import find
from plica.ir.op.shape import regroup
from plica.ir.type import TensorType, TupleType, Type, known, polynomial, product, same_dim, type_of

Index: TypeAlias = tuple[sc.Scalar, ...]

MAX_CHEAP_NODES: Final = 24
"""How many nodes the expression of an element has at most that may be computed again."""

REDUCING: Final[tuple[Kind, ...]] = ("reduction", "complex-out-fusable")
"""Kinds whose elements cost a loop."""


@frozen(eq=False)
class AccessPattern:
    """How an operator reads its arguments; axes of length 1 stand as 0 in every index."""

    compute: Compute
    kind: Kind
    operands: tuple[sc.Buffer, ...]
    """One for each argument."""
    places: tuple[tuple[Index, ...], ...]
    """For each argument the different places it is read at."""
    inner: tuple[bool, ...]
    """For each argument whether it is read inside a reduction."""
    dependent: tuple[bool, ...]
    """For each argument whether where it is read depends on data."""
    may_fail: bool
    """Whether such a place may be outside: that ends the program."""
    identity: Index
    """The place of an element itself."""
    folded: tuple[tuple[sc.ScalarVar, sc.Scalar], ...]
    """The axes, with their lengths, of all reductions."""
    is_cheap: bool
    is_view: bool
    """Whether the result is its argument's memory, element after element."""

    @property
    def reduces(self) -> bool:
        return self.kind in REDUCING

    @property
    def viewed(self) -> int:
        """Which argument a view shows."""
        return next(i for i, places in enumerate(self.places) if places)

    @property
    def moves_rows(self) -> bool:
        """Whether an element is one of an argument, and neighbours in a row are neighbours there:
        what reads it may as well read the argument, at as many places as it likes."""
        body, axes = self.compute.body, self.compute.axes
        if not isinstance(body, sc.Load) or not axes or not body.indices or any(self.dependent):
            return False
        *around, last = body.indices
        terms = dict(polynomial(last).values())
        terms.pop((), None)
        return terms == {(axes[-1],): 1} and not any(
            axes[-1] in free_vars(each) or isinstance(node, sc.FloorDiv | sc.FloorMod)
            for each in around
            for node in post_order(each)
        )


def parts(value: Expr) -> tuple[Expr, ...] | None:
    """The arguments of a value; None for anything else."""
    call = _call(value)
    return None if call is None else call.args


def values_below(root: Expr, held: Container[Expr] = ()) -> list[Expr]:
    """The values of an expression of operators, arguments first, up to those in `held`."""
    order: list[Expr] = []
    done: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            order.append(node)
        elif node not in done and (node is root or node not in held):
            done.add(node)
            if (inside := parts(node)) is not None:
                stack.append((node, True))
                stack += [(part, False) for part in reversed(inside)]
    return order


def with_parts(value: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same value of other arguments."""
    call = _call(value)
    assert call is not None
    changed = Apply(call.op, new, call.attrs)
    return Project(changed, value.index) if isinstance(value, Project) else changed


def operator(value: Expr) -> str:
    """The name of the operator that makes a value."""
    call = _call(value)
    assert call is not None
    return call.op


def _call(value: Expr) -> Apply | None:
    if isinstance(value, Apply):
        return value if isinstance(type_of(value), TensorType) else None
    if isinstance(value, Project) and isinstance(value.value, Apply):
        # An item that is a tuple itself is no result of an operator by itself.
        return value.value if isinstance(type_of(value.value), TupleType) else None
    return None


def reading(value: Expr) -> AccessPattern | None:
    """The access pattern of a value, or None if it has no tensor expression."""
    if (call := _call(value)) is None:
        return None
    number = value.index if isinstance(value, Project) else 0
    return _reading(call.op, call.attrs, tuple([type_of(arg) for arg in call.args]), number)


@lru_cache(maxsize=8192)
def _reading(name: str, attrs: Attrs, types: tuple[Type, ...], number: int) -> AccessPattern | None:
    record = find(name)
    if record is None or record.compute is None:
        return None
    operands = []
    for i, each in enumerate(types):
        if not isinstance(each, TensorType):
            return None
        operands.append(sc.Buffer(Name("operand", i), each.shape, each.dtype))
    found = record.compute(dict(attrs), *operands)
    computed = found if isinstance(found, Compute) else found[number]
    kind = kind_of(computed)
    compute = _without_unit_axes(computed)
    nodes = post_order(compute.body)
    folds = [node for node in nodes if isinstance(node, sc.Reduce)]
    scans = [node for node in nodes if isinstance(node, Prefix)]
    bodies = [*[fold.body for fold in folds], *[scan.body for scan in scans]]
    inside = {load for body in bodies for load in post_order(body)}
    places: list[dict[Index, None]] = [{} for _ in operands]
    inner = [False] * len(operands)
    for node in nodes:
        if isinstance(node, sc.Load):
            at = operands.index(node.buffer)
            places[at][node.indices] = None
            inner[at] = inner[at] or node in inside
    return AccessPattern(
        compute,
        kind,
        tuple(operands),
        tuple([tuple(each) for each in places]),
        tuple(inner),
        tuple([any(reads_data(each) for each in here) for here in places]),
        any(
            not _is_inside(place, operand.shape)
            for operand, here in zip(operands, places, strict=True)
            for place in here
            if reads_data(place)
        ),
        plain(compute),
        (
            *[pair for fold in folds for pair in zip(fold.axes, fold.extents, strict=True)],
            *[(scan.axis, scan.extent) for scan in scans],
        ),
        _is_cheap(nodes),
        _is_view(compute),
    )


def plain(compute: Compute) -> Index:
    """The axes of a tensor, with 0 for those of length 1."""
    pairs = zip(compute.axes, compute.shape, strict=True)
    return tuple([sc.index(0) if known(size) == 1 else axis for axis, size in pairs])


def reads_data(place: Index) -> bool:
    """Whether a place depends on the contents of a tensor."""
    return any(isinstance(node, sc.Load) for scalar in place for node in post_order(scalar))


def _is_inside(place: Index, shape: tuple[sc.Scalar, ...]) -> bool:
    """Whether a place is inside whatever memory says: what depends on data is brought inside."""
    for at, size in zip(place, shape, strict=True):
        low, high = interval(at, {}, {})
        if reads_data((at,)) and not 0 <= low <= high < (known(size) or 0):
            return False
    return True


def count(shape: tuple[sc.Scalar, ...]) -> int | None:
    """The number of elements, where it is known."""
    sizes = [known(size) for size in shape]
    return prod([size for size in sizes if size is not None]) if None not in sizes else None


def _without_unit_axes(compute: Compute) -> Compute:
    """Places compare equal only if they are written alike, and an axis of length 1 is 0."""
    units: dict[Term, Term] = {
        axis: sc.index(0)
        for axis, size in zip(compute.axes, compute.shape, strict=True)
        if known(size) == 1
    }
    if not units:
        return compute
    body = substitute(compute.body, units)
    return Compute(compute.inputs, compute.axes, compute.shape, body)


def _is_cheap(nodes: list[Term]) -> bool:
    return len(nodes) <= MAX_CHEAP_NODES and not any(map(_is_costly, nodes))


def _is_costly(node: Term) -> bool:
    """Whether it takes more than a few instructions; exact operations such as sign do not."""
    if isinstance(node, sc.Intrinsic):
        row = ROWS[node.name]
        return row.rounds and not row.is_bool
    return isinstance(node, sc.Div | sc.FloorDiv | sc.FloorMod | sc.Pow | sc.Reduce | Prefix)


def _is_view(compute: Compute) -> bool:
    """Whether the element at each place in memory is the argument's at the same place."""
    body = compute.body
    if not isinstance(body, sc.Load) or reads_data(body.indices):
        return False
    if sc.dtype_of(body) is not body.buffer.dtype or count(compute.shape) != count(
        body.buffer.shape
    ):
        return False
    if count(compute.shape) is None:
        return _shows(compute, body)
    context = EMPTY
    for axis, size in zip(compute.axes, compute.shape, strict=True):
        context = context.loop(axis, size)
    here, there = _flat(compute.axes, compute.shape), _flat(body.indices, body.buffer.shape)
    return can_prove(same(here, there), context)


def _shows(compute: Compute, body: sc.Load) -> bool:
    """Whether, for all open sizes, the elements read are those at the same place."""
    old, new = body.buffer.shape, compute.shape
    if not same_dim(product(old), product(new)):
        return False
    return tuple(regroup(compute.axes, new, old)) == body.indices


def _flat(place: Index, shape: tuple[sc.Scalar, ...]) -> sc.Scalar:
    whole: sc.Scalar = sc.index(0)
    for at, size in zip(place, shape, strict=True):
        whole = whole * size + at
    return whole
