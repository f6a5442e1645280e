"""Moves: every operator on permuted data gives the permuted result, or does not move."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.graph.expression import Attrs
from plica.ir.loop.layout import Layout, as_it_is, permuted, read_layout
from plica.ir.op import find, names
from plica.ir.op.laid import LAID, UNLAID
from plica.ir.type.term import TensorType, tensor
from plica.rewrite.layout.move import FOLDING, KEEPING, OPENED, Moved, moved
from tests.conftest import PROFILE
from tests.ir.loop.test_layout import layouts
from tests.ir.reference import CASES, apply, attributes, close, types_of
from tests.same_value import same_value

EXAMPLES: Final = {"ci": 3, "dev": 25, "deep": 500}[PROFILE]
NHWC: Final = permuted((0, 2, 3, 1))
NCHW2C: Final = read_layout("NCHW2c", "NCHW")


def record_of(name: str) -> Any:
    found = find(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", names())
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_permuted_data_gives_the_permuted_result(name: str, data: st.DataObject) -> None:
    record, case = record_of(name), data.draw(CASES[name])
    rank = max((each.ndim for each in case.args), default=0)
    layout = data.draw(layouts(rank, blocks=data.draw(st.sampled_from([0, 0, 1]))))
    attrs: Attrs = tuple(sorted(attributes(record, case.attrs).items()))
    way = moved(name, attrs, tuple(types_of(case.args)), layout)
    if way is None:
        return  # it does not move: the conversion brings its arguments back
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        wanted = apply(record, case.args, dict(attrs))
        found = apply(record_of(way.op), stored(way, case.args), dict(way.attrs))
    assert len(found) == len(wanted) == len(way.results)
    for ours, theirs, out in zip(found, wanted, way.results, strict=True):
        back = out.unpack(ours, theirs.shape)
        if way.exact:
            assert same_value(back, theirs)
        else:
            close(back, theirs, case.args)


def stored(way: Moved, args: tuple[Any, ...]) -> list[Any]:
    """The arguments as a move wants them."""
    found = []
    for each, layout in zip(args, way.args, strict=True):
        if layout is None:
            found.append(each)
        else:
            full = each.reshape((1,) * (layout.rank - each.ndim) + each.shape)
            found.append(layout.pack(full))
    return found


def image(*shape: int) -> TensorType:
    return tensor(shape, "f32")


X, MASK = image(2, 4, 6, 6), tensor((2, 1, 6, 6), "bool")
# fmt: off
MOVES: Final[tuple[tuple[str, dict[str, Any], tuple[TensorType, ...]], ...]] = (
    ("nn.relu",              {},                                      (X,)),
    ("add",                  {},                                      (X, X)),
    ("multiply",             {},                                      (X, image(4, 1, 1))),
    ("multiply",             {},                                      (image(), X)),
    ("where",                {},                                      (MASK, X, X)),
    ("cast",                 {"dtype": "f64"},                        (X,)),
    ("clip",                 {"min": 0, "max": 6},                    (X,)),
    ("sum",                  {"axis": (2, 3)},                        (X,)),
    ("max",                  {"axis": (2, 3), "keepdims": True},      (X,)),
    ("mean",                 {"axis": (2, 3), "keepdims": True},      (X,)),
    ("pad",                  {"pad_width": ((0, 0), (0, 0), (1, 1), (2, 0))}, (X,)),
    ("slice",                {"starts": (1,), "stops": (5,), "axes": (2,)},   (X,)),
    ("concat",               {"axis": 2},                             (X, X)),
    ("split",                {"indices_or_sections": 2, "axis": 3},   (X,)),
    ("flip",                 {"axis": 2},                             (X,)),
    ("nn.softmax",           {"axis": 3},                             (X,)),
    ("nn.max_pool",          {"kernel": 2},                           (X,)),
    ("nn.avg_pool",          {"kernel": 2, "padding": 1},             (X,)),
    ("nn.adaptive_avg_pool", {"output_size": 1},                      (X,)),
    ("nn.upsample",          {"scale": 2},                            (X,)),
    ("zeros_like",           {},                                      (X,)),
    ("concat",               {"axis": 1},                             (X, X)),
    ("split",                {"indices_or_sections": 2, "axis": 1},   (X,)),
)
PERMUTED: Final[tuple[tuple[str, dict[str, Any], tuple[TensorType, ...]], ...]] = (
    ("nn.softmax",           {"axis": 1},                             (X,)),
    ("nn.bias_add",          {},                                      (X, image(4))),
    ("nn.batch_norm",        {},                                      (X, *[image(4)] * 4)),
    ("nn.prelu",             {},                                      (X, image(4))),
    ("broadcast_to",         {"shape": (2, 4, 6, 6)},                 (image(2, 4, 1, 1),)),
    ("argmax",               {"axis": 1},                             (X,)),
    ("tile",                 {"reps": (1, 2, 1, 1)},                  (X,)),
    ("cumsum",               {"axis": 2},                             (X,)),
)
# fmt: on


def way_of(op: str, given: dict[str, Any], types: tuple[TensorType, ...], layout: Layout) -> Any:
    attrs = tuple(sorted(attributes(record_of(op), given).items()))
    return moved(op, attrs, types, layout)


@pytest.mark.parametrize(("op", "given_", "types"), MOVES + PERMUTED)
def test_what_networks_are_made_of_moves(op: str, given_: Any, types: Any) -> None:
    assert way_of(op, given_, types, NHWC) is not None


@pytest.mark.parametrize(("op", "given_", "types"), MOVES)
def test_it_moves_into_blocks_too(op: str, given_: Any, types: Any) -> None:
    assert way_of(op, given_, types, NCHW2C) is not None


@pytest.mark.parametrize(
    ("op", "given_", "types"),
    [
        ("matmul", {}, (image(2, 4, 6, 6), image(2, 4, 6, 6))),
        ("reshape", {"shape": (2, 4, 36)}, (X,)),
        ("nn.layer_norm", {}, (X, image(6), image(6))),
        ("expand_dims", {"axis": 0}, (X,)),
        ("shape_of", {}, (X,)),
        ("argmax", {"axis": None}, (X,)),
    ],
)
def test_the_others_do_not(op: str, given_: Any, types: Any) -> None:
    assert way_of(op, given_, types, NHWC) is None


def test_pieces_that_are_no_whole_blocks_do_not_move() -> None:
    halves = {"indices_or_sections": 4, "axis": 1}
    assert way_of("split", halves, (X,), NCHW2C) is None
    assert way_of("split", {"indices_or_sections": (2,), "axis": 1}, (X,), NCHW2C) is None
    odd = image(2, 3, 6, 6)
    assert way_of("concat", {"axis": 1}, (odd, odd), NCHW2C) is None


@pytest.mark.parametrize("op", ["concat", "split"])
def test_pieces_of_whole_blocks_are_pieces(op: str) -> None:
    x = np.arange(2 * 4 * 6 * 6, dtype=np.float32).reshape(2, 4, 6, 6)
    arrays = (x, -x) if op == "concat" else (x,)
    given_ = {"axis": 1} if op == "concat" else {"indices_or_sections": 2, "axis": 1}
    way = way_of(op, given_, tuple(types_of(arrays)), NCHW2C)
    wanted = apply(record_of(op), arrays, attributes(record_of(op), given_))
    found = apply(record_of(op), stored(way, arrays), dict(way.attrs))
    for ours, theirs in zip(found, wanted, strict=True):
        assert same_value(NCHW2C.unpack(ours, theirs.shape), theirs)


def test_sums_in_another_order_are_not_exact() -> None:
    way = way_of("sum", {"axis": (1, 2)}, (X,), NHWC)
    assert way is not None
    assert not way.exact
    assert way.results == (as_it_is(2),)
    assert way_of("sum", {"axis": (2, 3)}, (X,), NHWC).exact


def test_laid_operators_go_back_to_their_own() -> None:
    away = way_of("nn.max_pool", {"kernel": 2}, (X,), NHWC)
    there = tensor((2, 6, 6, 4), "f32")
    back = moved(away.op, away.attrs, (there,), permuted((0, 3, 1, 2)))
    assert back is not None
    assert back.op == "nn.max_pool"
    assert not any(name == "layouts" for name, _ in back.attrs)


def test_the_lists_name_composite_operators() -> None:
    for name in sorted(KEEPING | FOLDING | OPENED):
        assert record_of(name).decompose is not None
    assert {record.name: op for op, record in LAID.items()} == UNLAID
