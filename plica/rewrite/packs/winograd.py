"""Winograd: 3x3 convolutions with fewer products, where these cost more than the way to them.

    before:  nn.conv(x, w, padding=1)                                   w a constant, (out, c, 3, 3)
    after:   nn.conv_winograd(x, nn.winograd_weight(w, 4), 4, padding=1)

Tiles of 4x4 results take a quarter of the products, tiles of 2x2 four ninths.  The transforms move
memory, the transformed weight is four times as large, and what hangs over the edge of an image is
computed for nothing: `Costs` weighs that for a machine, layer by layer.

Rounding: products are sums of sums with factors up to 25 and 64, so the error of 4x4 tiles is about
1e-5 of the largest result, that of 2x2 about 1e-6. An infinity in the data may make NaNs of a whole
tile.

Measure: each rule removes a convolution.

>>> [rule.name for rule in WINOGRAD]
['conv-winograd-4x4', 'conv-winograd-2x2']
>>> model = Costs(lanes=16, cache=2 << 20)
>>> model.best(WinogradLayer(1, 64, 64, 56, 56)), model.best(WinogradLayer(1, 512, 512, 7, 7))
(4, 2)
>>> model.best(WinogradLayer(1, 3, 64, 224, 224)) is None
True
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final

import attrs

from plica.core import free_vars
from plica.ir.contract import approx
from plica.ir.graph.expression import Expr
from plica.ir.graph.provenance import answered
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.op.convolution import conv
from plica.ir.op.winograd import TILES, conv_winograd, winograd_weight
from plica.ir.type import TensorType, evaluate, f32, known, type_of
from plica.rewrite.closed import closed, value_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes
from plica.rewrite.rule import Guard

USUAL_IMAGE_SIZE: Final = 224
"""Rows and columns of an image whose size is open, where something depends on it."""

MAX_WEIGHT_BYTES: Final = 64 << 20  # bytes of a transformed weight, at most

"""Weights below it are far from the greatest number."""


@attrs.frozen
class WinogradLayer:
    """A 3x3 convolution: examples, channels, outputs, rows and columns of the result."""

    batch: int
    channels: int
    outputs: int
    rows: int
    columns: int

    @property
    def weight(self) -> int:
        """How many elements the weight has."""
        return 9 * self.channels * self.outputs

    @property
    def images(self) -> int:
        """How many elements data and result have together, about."""
        return self.batch * self.rows * self.columns * (self.channels + self.outputs)


@attrs.frozen
class Costs:
    """Cycles, as far as they can be known of a machine with such vectors and such a cache."""

    lanes: int
    cache: int

    at_once: float = 2
    """Vectors that are multiplied and added in a cycle."""
    far: float = 8
    """Bytes per cycle from beyond the cache."""
    soon: bool = False
    """Whether compile time matters: then weights larger than their images are not transformed, so
    that the transformation takes no longer than the calls it saves."""

    # fmt: off
    share = 0.85       # of these that are, in a good loop
    moved = 1.0        # cycles for an element that is copied to where its neighbours are channels
    into, back = 8, 9  # cycles for a vector of each product of a tile, before and after
    # fmt: on

    def best(self, of: WinogradLayer) -> int | None:
        """The cheapest tile size, or None if direct convolution is cheaper."""
        costs = {size: self.tiled(of, size) for size in TILES}
        least = min(costs, key=lambda size: costs[size])
        return least if costs[least] < self.direct(of) else None

    def pays(self, of: WinogradLayer, size: int) -> bool:
        """Whether tiles of a size cost less than to go without."""
        return self.tiled(of, size) < self.direct(of)

    def direct(self, of: WinogradLayer) -> float:
        """The cost of direct convolution."""
        return self.products(9 * of.batch * of.rows * of.columns, of, 9)

    def tiled(self, of: WinogradLayer, size: int) -> float:
        """One by tiles of a size."""
        inner, outer = (self.vector(each) for each in (of.channels, of.outputs))
        places = TILES[size].span ** 2
        if self.soon and of.weight > of.images:
            return float("inf")
        if min(inner, outer) < 4 or places * of.channels * of.outputs * 4 > MAX_WEIGHT_BYTES:
            return float("inf")
        tiles = of.batch * -(-of.rows // size) * -(-of.columns // size)
        copied = of.batch * of.rows * of.columns * of.channels * self.moved
        before = tiles * places * of.channels / inner * self.into
        after = tiles * places * of.outputs / outer * self.back
        return copied + before + self.products(places * tiles, of, places) + after

    def products(self, count: int, of: WinogradLayer, places: int) -> float:
        """A given number of products for each pair of channels, with weights for a given number of
        places."""
        pairs = of.channels * of.outputs
        work = count * pairs / (self.at_once * self.vector(of.outputs)) / self.share
        weights = 4 * places * pairs
        return max(work, weights / self.far if weights > self.cache // 2 else 0.0)

    def vector(self, count: int) -> int:
        """As many lanes as divide a given number of channels."""
        lanes = self.lanes
        while count % lanes:
            lanes //= 2
        return lanes


def is_one(value: Any) -> bool:
    """Whether a number for each axis is one for all of them."""
    return value == 1 or (isinstance(value, tuple) and all(each == 1 for each in value))


x: Any = hole("x", dtypes=(f32,), rank=(4,))
w: Any = closed("w", dtypes=(f32,), rank=(4,))
(padding,) = holes("padding")
strides, dilation = (hole(name, when=is_one) for name in ("strides", "dilation"))
convolved = conv(x, w, strides, padding, dilation, 1)


def by_tiles(size: int, m: PatternMatch) -> Expr:
    """The convolution by tiles of a size."""
    return conv_winograd(m.x, winograd_weight(m.w, size), size, m.padding)


def layer_of(m: PatternMatch) -> WinogradLayer | None:
    """The matched layer, or None if the window is not 3x3; open sizes are assumed to have a typical
    value."""
    weight, result = type_of(m.w), type_of(conv(m.x, m.w, padding=m.padding))
    assert isinstance(weight, TensorType)
    assert isinstance(result, TensorType)
    if [known(dim) for dim in weight.shape[2:]] != [3, 3]:
        return None
    examples, *sizes = result.shape
    outputs, rows, columns = (usual_size(size) for size in sizes)
    n = known(examples)
    n = 1 if n is None else n
    if not all((n, outputs, rows, columns)):
        return None
    channels = known(weight.shape[1])
    return WinogradLayer(n, channels, outputs, rows, columns) if channels else None


def usual_size(of: Scalar) -> int:
    """The number a size is, where its dims are those of a usual image if they are open."""
    found = evaluate(
        of, {var: USUAL_IMAGE_SIZE for var in free_vars(of) if isinstance(var, ScalarVar)}
    )
    return 0 if found is None else found


def is_tame(weight: Expr) -> bool:
    """Whether a constant is finite, and its scaled sums are, too."""
    return answered("is-tame", (weight,), value_of)


def fits(m: PatternMatch) -> bool:
    """Whether it is a 3x3 convolution whose weight can be transformed."""
    return layer_of(m) is not None and is_tame(m.w)


def rules(four: Guard, two: Guard, name: str = "winograd") -> Pack:
    """The pack, with guards for each size of tiles."""
    in_fours, in_twos = (partial(by_tiles, size) for size in (4, 2))
    # fmt: off
    return pack(
        name,
        rule("conv-winograd-4x4", convolved, in_fours, when=four, float=approx(1e-4)),
        rule("conv-winograd-2x2", convolved, in_twos,  when=two,  float=approx(1e-5)),
        version="1",
        doc="3x3 convolutions by tiles, with fewer products.",
    )
    # fmt: on


WINOGRAD: Final[Pack] = rules(fits, fits)


@lru_cache(maxsize=16)
def winograd_for(costs: Costs) -> Pack:
    """The pack for a machine: only where it pays there."""

    def four(m: PatternMatch) -> bool:
        of = layer_of(m)
        return of is not None and costs.best(of) == 4 and is_tame(m.w)

    def two(m: PatternMatch) -> bool:
        of = layer_of(m)
        return of is not None and costs.pays(of, 2) and is_tame(m.w)

    return rules(four, two)
