"""Scans: in one go along their axis, by a trace, and the same as numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Var
from plica.ir.type.term import tensor
from plica.runtime.executable import Executable
from tests.schedule.default.test_grouped import whole

FEW = settings(max_examples=max(6, settings().max_examples // 8), deadline=None)


@FEW
@given(st.data())
def test_running_totals_are_numpys(data: st.DataObject) -> None:
    small = st.lists(st.integers(1, 20), min_size=1, max_size=4)
    shape = tuple(data.draw(small | st.sampled_from([[3, 4500], [2, 2, 9, 300], [3, 4096]])))
    axis = data.draw(st.integers(0, len(shape) - 1))
    exclusive, reverse = data.draw(st.booleans()), data.draw(st.booleans())
    dtype = data.draw(st.sampled_from(["f32", "i32", "f16"]))
    x = Var(Name("x"), tensor(shape, dtype))
    body = op.cumsum(x, axis=axis, exclusive=exclusive, reverse=reverse)
    more = data.draw(st.booleans())
    if more:
        body = op.nn.relu(body) + x
    exe = plica.compile(whole([x], body), threads=data.draw(st.integers(1, 2)), cache=False)
    assert isinstance(exe, Executable)
    code = exe.source("kernel")
    assert "carry" in code or " if " not in code  # no term is asked whether it is one
    given_ = np.random.default_rng(0).integers(-9, 9, shape).astype(exe.inputs[0].numpy)
    turned = np.flip(given_, axis) if reverse else given_
    wanted = np.cumsum(turned, axis)
    wanted = wanted - turned if exclusive else wanted
    wanted = np.flip(wanted, axis) if reverse else wanted
    found = exe(given_)
    if more:
        wanted = np.maximum(wanted, 0) + given_
    np.testing.assert_array_equal(found, wanted)


@FEW
@given(st.data())
def test_operands_beside_totals_broadcast_along_any_axis(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from(["f32", "i32", "f64"]))
    beside = [tuple([data.draw(st.sampled_from([1, size])) for size in shape]) for _ in range(2)]
    x, scale, shift = (
        Var(Name(name), tensor(each, dtype))
        for name, each in zip(("x", "scale", "shift"), (shape, *beside), strict=True)
    )
    body = op.cumsum(x * scale, axis=axis) + shift
    exe = plica.compile(whole([x, scale, shift], body), cache=False)
    assert isinstance(exe, Executable)
    random = np.random.default_rng(0)
    numpy = exe.inputs[0].numpy
    args = [random.integers(-9, 9, each).astype(numpy) for each in (shape, *beside)]
    np.testing.assert_array_equal(exe(*args), np.cumsum(args[0] * args[1], axis) + args[2])


@pytest.mark.parametrize("shape", [(32, 37), (8, 16), (3, 9, 40)])
def test_rows_in_squares_share_an_operand_without_rows(shape: tuple[int, ...]) -> None:
    x, shift = (Var(Name("x"), tensor(shape, "f32")), Var(Name("b"), tensor(shape[-1:], "f32")))
    exe = plica.compile(whole([x, shift], op.cumsum(x, axis=-1) + shift), cache=False)
    random = np.random.default_rng(0)
    args = [random.integers(-9, 9, each).astype(np.float32) for each in (shape, shape[-1:])]
    np.testing.assert_array_equal(exe(*args), np.cumsum(args[0], -1) + args[1])


def test_totals_from_the_end_keep_their_order_under_exact() -> None:
    x = Var(Name("x"), tensor((50,), "f32"))
    module = whole([x], op.cumsum(x, axis=0, reverse=True))
    given_ = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    exe = plica.compile(module, contract="exact", cache=False)
    found, meant = exe(given_), plica.interpret(module, given_)
    assert np.asarray(found).tobytes() == np.asarray(meant).tobytes()


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_an_axis_without_places_has_no_totals(exclusive: bool, reverse: bool) -> None:
    x = Var(Name("x"), tensor((3, 0, 5), "f32"))
    body = op.cumsum(x, axis=1, exclusive=exclusive, reverse=reverse)
    exe = plica.compile(whole([x], body), threads=1, cache=False)
    assert np.shape(exe(np.zeros((3, 0, 5), np.float32))) == (3, 0, 5)
