"""Forms for threads: any contraction as products of matrices whose sizes the tiles divide.

    left[z, k, m…]      what is multiplied, gathered: 0 outside of an image and of padded sizes;
                        left[z, m…, k] where terms are neighbours, and kept so in shared memory
    right[z, k, p…]     likewise
    part[z, m…, p…]     sum over k of left * right, for a part of the terms
    sum[…]              sum of the parts
    out[…]              what is done to each sum

Rows m are the axes of the weight alone, columns p those of the data alone, or the other way if
neighbours in the result are among those; k are the terms; axes of both and parts of the terms are
z.  Convolutions, matrix products and batches of both are such.  Rows and columns are four axes
each: tiles, squares of a thread, threads, places in a square.

>>> from plica.ir.dtype import f32
>>> from plica.ir.tensor import buffer, compute, reduce
>>> from plica.schedule.default.contraction import Work, contraction
>>> x, w = buffer("x", (100, 64), f32), buffer("w", (64, 96), f32)
>>> dense = compute(
...     (x, w), (100, 96), lambda m, n: reduce("sum", (64,), lambda k: x[m, k] * w[k, n])
... )
>>> found = product_form(contraction(Work(dense)), Tile(64, 64, 16, 16, 16), 2)
>>> [str(each) for each in found.sizes]
['2', '128', '128', '32']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from attrs import frozen

from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.define import define
from plica.ir.dim import known
from plica.ir.dtype import i64
from plica.ir.loop import Kernel
from plica.ir.scalar import (
    And,
    Buffer,
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
from plica.ir.stage import Each
from plica.schedule.default.contraction import Contraction
from plica.schedule.default.form import Packing
from plica.schedule.default.gpu.product import Sizes, Tile


@frozen(eq=False)
class ProductForm:
    """The kernel, its sizes (parts, rows, columns and terms of a part, all padded), and what its
    blocks are called: left, right, part, and those after them."""

    kernel: Kernel
    sizes: Sizes
    labels: tuple[str, ...]
    along: tuple[bool, bool]
    """Whether terms, not rows or columns, are neighbours in what is left and right."""
    packings: tuple[Packing, ...] = ()
    exact: bool = False
    """Whether every sum is one element of the result: a matrix whose sizes the tile divides."""


def product_form(of: Contraction, tile: Tile, parts: int, constant: bool = False) -> ProductForm:
    """The form of a contraction for tiles of some size, its terms in so many parts.

    A weight that is `constant` is turned beforehand, so that rows are neighbours.
    """
    weights = of.weight
    assert weights is not None
    packings: tuple[Packing, ...] = ()
    inputs = of.inputs
    if constant:
        packing, turned = _turned(of, weights)
        packings = (packing,)
        inputs = tuple([turned.buffer if each is weights.buffer else each for each in inputs])
        weights = turned
    used = {each.name for each in (*of.inputs, of.reduced)} | {each.name for each in of.sizes}
    rows, columns, batch = of.lanes, of.pixels, of.shared
    # Neighbours in the result are neighbours among the columns.
    flipped = bool(of.axes) and of.axes[-1] in rows
    if flipped:
        rows, columns = columns, rows
    size = {name: prod(of.sizes[a] for a in axes) for name, axes in
            (("m", rows), ("p", columns), ("b", batch), ("k", of.terms))}  # fmt: skip
    deep = _up(-(-size["k"] // parts), tile.terms)
    sizes = (size["b"] * parts, _up(size["m"], tile.rows), _up(size["p"], tile.columns), deep)
    z, k = _var("z", used), _var("k", used)
    m, p = ([_var(name, used) for _ in range(4)] for name in "mp")
    row, column = (_number(each, steps) for each, steps in zip((m, p), tile.steps, strict=True))
    term = z % parts * deep + k if parts > 1 else k
    lot = z // parts if parts > 1 else z
    where: dict[Term, Scalar] = {
        **_cut(rows, row, of.sizes), **_cut(columns, column, of.sizes),
        **_cut(batch, lot, of.sizes), **_cut(of.terms, term, of.sizes),
    }  # fmt: skip
    for axis in of.axes:
        where.setdefault(axis, index(0))
    shapes = [
        (sizes[n] // prod(steps), *steps) for n, steps in zip((1, 2), tile.steps, strict=True)
    ]
    inside = [Lt(term, index(size["k"]))] if deep * parts > size["k"] else []
    zero = Lit(0, weights.buffer.dtype)
    sides = [(weights, list[Scalar](), zero), (of.data, _border(of, where), of.fill)]
    if flipped:
        sides.reverse()
    gathered: list[Scalar] = []
    for (load, border, fill), whole, name, n in zip(
        sides, (row, column), "mp", (1, 2), strict=True
    ):
        within = [Lt(whole, index(size[name]))] if sizes[n] > size[name] else []
        gathered.append(_gathered(load, where, [*inside, *within, *border], fill))
    along = (_along_terms(sides[0][0], of), _along_terms(sides[1][0], of))
    whole_left = (sizes[0], *shapes[0], deep) if tile.keeps(along) else (sizes[0], deep, *shapes[0])
    left = _buffer("left", whole_left, sides[0][0].buffer, used)
    right = _buffer("right", (sizes[0], deep, *shapes[1]), sides[1][0].buffer, used)
    dtype = of.reduced.dtype
    part = _buffer("part", (sizes[0], *shapes[0], *shapes[1]), of.reduced, used)
    at_left = (z, *m, k) if tile.keeps(along) else (z, k, *m)
    summand = Mul(Load(left, at_left), Load(right, (z, k, *p)))
    stages = [
        Each(left, at_left, gathered[0]),
        Each(right, (z, k, *p), gathered[1]),
        Each(part, (z, *m, *p), Reduce("sum", (k,), (index(deep),), summand)),
    ]
    place = [_joined(axes, of.sizes) for axes in (batch, rows, columns)]
    parted = [each for n in (0, 1) for each in digits(place[n + 1], tile.steps[n])]
    if parts > 1:
        total = Buffer(_name("sum", used), tuple([index(of.sizes[a]) for a in of.axes]), dtype)
        s = _var("s", used)
        of_part = Load(part, (place[0] * parts + s, *parted))
        stages.append(Each(total, of.axes, Reduce("sum", (s,), (index(parts),), of_part)))
        result: Scalar = Load(total, of.axes)
    else:
        result = Load(part, (place[0], *parted))

    def read(node: Term) -> Term:
        return result if isinstance(node, Load) and node.buffer is of.reduced else node

    value = map_bottom_up(read, of.value)
    assert isinstance(value, Scalar)
    shape = tuple([index(of.sizes[a]) for a in of.axes])
    out = Buffer(_name("out", used), shape, dtype_of(value))
    stages.append(Each(out, of.axes, value))
    labels = [str(each.out.name) for each in stages]
    kernel = define(*stages, inputs=inputs, outputs=(out,))
    exact = sizes == (1, size["m"], size["p"], size["k"]) and len(of.axes) == 2
    return ProductForm(kernel, sizes, tuple(labels), along, packings, exact and parts == 1)


def _along_terms(of: Load, whole: Contraction) -> bool:
    """Whether the elements of neighbouring terms are neighbours, and only they."""
    return bool(of.indices) and of.indices[-1] is whole.terms[-1]


def _turned(of: Contraction, weight: Load) -> tuple[Packing, Load]:
    """How a weight is laid out with its rows last, and what is read of it then."""
    places = weight.indices
    rows = [at for at, place in enumerate(places) if place in of.lanes]
    rest = [at for at in range(len(places)) if at not in rows]
    last = rows[-1]
    # The last axis is cut into all of it and 1: a packing cuts some axis.
    order = [at if at <= last else at + 1 for at in (*rest, *rows)] + [last + 1]
    shape = [weight.buffer.shape[at] for at in (*rest, *rows)]
    buffer = Buffer(weight.buffer.name, (*shape, index(1)), weight.buffer.dtype)
    packing = Packing(of.inputs.index(weight.buffer), last, 1, tuple(order))
    return packing, Load(buffer, (*[places[at] for at in (*rest, *rows)], index(0)))


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _name(like: str, used: set[Name]) -> Name:
    found = fresh(Name(like), used)
    used.add(found)
    return found


def _var(like: str, used: set[Name]) -> ScalarVar:
    return ScalarVar(_name(like, used), i64)


def _buffer(like: str, sizes: Sequence[int], of: Buffer, used: set[Name]) -> Buffer:
    return Buffer(_name(like, used), tuple(map(index, sizes)), of.dtype)


def _number(places: Sequence[Scalar], steps: Sequence[int]) -> Scalar:
    """The index whose digits are given."""
    found = places[0]
    for place, step in zip(places[1:], steps, strict=True):
        found = found * step + place
    return found


def digits(of: Scalar, steps: Sequence[int]) -> tuple[Scalar, ...]:
    """The digits of an index."""
    found: list[Scalar] = []
    for step in reversed(steps):
        found.append(of % step)
        of = of // step
    return (of, *reversed(found))


def _cut(
    axes: Sequence[ScalarVar], whole: Scalar, sizes: Mapping[ScalarVar, int]
) -> dict[Term, Scalar]:
    """Each of some axes in terms of all of them as one."""
    found: dict[Term, Scalar] = {}
    rest = whole
    for axis in reversed(axes[1:]):
        found[axis] = rest % sizes[axis]
        rest = rest // sizes[axis]
    for axis in axes[:1]:
        found[axis] = rest
    return found


def _joined(axes: Sequence[ScalarVar], sizes: Mapping[ScalarVar, int]) -> Scalar:
    """All of some axes as one."""
    found: Scalar = index(0)
    for number, axis in enumerate(axes):
        found = axis if number == 0 else found * sizes[axis] + axis
    return found


def _gathered(of: Load, where: dict[Term, Scalar], guards: Sequence[Scalar], fill: Lit) -> Scalar:
    value = substitute(of, where)
    assert isinstance(value, Scalar)
    condition: Scalar | None = None
    for each in guards:
        condition = each if condition is None else And(condition, each)
    return value if condition is None else Select(condition, value, fill)


def _border(of: Contraction, where: dict[Term, Scalar]) -> list[Scalar]:
    """What holds where a place of the data is inside of it."""
    found: list[Scalar] = []
    if not of.guarded:
        return found
    for place, size in zip(of.data.indices, of.data.buffer.shape, strict=True):
        at = substitute(place, where)
        assert isinstance(at, Scalar)
        extent = known(size)
        number = known(place)
        if number is not None and extent is not None and 0 <= number < extent:
            continue
        longest = of.sizes.get(place) if isinstance(place, ScalarVar) else None
        if longest is None:
            found += [Le(index(0), at), Lt(at, size)]
        elif extent is None or longest > extent:  # padded at the end alone
            found.append(Lt(at, size))
    return found
