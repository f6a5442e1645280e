"""Each row of the table means what torch means by the operator."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("torch")

import torch  # it may be missing

import plica
from plica.frontend.torch.row import by_value
from plica.frontend.torch.table import TABLE
from plica.ir.interpret.interpreter import interpret
from plica.runtime.error import UnsupportedError
from tests.frontend.torch.case import (
    BINARY,
    CASES,
    DECOMPOSED,
    FIRST,
    FIRST_ONLY,
    FLOAT_ONLY,
    TENSORS,
    UNARY,
    UNSET,
    calls,
    recurrent,
)
from tests.frontend.torch.single import agrees, operator, read

EXAMPLES: Final = max(1, min(settings().max_examples // 12, 200))
FLOATS: Final = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLES: Final = (torch.int64, torch.int32, torch.int8, torch.uint8)
NUMBERS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, float("inf"), -float("inf"),
                  float("nan"), 1e-3, 100.0)  # fmt: skip


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[Any, ...], shape: tuple[int, ...] | None = None) -> Any:
    sizes = draw(st.lists(st.integers(0, 3), max_size=3)) if shape is None else list(shape)
    dtype = draw(st.sampled_from(dtypes))
    count = 1
    for size in sizes:
        count *= size
    values: list[Any]
    if dtype is torch.bool:
        values = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    elif dtype in WHOLES:
        low = 0 if dtype is torch.uint8 else -9
        values = draw(st.lists(st.integers(low, 9), min_size=count, max_size=count))
    else:
        values = draw(st.lists(st.sampled_from(NUMBERS), min_size=count, max_size=count))
    return torch.tensor(values, dtype=dtype).reshape(sizes)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_row_means_what_torch_means(name: str) -> None:
    for args in calls(name):
        agrees(name, args, FIRST.get(name, (0,) if name in FIRST_ONLY else None))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_row_is_compiled(name: str) -> None:
    for args in calls(name)[:2]:
        wanted = FIRST.get(name, (0,) if name in FIRST_ONLY else None)
        agrees(name, args, wanted, lambda module, *given: plica.compile(module)(*given))


@pytest.mark.parametrize("name", sorted(UNARY))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_of_one_tensor(name: str, data: st.DataObject) -> None:
    dtypes = FLOATS if name in FLOAT_ONLY else (*FLOATS, *WHOLES)
    x = data.draw(tensors(dtypes))
    if name == "t" and x.dim() > 2:
        x = x.flatten()
    agrees(f"{name}.default", (x,))


@pytest.mark.parametrize("name", sorted(UNARY))
def test_of_bools(name: str) -> None:
    """What torch computes of truth values, which it often counts in."""
    x = torch.tensor([[True, False, True], [False, False, True]])
    try:
        operator(f"{name}.default")(x)
    except (RuntimeError, NotImplementedError):
        return  # torch does not
    agrees(f"{name}.default", (x,))


@pytest.mark.parametrize("name", sorted(BINARY))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_of_a_tensor_and_another_or_a_number(name: str, data: st.DataObject) -> None:
    dtypes = (*FLOATS, *WHOLES)
    x = data.draw(tensors(dtypes))
    if data.draw(st.booleans()):
        shape = tuple(data.draw(st.sampled_from([1, size])) for size in x.shape)
        y = data.draw(tensors(dtypes, shape))
        overload = "Tensor"
    else:
        y = data.draw(st.sampled_from([2, 3, 0.5, -1.5, 7]))
        overload = "Scalar"
    if name in ("remainder", "fmod") and isinstance(y, torch.Tensor) and not y.is_floating_point():
        y = y.abs() + 1  # torch raises on a division by zero
    agrees(f"{name}.{overload}", (x, y))


def test_a_remainder_of_zero_has_the_sign_of_the_dividend() -> None:
    x = torch.tensor([0.875, -0.875, 0.0, -0.0, 3.0, -3.0, -5.0, 5.0])
    y = torch.tensor([-0.875, 0.875, -1.0, 2.0, -2.0, 2.0, float("inf"), -float("inf")])
    for name in ("remainder.Tensor", "fmod.Tensor"):
        found = interpret(read(operator(name), (x, y)), x.numpy(), y.numpy())
        wanted = operator(name)(x, y).numpy()
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("name", sorted(TENSORS))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_of_two_tensors(name: str, data: st.DataObject) -> None:
    x = data.draw(tensors((*FLOATS, *WHOLES)))
    y = data.draw(tensors((*FLOATS, *WHOLES), tuple(x.shape)))
    agrees(f"{name}.default", (x, y))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_of_bits(name: str, data: st.DataObject) -> None:
    x = data.draw(tensors((*WHOLES, torch.bool)))
    y = data.draw(tensors((*WHOLES, torch.bool), tuple(x.shape)))
    agrees(f"{name}.Tensor", (x, y))
    if x.dtype is not torch.bool:
        agrees(f"{name}.Scalar", (x, 5))


@pytest.mark.parametrize(
    "name", ["sum.default", "prod.default", "max.default", "min.default", "any.default",
             "all.default"],
)  # fmt: skip
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_of_all_elements(name: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), max_size=3)))
    x = data.draw(tensors((torch.float32, torch.float64, *WHOLES, torch.bool), shape))
    if name == "prod.default" and x.dtype is torch.float32:
        x = x.nan_to_num(0.5, 1.0, 1.0)
    agrees(name, (x,))


@pytest.mark.parametrize("name", sorted(UNSET))
def test_what_torch_leaves_unset_has_its_type(name: str) -> None:
    args = UNSET[name]
    expected = operator(name)(*args)
    inputs = [each.numpy() for each in args if isinstance(each, torch.Tensor)]
    found = interpret(read(operator(name), args), *inputs)
    assert (found.shape, str(found.dtype)) == (tuple(expected.shape), "float32")


def test_every_row_is_tested() -> None:
    tested = {*CASES, *UNSET, *(f"{name}.default" for name in (*UNARY, *TENSORS))}
    tested |= {f"{name}.{kind}" for name in BINARY for kind in ("Tensor", "Scalar")}
    tested |= {f"bitwise_{name}.{kind}" for name in ("and", "or", "xor")
               for kind in ("Tensor", "Scalar")}  # fmt: skip
    tested |= {f"{name}.default" for name in ("sum", "prod", "max", "min", "any", "all")}
    # Their results are as long as values say: test_by_value.py.
    assert {*TABLE, *DECOMPOSED} == tested | set(by_value.TABLE)


def test_every_row_is_an_operator() -> None:
    for name in TABLE:
        assert operator(name)._schema is not None


REFUSED: Final[dict[str, Any]] = {
    "index_put.default": lambda: (torch.ones(3), [torch.ones(3) > 0], torch.ones(3)),
    "round.decimals": lambda: (torch.ones(2), {"decimals": 1}),
    "as_strided.default": lambda: (torch.ones(4, 4)[1:], [2, 2], [1, 1]),
    "adaptive_max_pool2d.default": lambda: (torch.ones(1, 1, 4, 4), [2, 2]),
    "_linalg_det.default": lambda: (torch.ones(40, 40),),
    "scaled_dot_product_attention.default": lambda: (*[torch.ones(1, 2, 2)] * 3, None, 0.5),
    "add.Scalar": lambda: (torch.zeros(2, dtype=torch.uint8), 300),
    "gru.input": lambda: (
        torch.ones(2, 1, 3),
        torch.ones(2, 1, 4),
        recurrent(3, 2),
        True,
        2,
        0.5,
        True,
        False,
        False,
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_a_row_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        read(operator(name), REFUSED[name]())
    assert caught.value.diagnostics[0].place is not None
