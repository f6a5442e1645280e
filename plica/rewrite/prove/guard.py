"""What a guard says of shapes and axes, as facts that a reading of its rule may use."""

from __future__ import annotations

from collections.abc import Mapping

from plica.core import Term, post_order
from plica.rewrite.packs.axes import (
    AxesOfOne,
    AxisOfOne,
    CreatesAxes,
    KeepsOrder,
    NamesAll,
    NoLonger,
    PrependsAxes,
    SameShape,
)
from plica.rewrite.packs.canonical import InOrder, IsAboveZero, IsSplat
from plica.rewrite.packs.cut import IsWhole
from plica.rewrite.packs.motion import HasNoMoreAxes
from plica.rewrite.packs.rearrange import AreHalves, CutBehind, RepeatsOnes, are_ones
from plica.rewrite.packs.scale import (
    LinearLayer,
    ScalesInputs,
    ScalesOutputs,
    ShiftsInputs,
    is_positive,
)
from plica.rewrite.packs.wide import ScalesWideOutputs
from plica.rewrite.packs.word import CoversShape, HasElements, OneShape
from plica.rewrite.pattern import Hole
from plica.rewrite.prove.contraction import standard
from plica.rewrite.prove.derived import shape_before
from plica.rewrite.prove.open_shape import Contracted, NamedShape
from plica.rewrite.prove.rule_facts import RuleFacts


def learn_guard(reading: RuleFacts, guard: object, left: Term) -> None:
    """Adds what a guard says to the facts; of a guard that is not listed here nothing is known."""
    facts = reading.facts
    attribute = {node.name: node for node in post_order(left) if isinstance(node, Hole)}
    reading.positive |= {
        name for name, it in attribute.items() if it.constraint.when is is_positive
    }
    match guard:
        case OneShape(first, second) | SameShape(first, second):
            facts.learn_same(NamedShape(first), NamedShape(second))
        case CoversShape(large, small):
            facts.learn_below(NamedShape(small), NamedShape(large))
        case HasElements(name, axes):
            reading.seen.add(("nonempty", facts.axes(axes, NamedShape(name))))
        case NamesAll(axes, large):
            facts.learn_all(attribute[axes], NamedShape(large))
        case AxesOfOne(name, axes):
            facts.ones.add(facts.axes(attribute[axes], NamedShape(name)))
        case AxisOfOne(name, axis):
            reading.seen.add(("one", attribute[axis], NamedShape(name)))
        case CreatesAxes(name, wide, axes):
            gone = (facts.axes(attribute[axes], NamedShape(wide)),)
            facts.learn_created(NamedShape(name), NamedShape(wide), gone)
            reading.seen.add(("nonempty", *gone))
        case KeepsOrder(name, order):
            facts.orderly.add((NamedShape(name), attribute[order]))
        case IsSplat(constant, name):
            facts.learn_below(NamedShape(constant), NamedShape(name))
            reading.splats.add(constant)
        case HasNoMoreAxes(constant, order):
            reading.turned[constant] = attribute[order]
            facts.learn_rank(shape_before(constant), attribute[order])
        case NoLonger(items, name) if attribute[items].constraint.when is are_ones:
            reading.seen.add(("identity", (attribute[items],), NamedShape(name)))
        case IsWhole(name, names):
            values = (attribute[each] for each in names)
            reading.seen.add(("identity", tuple(sorted(values, key=repr)), NamedShape(name)))
        case PrependsAxes(name, wanted):
            facts.learn_prepended(NamedShape(name), NamedShape(wanted))
        case RepeatsOnes(name, repeats):
            reading.seen.add(("repeats ones", attribute[repeats], NamedShape(name)))
        case AreHalves(first, second, axis):
            shapes = (NamedShape(first), NamedShape(second))
            reading.seen.add(("split", 2, attribute[axis], *shapes))
        case InOrder(low, high):
            reading.not_above[low] = high
        case IsAboveZero(name):
            reading.positive.add(name)
        case ScalesOutputs(layer) | ScalesWideOutputs(layer) if _has_channels(layer, attribute):
            reading.seen.add(("along", "outputs", "s", layer))
            whole = _layer(reading, layer).result
            facts.learn_below(NamedShape("s"), whole)
            if isinstance(guard, ScalesOutputs):
                for name in {"a", "b"} & attribute.keys():
                    facts.learn_below(NamedShape(name), whole)
        case ScalesInputs(layer) if _has_channels(layer, attribute):
            reading.seen.add(("along", "inputs", "s", layer))
            facts.learn_below(NamedShape("s"), NamedShape("x"))
        case ShiftsInputs(layer) if _has_channels(layer, attribute):
            reading.seen.add(("along", "inputs", "b", layer))
            facts.learn_below(NamedShape("b"), NamedShape("x"))
            over = _layer(reading, layer)
            reading.seen.add(("no padding", over.operator, over.attributes))
        case CutBehind(cuts, name, axis):
            reading.seen.add(("split", attribute[cuts], attribute[axis], NamedShape(name)))


def _has_channels(layer: LinearLayer, holes: Mapping[str, Hole]) -> bool:
    """Whether the operands have ranks at which the layer has channels.

    A vector on the right leaves a product without the axis before the last.
    """
    weight, data = (holes[name].constraint.ranks for name in ("w", "x"))
    if layer.data == 1 and (data is None or min(data) < 2):
        return False
    return weight is not None and {*weight} <= {*layer.ranks}


def _layer(reading: RuleFacts, layer: LinearLayer) -> Contracted:
    """What the one layer of a left side sums, if its data are not changed before."""
    shapes = [reading.facts.named(NamedShape(name)) for name in ("x", "w")]
    order = -1 if layer.data else 1
    return standard(reading, layer.record.name, layer.holes, shapes[::order])[0]
