"""Reductions of open tensors: what is combined along sets of axes.

A reduction of a reduction is one over both sets of axes, where the order of terms does not matter:
for extremes and conditions, for integers, and for floats whose contract allows it.  A reduction of
something that all terms have in common is that, if combining it with itself changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import attrs

from plica.ir.graph.operator import Mismatch, Operator
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import Combiner, Scalar, dtype_of
from plica.ir.type import TensorType
from plica.rewrite.packs.axes import every, exclusive, explicit, longer, merged, through, united
from plica.rewrite.pattern import Derived
from plica.rewrite.prove.linear import depends, linear_form
from plica.rewrite.prove.open_shape import (
    AllAxes,
    AxisSet,
    BoundIndex,
    MappedShape,
    OpenIndex,
    OpenShape,
    PermutedShape,
    ReducedShape,
    differing,
    joined,
)
from plica.rewrite.prove.open_tensor import IllTypedRule, OpenFold, OpenTensor, Unprovable
from plica.rewrite.prove.rule_facts import RuleFacts

FOLDS: Final[dict[str, Combiner]] = {
    "sum": "sum", "prod": "prod", "max": "max", "min": "min", "all": "all", "any": "any",
    "supremum": "max", "infimum": "min",
}  # fmt: skip
EXTREMES: Final = ("max", "min")
IDEMPOTENT: Final = ("max", "min", "all", "any")


def axes_of(reading: RuleFacts, axes: Any, shape: OpenShape) -> AxisSet:
    """The set of axes that an attribute means, or what a right side derives from attributes."""
    facts = reading.facts
    if not isinstance(axes, Derived):
        return (facts.axes(axes, shape),)
    first, *others = axes.args
    if axes.function is through:
        if not facts.fits(shape, first):
            raise Unprovable("the order of axes may be of another rank")
        return (facts.axes(others[0], facts.permuted(shape, first)),)
    if reading.memo[axes.args[-1]].shape is not shape:
        raise Unprovable(f"{axes.function.name} speaks of axes of another shape")
    if axes.function is every:
        return (AllAxes(facts.count_of(shape)),)
    known = (facts.axes(first, shape),)
    if axes.function is explicit:
        return known
    if axes.function is united:
        return joined(known, (facts.axes(others[0], shape),))
    if axes.function is merged:
        return joined(known, (facts.axes(others[0], facts.reduced(shape, known)),))
    raise Unprovable(f"{axes.function.name} is not modelled")


def flip_axes(reading: RuleFacts, axes: Any, shape: OpenShape) -> AxisSet:
    """The axes that are flipped; those in two sets are not."""
    if isinstance(axes, Derived) and reading.memo[axes.args[-1]].shape is shape:
        if axes.function is exclusive:
            first, second = ((reading.facts.axes(arg, shape),) for arg in axes.args[:2])
            return differing(first, second)
        if axes.function is longer:  # along the others a flip moves nothing
            axes = axes.args[0]
    found = axes_of(reading, axes, shape)
    if len(found) > 1:
        raise Unprovable("which axes are in two sets is not known")
    return found


def reduced(
    reading: RuleFacts, record: Operator, of: OpenTensor, axes: Any, kept: Any
) -> OpenTensor:
    """A reduction; with `keepdims` it is one without, reshaped."""
    if axes == ():
        return of
    none = {"axis": (), "keepdims": False}
    if isinstance(result := record.relation(none, TensorType((), of.dtype)), Mismatch):
        raise IllTypedRule(result.message)
    combiner, facts, kept = FOLDS[record.name], reading.facts, reading.flag(kept)
    gone = axes_of(reading, axes, of.shape)
    for each in gone:
        if not isinstance(each, AllAxes):
            reading.legal(("axes", each), "a reduction of other axes")
        if record.name in EXTREMES:
            reading.legal(("nonempty", each), "an extreme of axes that are empty")
    narrow, ones = facts.reduced(of.shape, gone), facts.kept(of.shape, gone)
    shapes: dict[Any, OpenShape] = {False: narrow, True: ones}
    wide = shapes[kept] if kept in shapes else MappedShape("reduced", (gone, kept), of.shape)
    facts.learn_count(narrow, ones)
    facts.learn_count(narrow, wide)
    if all(each in facts.ones for each in gone):
        facts.learn_count(of.shape, narrow)
        unit, join = MEANING[combiner]

        def alone(index: OpenIndex) -> Scalar:
            body = of.at(facts.reshape(index, wide, of.shape))
            return body if combiner in IDEMPOTENT else join(unit(of.dtype), body)

        return OpenTensor(of.dtype, wide, alone)
    some = all(reading.is_known(("nonempty", each)) for each in gone)
    empty = record.name in ("supremum", "infimum") and not some
    free = reading.reorders or combiner in IDEMPOTENT or not of.dtype.is_float
    order = None if free else of.shape  # a sum of all in another shape may add in another order

    sizes = facts.count_of(of.shape) if _is_all(gone) else _measured(of.shape)

    def at(index: OpenIndex) -> Scalar:
        place = facts.bound(facts.reshape(index, wide, ones), gone, of.shape)
        body = of.at(place)
        if combiner in IDEMPOTENT and not _varies(reading, body, gone):
            reading.use("an extreme of one value is that value")
            return body  # an extreme of none is refused; conditions of none were asked for
        return folded(reading, OpenFold(combiner, place, gone, sizes, order, empty, body))

    return OpenTensor(of.dtype, wide, at)


def folded(reading: RuleFacts, of: OpenFold) -> Scalar:
    """A reduction as unknowns: a sum in any order is a linear form of them."""
    if of.combiner == "sum" and of.order is None:
        return linear_form(reading, of, partial(_unknown, reading))
    return _unknown(reading, of)


def _unknown(reading: RuleFacts, of: OpenFold) -> Scalar:
    """A reduction as one unknown; of a reduction of the same kind, over both sets of axes."""
    inner = reading.folds.get(of.body)
    if of.order is None and inner is not None and inner.combiner == of.combiner:
        both = joined(of.gone, inner.gone)
        if isinstance(inner.place, BoundIndex) and {*both} <= {*inner.place.gone}:
            reading.use("a reduction of a reduction is one")
            of = attrs.evolve(inner, gone=both)
    key = ("fold", of.combiner, *of.domain, of.body)
    var = reading.atom(key, dtype_of(of.body), of.combiner)
    reading.folds[var] = of
    return var


def _measured(shape: OpenShape) -> OpenShape:
    """A shape in which sets of axes have the sizes that they have in another."""
    while isinstance(shape, ReducedShape | PermutedShape):
        shape = shape.of
    return shape


def _is_all(gone: AxisSet) -> bool:
    return any(isinstance(each, AllAxes) for each in gone)


def _varies(reading: RuleFacts, body: Scalar, gone: AxisSet) -> bool:
    """Whether a scalar may depend on the place along some axes, or those may be empty."""
    known = all(reading.is_known(("nonempty", each)) for each in gone)
    return not known or depends(reading, body, gone)
