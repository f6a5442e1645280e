"""Open sizes in exported programs: numbers computed from them, and rows whose sizes they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import plica

torch = pytest.importorskip("torch")
F = torch.nn.functional
from tests.frontend.torch.test_by_value import Model  # noqa: E402  # torch may be absent

Function = Callable[..., Any]


def drawn(seed: int, *shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def agrees(
    function: Function, shapes: list[tuple[int, ...]], dims: dict[int, Any], strict: bool = False
) -> Any:
    """One code, exported for the first shape, gives what torch gives for each of them."""
    program = torch.export.export(
        Model(function), (drawn(0, *shapes[0]),), dynamic_shapes=((dims,),), strict=strict
    )
    exe = plica.compile(program)
    for seed, shape in enumerate(shapes):
        x = drawn(seed, *shape)
        found, wanted = exe(x), function(x)
        several = isinstance(wanted, tuple)
        for one, other in zip(*((found, wanted) if several else ([found], [wanted])), strict=True):
            assert np.shape(one) == np.shape(other)
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)
    assert exe.stats.at_call == 0
    return exe


def opened(*names: str) -> list[Any]:
    return [torch.export.Dim(name, min=2, max=64) for name in names]


NUMBERS: dict[str, Function] = {
    "power": lambda x: x * (x.shape[0] ** -0.5),
    "root": lambda x: x / torch.sym_sqrt(x.shape[0]),
    "quotient": lambda x: x * (x.shape[0] / (x.shape[0] + 3)) + float(x.shape[0]),
    "filled": lambda x: torch.full((2,), 1.0 / x.shape[0]) + torch.full_like(x[0, :2], x.shape[0]),
    "range": lambda x: torch.arange(0, x.shape[0], dtype=torch.float32) / (x.shape[0] - 1),
    "steps": lambda x: torch.arange(0.5, x.shape[0], 1.0) * 2,
    "last": lambda x: x[-1] + x[1],
    "between": lambda x: x[torch.arange(2 * x.shape[0] - 1) // 2] + x[torch.arange(1)],
    "nearest": lambda x: torch.topk(x, 2, dim=0, largest=False),
    "windows": lambda x: x.unfold(0, 2, 1).amax(-1),
    "repeated": lambda x: x[0].repeat(x.shape[0], 2),
}


def together(table: dict[str, Function]) -> Function:
    """All of them as one program: exporting each would take longer than the rest."""
    return lambda x: tuple(torch.utils._pytree.tree_leaves([each(x) for each in table.values()]))


def test_numbers_from_sizes() -> None:
    (n,) = opened("n")
    agrees(together(NUMBERS), [(6, 4), (9, 4), (3, 4)], {0: n}, strict=True)


SCATTERS: dict[str, Function] = {
    "added": lambda x: torch.zeros_like(x).scatter_add(0, _places(x), x),
    "put": lambda x: x.scatter(1, torch.tensor([[0]]).expand(x.shape[0], 1), x[:, 1:2]),
    "rows": lambda x: torch.zeros(3, 4).index_add(0, torch.arange(x.shape[0]) % 3, x),
    "both": lambda x: x.index_put((torch.tensor([0, 1]), torch.tensor([2, 0])), torch.ones(2)),
    "greatest": lambda x: torch.zeros_like(x).scatter_reduce(0, _places(x), x, "amax"),
}


def _places(x: Any) -> Any:
    rows = torch.arange(x.shape[0])[:, None].expand(x.shape[0], x.shape[1])
    return (rows * 2) % x.shape[0]


def test_scatters_into_open_sizes() -> None:
    (n,) = opened("n")
    agrees(together(SCATTERS), [(5, 4), (8, 4), (2, 4)], {0: n})


IMAGES: dict[str, Function] = {
    "twice": lambda x: F.interpolate(x, scale_factor=2.0),
    "by a fraction": lambda x: F.interpolate(x, scale_factor=1.3),
    "to a size": lambda x: F.interpolate(x, size=(x.shape[2] * 2 - 1, 5), mode="bilinear"),
    "corners": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=True),
    "smooth": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
    "sampled": lambda x: F.grid_sample(
        x, x[:, :2, :3, :4].permute(0, 2, 3, 1), padding_mode="reflection", align_corners=False
    ),
}


def _changed(x: Any) -> Any:
    """Parts of open axes, and of known ones beside them, are written."""
    y, count = x.clone(), x.shape[0]
    y[1:] += x[:-1]
    y[0, 2:-1] = 7.0
    y[-1] = y[1]
    y[1::2] *= 3
    y[:, ::2] += 1
    y[-2:, 1] = 0
    room = torch.zeros(99, 7)
    room[:count] = x
    room[20 : 20 + count] = y
    room[-count:] = x
    room[::3][:count] += 1
    return y, room


def _cut(x: Any) -> Any:
    """Ends that are sizes below 0 count from the end; borders are as wide as sizes say."""
    count, room = x.shape[0], torch.arange(99.0)
    wide = F.pad(x, (1, -2, count, 99 - count), value=2.0)
    mean = F.adaptive_avg_pool1d(x.t()[None], 1)  # a mean, and as_strided of it
    return room[-count:] + x[:, 0], room[:-count].cumsum(0), room[3:-count], wide, mean


def test_parts_of_open_axes_are_written_and_cut() -> None:
    n = torch.export.Dim("n", min=4, max=30)
    agrees(lambda x: (*_changed(x), *_cut(x)), [(5, 7), (4, 7), (30, 7)], {0: n})


def test_images_of_open_sizes() -> None:
    auto = torch.export.Dim.AUTO
    agrees(together(IMAGES), [(3, 3, 8, 6), (4, 3, 11, 6), (5, 3, 5, 6)], {0: auto, 2: auto})


def test_a_size_that_was_scaled_is_a_dim() -> None:
    def made(x: Any) -> Any:
        count = int(x.shape[0] * 1.3)
        return torch.ones(count, 2) * x.sum(), torch.zeros(count + 1)

    (n,) = opened("n")
    agrees(made, [(5, 4), (20, 4), (2, 4)], {0: n}, strict=True)


def test_a_size_that_four_divides() -> None:
    n = torch.export.Dim("n", min=2, max=9)
    exe = agrees(lambda x: F.avg_pool1d(x[None], 4).sum(0), [(3, 8), (3, 20)], {1: 4 * n})
    for wrong in (4, 10, 40):
        with pytest.raises(plica.PlicaError):
            exe(torch.ones(3, wrong))


def test_half_of_an_open_size() -> None:
    def made(x: Any) -> Any:
        return *torch.topk(x, x.shape[0] // 2, dim=0), x[: x.shape[0] // 2].sum(0)

    agrees(made, [(6, 4), (9, 4), (3, 4)], {0: torch.export.Dim.AUTO})


def test_the_last_of_nothing_is_refused() -> None:
    exe = plica.compile(torch.export.export(Model(lambda x: x[x > 0][-1]), (torch.ones(3),)))
    assert exe(torch.tensor([1.0, 5, -1])) == 5
    with pytest.raises(plica.PlicaError, match="index"):
        exe(-torch.ones(3))


def test_more_than_there_are_is_refused() -> None:
    def most(x: Any, n: Any) -> Any:
        count = n.item()
        torch._check(count >= 0)
        return torch.topk(x, count)[0]

    (n,) = opened("n")
    first = torch.export.export(
        Model(lambda x: x.topk(3)[0]), (torch.ones(6),), dynamic_shapes=(({0: n + 3},),)
    )
    np.testing.assert_array_equal(plica.compile(first)(torch.arange(5.0)), [4, 3, 2])
    exe = plica.compile(torch.export.export(Model(most), (torch.randn(5), torch.tensor(2))))
    np.testing.assert_array_equal(exe(torch.tensor([3.0, 1, 5, 2, 4]), torch.tensor(2)), [5, 4])
    with pytest.raises(plica.PlicaError):
        exe(torch.randn(5), torch.tensor(6))


def test_what_no_row_computes_of_sizes_is_named() -> None:
    class Rounded(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be absent
        def forward(self, x: Any) -> Any:
            return x * round(x.shape[0] / 3, 1)

    (n,) = opened("n")
    program = torch.export.export(
        Rounded(), (torch.ones(5, 4),), dynamic_shapes=({0: n},), strict=True
    )
    with pytest.raises(plica.PlicaError, match="round") as caught:
        plica.from_torch(program)
    assert "0x" not in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.fft.rfft(x, dim=0).abs(), lambda x: torch.linalg.det(x @ x.t())],
    ids=["fft", "det"],
)
def test_refused_sizes_are_shown_as_types(function: Function) -> None:
    dims = (({0: torch.export.Dim.AUTO},),)
    program = torch.export.export(Model(function), (torch.ones(5, 4),), dynamic_shapes=dims)
    with pytest.raises(plica.PlicaError) as caught:
        plica.from_torch(program)
    assert str(caught.value.diagnostics[0].found).startswith("Tensor[(")


SLOPES: dict[str, Function] = {
    "running": lambda x: (torch.cummax(x, 1)[0] * torch.cummin(x, 0)[0]).sum(),
    "logarithms": lambda x: torch.logcumsumexp(x, 0).sum(),
    "middle": lambda x: x.median() + x.median(1)[0].exp().sum() + x.mode(1)[0].sum(),
    "gamma": lambda x: (torch.lgamma(x) + torch.digamma(x.abs() + 0.2)).sum(),
    "error": lambda x: (torch.erfinv(x.tanh() * 0.9) + torch.erfc(x)).sum(),
    "sampled": lambda x: F.grid_sample(
        x.reshape(1, 1, -1, 4),
        x[:2].reshape(1, 2, 2, 2),
        padding_mode="reflection",
        align_corners=False,
    ).sum(),
    "pooled": lambda x: (F.adaptive_avg_pool1d(x.T, 3) * F.adaptive_max_pool1d(x.T, 3)).sum(),
    "resized": lambda x: (
        F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear")[..., ::2].exp().sum()
    ),
    "bilinear": lambda x: F.bilinear(x, x + 1, torch.ones(2, 4, 4)).prod(1).sum(),
    "area": lambda x: torch.det(x[:4]) + torch.slogdet(x[1:5])[1],
}


def test_slopes_are_those_of_torch() -> None:
    def total(x: Any) -> Any:
        return sum(each(x) for each in SLOPES.values())

    auto = torch.export.Dim.AUTO
    program = torch.export.export(Model(total), (drawn(0, 6, 4),), dynamic_shapes=(({0: auto},),))
    slopes = plica.grad(plica.from_torch(program), 0)
    for seed, rows in enumerate((6, 9)):
        x = drawn(seed, rows, 4).requires_grad_()
        total(x).backward()
        np.testing.assert_allclose(
            plica.interpret(slopes, x.detach()), x.grad, rtol=1e-3, atol=1e-3
        )
