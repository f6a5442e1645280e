"""Contractions: sums of products of two tensors, and what is done to each sum.

    out[n, o, i, j] = f(sum over c, k, l of x[n, c, i + k, j + l] * w[o, c, k, l], …)

Matrix products and convolutions of all kinds are contractions.  An axis of the result stands in the
weight alone (`lanes`), in the data alone (`pixels`), or in both (`shared`): what can be reused
along it follows from that.  Pools have no weight: axes along which windows slide are their pixels.

>>> from plica.ir.dtype import f32
>>> from plica.ir.tensor import buffer, compute, reduce
>>> x, w = buffer("x", (4, 8), f32), buffer("w", (6, 8), f32)
>>> dense = compute((x, w), (4, 6), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[n, k]))
>>> found = contraction(Work(dense))
>>> [str(each.name) for each in (*found.lanes, *found.pixels)]
['i_1', 'i']
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

from attrs import evolve, frozen

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, map_top_down, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.dim import known, polynomial
from plica.ir.scalar import (
    Buffer,
    Combiner,
    Le,
    Lit,
    Load,
    Lt,
    Mul,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.tensor import Compute
from plica.rewrite.index.context import conjuncts
from plica.schedule.around import simple

Index: TypeAlias = tuple[Scalar, ...]


@frozen(eq=False)
class Work:
    """What a kernel is to do: a tensor, and what is stored for each of its elements.

    `value` reads the element from `reduced` at the axes of the tensor and is stored at `indices` of
    a result of the given shape; without `reduced` the tensor is the result.
    """

    compute: Compute
    reduced: Buffer | None = None
    shape: Index = ()
    indices: Index = ()
    value: Scalar | None = None


@frozen(eq=False, slots=False)
class Contraction:
    """`value` at the axes, where `reduced` there is the sum over `terms` of `data * weight`."""

    inputs: tuple[Buffer, ...]
    axes: tuple[ScalarVar, ...]
    terms: tuple[ScalarVar, ...]
    sizes: Mapping[ScalarVar, int]
    data: Load
    weight: Load | None
    combiner: Combiner
    guarded: bool
    """Whether the data is `fill` where its place is outside."""
    fill: Lit
    reduced: Buffer
    value: Scalar

    @cached_property
    def lanes(self) -> tuple[ScalarVar, ...]:
        """The axes along which data can be reused, those of length 1 left out."""
        return () if self.weight is None else self._within(self.weight, self.data)

    @cached_property
    def pixels(self) -> tuple[ScalarVar, ...]:
        """The axes along which weights can be reused, those of length 1 left out."""
        if self.weight is not None:
            return self._within(self.data, self.weight)
        apart = self.shared
        return tuple([a for a in self.axes if a not in apart and self.sizes[a] > 1])

    @cached_property
    def shared(self) -> tuple[ScalarVar, ...]:
        """The axes along which nothing can be reused, those of length 1 left out."""
        both: frozenset[Term] = frozenset(self.data.indices)
        if self.weight is not None:
            both = free_vars(self.data) & free_vars(self.weight)
        return tuple([each for each in self.axes if each in both and self.sizes[each] > 1])

    @property
    def depth(self) -> int:
        """How many products are summed."""
        count = 1
        for each in self.terms:
            count *= self.sizes[each]
        return count

    def _within(self, one: Load, other: Load) -> tuple[ScalarVar, ...]:
        mine, theirs = free_vars(one), free_vars(other)
        return tuple([a for a in self.axes if a in mine and a not in theirs and self.sizes[a] > 1])

    def loads(self) -> list[Load]:
        """What is read besides the sum, once it is known."""
        found = [node for node in post_order(self.value) if isinstance(node, Load)]
        return [node for node in found if node.buffer is not self.reduced]


def bared(of: Work) -> Work:
    """The same work with a reduction as the tensor, and what is done to it in the value.

    out[i] = (sum over k of x[i, k]) / 3  -->  reduced[i] = sum over k of x[i, k]
                                               out[i] = reduced[i] / 3
    """
    compute = of.compute
    found = [node for node in post_order(compute.body) if isinstance(node, Reduce)]
    if len(found) != 1 or found[0] is compute.body:
        return of
    taken = {each.name for each in compute.inputs}
    if of.reduced is not None:
        taken.add(of.reduced.name)
    held = Buffer(fresh(Name("held"), taken), compute.shape, dtype_of(found[0]))
    read = Load(held, compute.axes)
    body = map_top_down(lambda node: read if node is found[0] else node, compute.body)
    assert isinstance(body, Scalar)
    bare = Compute(compute.inputs, compute.axes, compute.shape, found[0])
    if of.value is None:
        return Work(bare, held, compute.shape, compute.axes, body)
    old = of.reduced
    value = map_top_down(
        lambda node: body if isinstance(node, Load) and node.buffer is old else node, of.value
    )
    assert isinstance(value, Scalar)
    return Work(bare, held, of.shape, of.indices, value)


def contraction(of: Work) -> Contraction | None:
    """The contraction some work is, None where it is none that rules of thumb know."""
    compute, body = of.compute, of.compute.body
    if not isinstance(body, Reduce) or body.combiner not in ("sum", "max", "min"):
        return None
    pairs = [*zip(compute.axes, compute.shape, strict=True)]
    pairs += zip(body.axes, body.extents, strict=True)
    sizes: dict[ScalarVar, int] = {}
    for var, size in pairs:
        count = known(size)
        if not count:
            return None
        sizes[var] = count
    left, weight = body.body, None
    if isinstance(body.body, Mul) and body.combiner == "sum":
        left, right = body.body.left, body.body.right
        if not isinstance(right, Load) or not _is_plain(right, sizes):
            return None
        weight = right
    data, guards, fill = _guarded(left)
    if data is None or (weight is not None and data.buffer is weight.buffer):
        return None
    if not all(_says_inside(each, data) for each in guards) or not _is_affine(data, sizes):
        return None
    if weight is not None and fill.value != 0:
        return None
    reduced, value = of.reduced, of.value
    if reduced is None or value is None:
        taken = {each.name for each in compute.inputs}
        reduced = Buffer(fresh(Name("reduced"), taken), compute.shape, compute.dtype)
        value = Load(reduced, compute.axes)
    elif not stored_in_place(of):
        return None
    for node in post_order(value):
        if isinstance(node, Reduce):
            return None
        if isinstance(node, Load) and node.buffer is data.buffer:
            return None
        if isinstance(node, Load) and weight is not None and node.buffer is weight.buffer:
            return None
        if isinstance(node, Load) and node.buffer is reduced and node.indices != compute.axes:
            return None
    single = [each for each in body.axes if sizes[each] == 1]
    single = single[len(single) == len(body.axes) :]
    return Contraction(
        inputs=compute.inputs,
        axes=compute.axes,
        terms=tuple([each for each in body.axes if each not in single]),
        sizes={var: size for var, size in sizes.items() if var not in single},
        data=_without(data, single),
        weight=None if weight is None else _without(weight, single),
        combiner=body.combiner,
        guarded=bool(guards),
        fill=fill,
        reduced=reduced,
        value=value,
    )


def _without(of: Load, single: list[ScalarVar]) -> Load:
    """The load where some variables are 0, which is all they ever are."""
    where = dict.fromkeys(single, index(0))
    return Load(of.buffer, tuple([simple(_put(each, where)) for each in of.indices]))


def _put(of: Scalar, where: Mapping[ScalarVar, Scalar]) -> Scalar:
    found = substitute(of, dict(where))
    assert isinstance(found, Scalar)
    return found


def _guarded(of: Scalar) -> tuple[Load | None, tuple[Scalar, ...], Lit]:
    """What is read, maybe under a guard; the conditions of it; what stands elsewhere."""
    match of:
        case Select(condition, Load() as inside, Lit() as fill):
            return inside, tuple(conjuncts(condition)), fill
        case Load():
            return of, (), Lit(0, dtype_of(of))
        case _:
            return None, (), Lit(0, dtype_of(of))


def _says_inside(condition: Scalar, of: Load) -> bool:
    """Whether a condition says that one of the indices of a load is inside."""
    match condition:
        case Le(low, place) if low is index(0):
            return place in of.indices
        case Lt(place, size):
            return (place, size) in zip(of.indices, of.buffer.shape, strict=True)
        case _:
            return False


def _is_affine(of: Load, sizes: Mapping[ScalarVar, int]) -> bool:
    for place in of.indices:
        for atoms, _ in polynomial(place).values():
            if len(atoms) > 1 or any(atom not in sizes for atom in atoms):
                return False
    return True


def _is_plain(of: Load, sizes: Mapping[ScalarVar, int]) -> bool:
    """Whether a load is at variables of its own in each dim, of the whole of it."""
    variables = [each for each in of.indices if isinstance(each, ScalarVar)]
    if len(set(variables)) != len(variables):
        return False
    return all(
        sizes.get(place) == known(size) if isinstance(place, ScalarVar) else known(size) == 1
        for place, size in zip(of.indices, of.buffer.shape, strict=True)
    )


def stored_in_place(of: Work) -> bool:
    """Whether each element is stored where it was reduced."""
    axes, shape = of.compute.axes, of.compute.shape
    if len(of.indices) != len(axes) or of.shape != shape:
        return False
    return all(
        place is axis or known(size) == 1
        for place, axis, size in zip(of.indices, axes, shape, strict=True)
    )


# --- other shapes of the same memory --------------------------------------------------------------


def merged(of: Contraction) -> Contraction | None:
    """The contraction with its last two axes as one, None where their places are not one.

    x[n, c, i, j] * w[o, c]  -->  x[n, c, p] * w[o, c]
    """
    if len(of.axes) < 2 or of.guarded or of.weight is None:
        return None
    i, j = of.axes[-2:]
    if (i not in of.pixels and of.sizes[i] > 1) or j not in of.pixels:
        return None
    loads = [*of.loads(), of.data]
    views: dict[Buffer, Buffer] = {}
    for each in loads:
        if {i, j}.isdisjoint(free_vars(each)) and each.indices[-2:] != (i, j):
            continue
        if each.indices[-2:] != (i, j) and not (
            of.sizes[i] == 1 and each.indices[-1] is j and each.indices[-2] is index(0)
        ):
            return None
        sizes = [known(size) for size in each.buffer.shape[-2:]]
        if sizes != [of.sizes[i], of.sizes[j]] or _mentions(each.indices[:-2], (i, j)):
            return None
        views[each.buffer] = _flat(each.buffer)
    if of.data.buffer not in views or any(
        each.buffer in views and each.indices[-1] is not j for each in loads
    ):
        return None
    views[of.reduced] = _flat(of.reduced)
    whole = ScalarVar(fresh(Name("p"), {each.name for each in of.sizes}), j.dtype)

    def viewed(node: Term) -> Term:
        if isinstance(node, Load) and node.buffer in views:
            return Load(views[node.buffer], (*node.indices[:-2], whole))
        return node

    data, value = map_bottom_up(viewed, of.data), map_bottom_up(viewed, of.value)
    assert isinstance(data, Load)
    assert isinstance(value, Scalar)
    if i in free_vars(value) or j in free_vars(value):
        return None
    sizes_ = {var: size for var, size in of.sizes.items() if var not in (i, j)}
    return evolve(
        of,
        inputs=tuple([views.get(each, each) for each in of.inputs]),
        axes=(*of.axes[:-2], whole),
        sizes=sizes_ | {whole: of.sizes[i] * of.sizes[j]},
        data=data,
        reduced=views[of.reduced],
        value=value,
    )


def _mentions(places: Index, variables: tuple[ScalarVar, ...]) -> bool:
    return any(not free_vars(each).isdisjoint(variables) for each in places)


def _flat(of: Buffer) -> Buffer:
    rows, columns = (known(size) or 0 for size in of.shape[-2:])
    return Buffer(of.name, (*of.shape[:-2], index(rows * columns)), of.dtype)
