"""Sizes that depend on elements: one code for all of them, and what torch asserts is asserted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import plica

torch = pytest.importorskip("torch")


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be absent
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def exported(function: Callable[..., Any], *args: Any) -> Any:
    return torch.export.export(Model(function), args)


def floats(seed: int) -> Any:
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(seed)).round(decimals=1)


def whole(seed: int) -> Any:
    return torch.randint(0, 5, (7,), generator=torch.Generator().manual_seed(seed))


def places(x: Any) -> Any:
    return torch.nonzero(x > 0)


def all_places(x: Any) -> Any:
    return torch.where(x > 0)


def by_mask(x: Any) -> Any:
    return x[x > 0] * 2


def rows_by_mask(x: Any) -> Any:
    return x[x[:, 0] > 0].sum(0)


def between(x: Any) -> Any:
    return x.reshape(2, 3, 5)[:, torch.tensor([True, False, True])]


def selected(x: Any) -> Any:
    return torch.masked_select(x, x[:1] > 0)


def scattered(x: Any) -> Any:
    return x.masked_scatter(x > 0, x.abs() * 3)


def put(x: Any) -> Any:
    return torch.index_put(torch.zeros(6, 5), (x > 0,), torch.tensor(2.0))


def put_row(x: Any) -> Any:
    return torch.index_put(torch.zeros(6, 5), (x[:, 0] > 0,), x[0])


def put_rows(x: Any) -> Any:
    mask = x[:, 0] > 0
    return torch.index_put(x, (mask,), x.exp()[mask])


def added_rows(x: Any) -> Any:
    return torch.index_put(x, (x > 0,), x.exp()[x > 0], accumulate=True)


def mean_of_some(x: Any) -> Any:
    some = x[x > 0]
    return some.sum() / some.shape[0], some.shape[0] * x, torch.full((2,), some.numel())


def different(x: Any) -> Any:
    return torch.unique(x, return_inverse=True, return_counts=True)


def counted(x: Any) -> Any:
    return torch.bincount(x, minlength=3)


def weighed(x: Any) -> Any:
    return torch.bincount(x, weights=x * 0.5)


def repeated(x: Any) -> Any:
    return torch.repeat_interleave(torch.arange(14.0).reshape(7, 2), x, dim=0)


def first(x: Any) -> Any:
    return torch.arange(30.0).reshape(10, 3)[: x[0].item()]


def rest(x: Any) -> Any:
    n = x[0].item()
    torch._check(n >= 0)
    torch._check(n <= 10)
    return torch.arange(30.0).reshape(10, 3)[n:]


def made(x: Any) -> Any:
    return torch.ones(x[1].item(), 2) + x[0]


def chosen(x: Any) -> Any:
    n = x[0].item()
    torch._check(n >= 0)
    return torch.cond(n > 2, lambda y: y + 1, lambda y: y - 1, (x,))


REAL = [places, all_places, by_mask, rows_by_mask, between, selected, scattered, put, different,
        put_row, put_rows, added_rows, mean_of_some]  # fmt: skip
WHOLE = [counted, weighed, repeated, first, rest, made, chosen, different]


@pytest.mark.parametrize("function", [*REAL, *WHOLE], ids=lambda each: each.__name__)
def test_one_code_serves_all_values(function: Callable[..., Any]) -> None:
    draw = floats if function in REAL else whole
    exe = plica.compile(exported(function, draw(0)))
    for seed in range(4):
        x = draw(seed)
        found, wanted = exe(x), function(x)
        several = isinstance(wanted, tuple)
        for one, other in zip(*((found, wanted) if several else ([found], [wanted])), strict=True):
            assert np.shape(one) == np.shape(other)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert exe.stats.at_call == 0


def test_nothing_may_be_chosen() -> None:
    exe = plica.compile(exported(by_mask, floats(0)))
    assert np.shape(exe(-torch.ones(6, 5))) == (0,)


def test_open_sizes_beside() -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(Model(by_mask), (floats(0),), dynamic_shapes=(({0: rows},),))
    exe = plica.compile(program)
    for count in (1, 9):
        x = torch.randn(count, 5)
        np.testing.assert_allclose(exe(x), by_mask(x), rtol=1e-6)


def test_what_torch_asserts_of_a_size_is_asserted() -> None:
    def told(x: Any, n: Any) -> Any:
        count = n.item()
        torch._check(count >= 1)
        torch._check(count <= 4)
        return x[:count] + torch.ones(count, 5)

    exe = plica.compile(exported(told, floats(0), torch.tensor(3)))
    assert np.shape(exe(floats(1), torch.tensor(4))) == (4, 5)
    for wrong in (0, 5, -1):
        with pytest.raises(plica.PlicaError):
            exe(floats(1), torch.tensor(wrong))


def test_a_mask_inside_of_a_branch_is_refused() -> None:
    def branched(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y[y > 0].sum(), lambda y: y.sum(), (x,))

    with pytest.raises(plica.PlicaError, match="only known when the program runs") as caught:
        plica.from_torch(exported(branched, floats(0)))
    assert "branches" in str(caught.value)


def opened(function: Callable[..., Any], x: Any) -> Any:
    dim = torch.export.Dim("n", min=0)
    return plica.compile(torch.export.export(Model(function), (x,), dynamic_shapes=(({0: dim},),)))


def test_an_open_size_is_a_number() -> None:
    def centred(x: Any) -> Any:
        return (x - x.sum() / x.shape[0]).clamp(max=x.shape[0] - 2), x.shape[0]

    exe = opened(centred, torch.randn(5))
    for count in (1, 4):
        x = torch.randn(count)
        found, size = exe(x)
        np.testing.assert_allclose(found, centred(x)[0], rtol=1e-5, atol=1e-6)
        assert int(size) == count


def test_nothing_is_counted() -> None:
    exe = opened(counted, whole(0))
    np.testing.assert_array_equal(exe(torch.zeros(0, dtype=torch.int64)), [0, 0, 0])


def test_nothing_is_taken_of_an_empty_source() -> None:
    def taken(x: Any) -> Any:
        return x.masked_scatter(x > 9, x[x > 9])

    np.testing.assert_array_equal(plica.compile(exported(taken, floats(0)))(floats(1)), floats(1))


def test_rows_of_another_number_are_refused() -> None:
    def given(x: Any) -> Any:
        return torch.index_put(x, (x > 0,), torch.ones(3))

    exe = plica.compile(exported(given, torch.tensor([1.0, -1, 2, 3])))
    np.testing.assert_array_equal(exe(torch.tensor([1.0, 2, -1, 3])), [1, 1, -1, 1])
    for x in (torch.ones(4), -torch.ones(4)):
        with pytest.raises(plica.PlicaError):
            exe(x)


def test_repetitions_below_zero_are_refused() -> None:
    exe = plica.compile(exported(repeated, whole(0)))
    with pytest.raises(plica.PlicaError, match="negative"):
        exe(torch.tensor([3, -1, 0, 0, 0, 0, 0]))


def test_what_is_refused_names_the_operator() -> None:
    exe = plica.compile(exported(counted, whole(0)))
    with pytest.raises(plica.PlicaError, match="bincount"):
        exe(torch.tensor([3, -1, 0, 0, 0, 0, 0]))

    def taken(x: Any) -> Any:
        return x.masked_scatter(x > 0, x[:2, :2])

    exe = plica.compile(exported(taken, floats(0)))
    with pytest.raises(plica.PlicaError, match="masked_scatter"):
        exe(torch.ones(6, 5))


SUMS = {
    "mask": lambda x: (x[x > 0] ** 2).sum(),
    "mean": lambda x: (x[x > 0] ** 2).sum() / x[x > 0].shape[0],
    "of some": lambda x: x[x > 0][x[x > 0] < 1].exp().sum(),
    "pairs": lambda x: (x[x > 0][:, None] * x[x < 0.5]).sum(),
    "put": lambda x: torch.index_put(x, (x > 0,), x.exp()[x > 0]).sum(),
}


@pytest.mark.parametrize("name", SUMS)
def test_gradients_where_sizes_are_measured(name: str) -> None:
    module = plica.from_torch(exported(SUMS[name], floats(0)))
    exe = plica.compile(plica.grad(module, 0))
    for seed in range(3):
        x = floats(seed).requires_grad_()
        SUMS[name](x).backward()
        found = exe(x.detach())
        np.testing.assert_allclose(found, x.grad, rtol=1e-4, atol=1e-5)


def test_a_measured_result_has_no_cotangent() -> None:
    module = plica.from_torch(exported(by_mask, floats(0)))
    for derive in (plica.vjp, plica.jvp):
        with pytest.raises(plica.PlicaError, match="measured"):
            derive(module)
