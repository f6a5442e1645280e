"""Rows in stages: one loop over rows, in it one stage after another (softmax, norms).

    m[i]    = max over k of x[i, k]            for i:
    e[i, j] = exp(x[i, j] - m[i])       -->        max of the row     vectors, then joined
    s[i]    = sum over k of e[i, k]                e of the row       vectors, kept in a near cache
    y[i, j] = e[i, j] / s[i]                       sum of the row
                                                   y of the row

A stage of a row that is cheap is not kept, but computed again where it is read.

>>> from plica.ir.dtype import f32
>>> from plica.ir.loop import Block, statements
>>> from plica.ir.tensor import buffer, compute, reduce
>>> x, m, y = (buffer(name, (4, n), f32) for name, n in (("x", 64), ("m", 1), ("y", 64)))
>>> top = compute((x,), (4, 1), lambda i, j: reduce("max", (64,), lambda k: x[i, k]))
>>> away = compute((x, m), (4, 64), lambda i, j: x[i, j] - m[i, 0])
>>> chain = Chain(((Work(top), m), (Work(away), y)), 1, (x,))
>>> kernel = chain_form(chain, Machine(512, 32)).kernel
>>> [str(each.label) for each in statements(kernel.body) if isinstance(each, Block)]
['part', 'joined', 'few', 'total', 'stage', 'out']
"""

from __future__ import annotations

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, post_order
from plica.core.term import Term
from plica.ir.define import define
from plica.ir.dim import known
from plica.ir.dtype import f32
from plica.ir.scalar import (
    Buffer,
    Div,
    FloorDiv,
    FloorMod,
    Intrinsic,
    Lit,
    Load,
    Lt,
    Max,
    Pow,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
)
from plica.ir.stage import Each
from plica.schedule.default.contraction import Work, bared, stored_in_place
from plica.schedule.default.form import Formed
from plica.schedule.default.machine import Machine
from plica.schedule.default.reduction import (
    AT_ONCE,
    Names,
    in_parts,
    reduced_in_parts,
    with_element,
)

CHEAP = 8
"""How many nodes the expression of an element has at most that is computed again."""


@frozen(eq=False)
class Chain:
    """Stages that share their first axes, as many as there are `rows`, and where each is read."""

    stages: tuple[tuple[Work, Buffer], ...]
    rows: int
    inputs: tuple[Buffer, ...]


@frozen(eq=False)
class _Known:
    """What stands for the element of a stage: its axes, and a term in these."""

    axes: tuple[ScalarVar, ...]
    value: Scalar


def chain_form(
    of: Chain, machine: Machine, most: int = AT_ONCE, *, approximates: bool = False
) -> Formed | None:
    """The kernel of a chain of stages, in which at most so many vectors are reduced at once; None
    where vectors do not help.

    Where it `approximates`, a row is multiplied by the reciprocal of what it is divided by.
    """
    used = {each.name for each in of.inputs}
    for work, result in of.stages:
        nodes = [*post_order(work.compute), *([] if work.value is None else post_order(work.value))]
        used |= {n.name for n in nodes if isinstance(n, ScalarVar | Buffer)} | {result.name}
    names = Names(used)
    known_: dict[Buffer, _Known] = {}
    stages: list[Each] = []
    for work, result in of.stages:
        made = _stage(bared(work), result, of, known_, names, machine, most, approximates)
        if made is None:
            return None
        stages += made
    out = stages[-1].out
    kernel = define(*stages, inputs=of.inputs, outputs=(out,))
    return Formed(kernel, (), ())


def _stage(  # noqa: PLR0917  # a stage is these things
    work: Work,
    result: Buffer,
    of: Chain,
    known_: dict[Buffer, _Known],
    names: Names,
    machine: Machine,
    most: int,
    approximates: bool,
) -> list[Each] | None:
    """What is to be done for a stage; how it is read from then on is added to what is known."""
    compute = work.compute
    if work.value is not None and not stored_in_place(work):
        return None
    last = result is of.stages[-1][1]
    rows, sizes = compute.axes[: of.rows], compute.shape[: of.rows]
    body = _filled(compute.body, known_)
    stages: list[Each] = []
    axes, shape = compute.axes, compute.shape
    if isinstance(body, Reduce):
        cut = in_parts(body, machine, most)
        if cut is None or any(known(size) != 1 for size in compute.shape[of.rows :]):
            return None
        stages, value = reduced_in_parts(body, cut, rows, sizes, names)
        if not last:
            axes, shape = rows, sizes
    elif any(isinstance(node, Reduce) for node in post_order(body)):
        return None
    else:
        value = body
    if work.value is not None:
        value = with_element(_filled(work.value, known_), work.reduced, value)
    if approximates and not isinstance(body, Reduce):
        value, more = _without_division(value, rows, sizes, compute.axes, names)
        stages += more
    if not last and not isinstance(body, Reduce) and _is_cheap(value):
        known_[result] = _Known(compute.axes, value)
        return []
    if any(isinstance(each, ScalarVar) and each not in axes for each in free_vars(value)):
        return None  # it depends on an axis of length 1 that is not there any more
    kept = Buffer(names("out" if last else "stage"), shape, dtype_of(value))
    known_[result] = _Known(compute.axes, Load(kept, axes))
    return [*stages, Each(kept, axes, value)]


def _without_division(
    of: Scalar,
    rows: tuple[ScalarVar, ...],
    sizes: tuple[Scalar, ...],
    axes: tuple[ScalarVar, ...],
    names: Names,
) -> tuple[Scalar, list[Each]]:
    """The value of a row with one division for each row: `a / b` is `a * (1 / (b * s)) * s`.

    The power of two `s` keeps the reciprocal of the least and greatest numbers a normal one.
    """
    match of:
        case Div(left, right) if dtype_of(of) is f32 and right not in rows:
            inner = set(axes) - set(rows)
        case _:
            return of, []
    if not inner or not inner.isdisjoint(free_vars(right)) or isinstance(right, Lit):
        return of, []
    size = Max(right, Lit(0.0, f32) - right)
    one, high, low = (Lit(2.0**power, f32) for power in (0, 64, -64))
    far = Select(Lt(Lit(2.0**100, f32), size), low, one)
    scale = Select(Lt(size, Lit(2.0**-100, f32)), high, far)
    kept = Buffer(names("stage"), sizes, f32)
    turned = Buffer(names("stage"), sizes, f32)
    stages = [
        Each(kept, rows, scale),
        Each(turned, rows, Div(one, right * Load(kept, rows))),
    ]
    return left * Load(turned, rows) * Load(kept, rows), stages


def _filled(of: Scalar, known_: dict[Buffer, _Known]) -> Scalar:
    """A term with what stands for the elements of earlier stages."""

    def new(node: Term) -> Term:
        if not isinstance(node, Load) or node.buffer not in known_:
            return node
        there = known_[node.buffer]
        return substitute(there.value, dict(zip(there.axes, node.indices, strict=True)))

    found = map_bottom_up(new, of)
    assert isinstance(found, Scalar)
    return found


def _is_cheap(of: Scalar) -> bool:
    nodes = post_order(of)
    costly = Div | FloorDiv | FloorMod | Pow | Intrinsic | Reduce
    count = sum(1 for node in nodes if isinstance(node, Scalar) and not isinstance(node, ScalarVar))
    return count <= CHEAP and not any(isinstance(node, costly) for node in nodes)
