"""Layouts: words, index maps, and what they make of arrays and tensor expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import IllTyped, Malformed
from plica.core.digest import alpha_equal
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.interpret.evaluate import evaluate as run
from plica.ir.loop.layout import Layout, as_it_is, layout_of, permuted, read_layout, show_layout
from plica.ir.loop.relayout import laid
from plica.ir.loop.scalar import FloorDiv, FloorMod, Load, Reduce
from plica.ir.loop.tensor import Compute, buffer, compute, reduce
from plica.ir.op import Mismatch, find
from plica.ir.type.dim import dim, dim_var, evaluate, same_dim
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from tests.ir.reference import attributes
from tests.ir.reference.case_laid import stored

LETTERS = "NCHW"


@st.composite
def layouts(draw: st.DrawFn, rank: int = 4, blocks: int = 2) -> Layout:
    """Axes in some order, and up to some blocks among them."""
    axes = [(axis, 0) for axis in draw(st.permutations(range(rank)))]
    for _ in range(draw(st.integers(0, blocks)) if rank else 0):
        block = (draw(st.integers(0, rank - 1)), draw(st.integers(1, 3)))
        axes.insert(draw(st.integers(0, len(axes))), block)
    return Layout(tuple(axes))


def shapes(rank: int = 4, most: int = 6) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(0, most)] * rank)


@given(layouts())
def test_a_layout_reads_as_it_prints(layout: Layout) -> None:
    word = show_layout(layout, LETTERS)
    assert read_layout(word, LETTERS) is layout
    assert show_layout(read_layout(word, LETTERS), LETTERS) == word


@given(layouts(), shapes())
def test_unpacking_undoes_packing(layout: Layout, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    assert np.array_equal(layout.unpack(layout.pack(array), shape), array)


@given(layouts(), shapes())
def test_packing_is_what_the_reference_does(layout: Layout, shape: tuple[int, ...]) -> None:
    whole = layout.shape_of([dim(size) for size in shape])
    if whole is None:
        return
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    packed = layout.pack(array)
    assert packed.shape == tuple(int(size.value) for size in whole)  # type: ignore[attr-defined]
    assert np.array_equal(packed, stored(show_layout(layout, LETTERS), LETTERS, array))
    assert layout.logical_shape(whole) == tuple(map(dim, shape))


@given(layouts(), st.tuples(*[st.integers(0, 20)] * 4))
def test_the_index_maps_are_inverse(layout: Layout, at: tuple[int, ...]) -> None:
    places = layout.places([dim(each) for each in at])
    assert [evaluate(each, {}) for each in layout.logical(places)] == list(at)
    names = [dim_var(f"i{number}") for number in range(4)]
    sizes: Any = dict(zip(names, at, strict=True))
    symbolic = layout.places(names)
    assert [evaluate(a, sizes) for a in symbolic] == [evaluate(b, {}) for b in places]


@given(layouts(3), st.permutations(range(3)))
def test_renaming_goes_back(layout: Layout, names: list[int]) -> None:
    back = [names.index(axis) for axis in range(3)]
    assert layout.renamed(names).renamed(back) is layout
    assert permuted(names).renamed(names) is permuted([names[axis] for axis in names])


def test_symbolic_sizes() -> None:
    n = dim_var("n")
    layout = read_layout("NCHW4c", LETTERS)
    shape = layout.shape_of((dim(1), n * 8, n, n))
    assert shape is not None
    assert same_dim(shape[1], n * 2)
    assert layout.shape_of((dim(1), n, n, n)) is None
    logical = layout.logical_shape(shape)
    assert logical is not None
    assert same_dim(logical[1], n * 8)
    assert layout.logical_shape((dim(1), n, n, n, dim(3))) is None


@pytest.mark.parametrize(
    "word", ["NCH", "NCHWW", "NCHWX", "4cNHW", "NCHW0c", "NCHW4", "nchw", "NC-HW", "NCHW4x", ""]
)
def test_what_is_no_layout_is_refused(word: str) -> None:
    assert isinstance(layout_of(word, LETTERS), str)
    with pytest.raises(IllTyped) as error:
        read_layout(word, LETTERS)
    assert error.value.diagnostics[0].code == "bad-layout"


@pytest.mark.parametrize("word", ["NCHW99999999999c", "NCHW" + "2c" * 40])
def test_words_are_bounded(word: str) -> None:
    assert isinstance(layout_of(word, LETTERS), str)


@pytest.mark.parametrize("axes", [((0, 0), (0, 0)), ((1, 0),), ((0, 0), (1, 4)), ((0, 0), (0, -1))])
def test_what_no_layout_can_be_built_of(axes: Any) -> None:
    with pytest.raises(Malformed):
        Layout(axes)


# --- tensor expressions over layouts -------------------------------------------------------------


@given(layouts(2), layouts(2), layouts(2), st.data())
def test_an_expression_over_layouts_means_the_same(
    a: Layout, b: Layout, c: Layout, data: st.DataObject
) -> None:
    """A matrix product whose tensors lie anyhow."""
    m, k, n = 6, 6, 6
    x, y = buffer("x", (m, k), f32), buffer("y", (k, n), f32)
    product = compute((x, y), (m, n), lambda i, j: reduce("sum", (k,), lambda r: x[i, r] * y[r, j]))
    shape_x, shape_y = a.shape_of(x.shape), b.shape_of(y.shape)
    if shape_x is None or shape_y is None or c.shape_of(product.shape) is None:
        return
    there = laid(product, (a, b), c, (buffer("x", shape_x, f32), buffer("y", shape_y, f32)))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    left, right = (rng.standard_normal((6, 6)).astype(np.float32) for _ in range(2))
    found = run(there, (a.pack(left), b.pack(right)))
    assert c.unpack(found, (m, n)).tobytes() == run(product, (left, right)).tobytes()


def test_no_index_of_a_blocked_convolution_is_divided() -> None:
    record = find("nn.conv_laid")
    assert record is not None
    assert record.compute is not None
    attrs = attributes(record, {"layouts": ("NCHW4c", "OIHW4i8o", "NCHW8c"), "padding": 1})
    x, w = buffer("x", (1, 2, 5, 5, 4), f32), buffer("w", (2, 2, 3, 3, 4, 8), f32)
    found = record.compute(attrs, x, w)
    assert isinstance(found, Compute)
    nodes = post_order(found)
    assert not any(isinstance(node, FloorDiv | FloorMod) for node in nodes)
    assert sum(isinstance(node, Load) for node in nodes) == 2
    (total,) = [node for node in nodes if isinstance(node, Reduce)]
    assert len(total.axes) == 4


def test_as_it_is_changes_nothing() -> None:
    x = buffer("x", (2, 3), f32)
    doubled = compute((x,), x.shape, lambda i, j: x[i, j] * 2)
    assert alpha_equal(laid(doubled, (as_it_is(2),), as_it_is(2), (x,)), doubled)
    assert as_it_is(2).is_identity
    assert Name("x") == x.name


@pytest.mark.parametrize(
    ("layouts_", "shape", "code"),
    [
        (("NHWC", "HWIO"), (1, 8, 8, 4), "bad-layout"),
        (("NHWC", "HWIO", "NHWX"), (1, 8, 8, 4), "bad-layout"),
        (("NHWC", "HWIO", "NHWC"), (1, 8, 8), "shape-conflict"),
        (("NHWC4c", "HWIO", "NHWC"), (1, 8, 8, 1, 2), "shape-conflict"),
        (("NHWC", "HWIO", "NHWC3c"), (1, 8, 8, 4), "shape-conflict"),
        (("NHWC", "HWIO", "NHWC"), (1, 8, 8, 5), "shape-conflict"),
    ],
)
def test_a_convolution_refuses(layouts_: Any, shape: tuple[int, ...], code: str) -> None:
    record = find("nn.conv_laid")
    assert record is not None
    attrs = attributes(record, {"layouts": layouts_})
    weight = tensor((3, 3, 4, 8), "f32")
    found = record.relation(attrs, tensor(shape, "f32"), weight)
    assert isinstance(found, Mismatch)
    assert found.code == code
