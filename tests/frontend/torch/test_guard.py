"""Guards of exported programs: a call that breaks one is refused, and no result is wrong."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch.export import Dim

import plica
from plica.runtime.error import InputError

Code: TypeAlias = Callable[..., torch.Tensor]


class Model(torch.nn.Module):
    def __init__(self, code: Code) -> None:
        super().__init__()
        self.code = code

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.code(*args)


def _doubled(x: torch.Tensor) -> torch.Tensor:
    for _ in range(x.shape[0] // 4):
        x = x * 2
    return x


CASES: list[tuple[str, int, Code]] = [
    ("parity", 1, lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3),
    ("one size", 1, lambda x: x * 2 if x.shape[0] != 7 else x * 3),
    ("two sizes", 2, lambda x, y: x + y.sum() if x.shape[0] > y.shape[0] else x - y.sum()),
    ("their sum", 2, lambda x, y: x * 2 if x.shape[0] + y.shape[0] > 16 else x + y.sum()),
    ("iterations", 1, _doubled),
    ("lengths of parts", 1, lambda x: torch.sub(*[part.sum() for part in x.tensor_split(2)])),
    ("an offset", 1, lambda x: torch.diagonal(x @ x.T, offset=x.shape[0] // 2)),
]


def _program(
    code: Code, count: int, loaded: bool = False, sizes: tuple[int, ...] = (12, 9)
) -> torch.export.ExportedProgram:
    args = tuple(torch.randn(size, 4) for size in sizes[:count])
    dims = (tuple({0: Dim.AUTO} for _ in args),)
    program = torch.export.export(Model(code), args, dynamic_shapes=dims)
    if not loaded:
        return program
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(("count", "code"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_call_that_breaks_a_guard_is_refused_and_no_result_is_wrong(
    count: int, code: Code, loaded: bool
) -> None:
    program = _program(code, count, loaded)
    run, reference = plica.compile(plica.from_torch(program)), program.module()
    right = refused = 0
    for sizes in product((4, 7, 8, 12, 13, 20), (9, 30)[:count] if count > 1 else (0,)):
        args = [torch.randn(size, 4) for size in sizes[:count]]
        try:
            reference(*args)
        except AssertionError:
            with pytest.raises(InputError):
                run(*[each.numpy() for each in args])
            refused += 1
            continue
        result = run(*[each.numpy() for each in args])
        np.testing.assert_allclose(result, code(*args).numpy(), rtol=1e-5, atol=1e-5)
        right += 1
    assert right
    assert refused


@pytest.mark.parametrize(
    ("name", "sizes", "expected", "found"),
    [
        ("parity", (7,), "args_0_0%2 == 0", "args_0_0 is 7 (axis 0 of 'args_0')"),
        ("one size", (7,), "args_0_0 != 7", "args_0_0 is 7 (axis 0 of 'args_0')"),
        ("iterations", (7,), "args_0_0//4 == 3", "args_0_0 is 7 (axis 0 of 'args_0')"),
        (
            "two sizes",
            (7, 30),
            "args_0_0 >= args_1_0+1",
            "args_0_0 is 7 (axis 0 of 'args_0'), args_1_0 is 30 (axis 0 of 'args_1')",
        ),
    ],
)
def test_a_refusal_says_the_condition_and_the_axes_it_is_about(
    name: str, sizes: tuple[int, ...], expected: str, found: str
) -> None:
    (code,) = [case[2] for case in CASES if case[0] == name]
    run = plica.compile(plica.from_torch(_program(code, len(sizes))))
    with pytest.raises(InputError) as refused:
        run(*[np.ones((size, 4), "f4") for size in sizes])
    (said,) = refused.value.diagnostics
    assert (said.expected, said.found) == (expected, found)


def _windows(x: torch.Tensor) -> torch.Tensor:
    n, width = x.shape
    parts = x.view(n // 4, 4, width // 2, 2).permute(0, 2, 1, 3)
    return parts.softmax(-1).permute(0, 2, 1, 3).contiguous().view(n, width) + x


def _pooled(x: torch.Tensor) -> torch.Tensor:
    pooled = torch.nn.functional.max_pool1d(x.T[None], 2)
    return torch.cat([torch.nn.functional.interpolate(pooled, scale_factor=2.0)[0].T, x], 1)


AGREEING: list[tuple[str, int, Code]] = [
    ("rows of eight", 1, lambda x: x.reshape(-1, 2, 4)),
    ("groups of four", 1, lambda x: x[:, 0].reshape(-1, 2, 2).sum(1) + torch.ones(2)),
    ("halves of two slices", 1, lambda x: x[: x.shape[0] // 2] + x[x.shape[0] // 2 :]),
    ("halves of a chunk", 1, lambda x: torch.add(*x.chunk(2))),
    ("even places and odd ones", 1, lambda x: torch.cat([x[::2], x[1::2]], 1)),
    ("pooled and resized", 1, _pooled),
    ("windows and back", 1, _windows),
    ("groups of channels", 1, lambda x: torch.nn.functional.group_norm(x.T[None].mT, 4)),
    ("a suffix as long as another", 2, lambda x, y: x[-y.shape[0] :] + y),
    ("half as long as another", 2, lambda x, y: x.reshape(2, -1, 4) + y),
]
"""Programs that have a type only because torch found two sizes to be equal."""


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(("count", "code"), [c[1:] for c in AGREEING], ids=[c[0] for c in AGREEING])
def test_sizes_that_torch_found_to_be_equal_are_one(count: int, code: Code, loaded: bool) -> None:
    program = _program(code, count, loaded, (16, 8))
    run, reference = plica.compile(plica.from_torch(program)), program.module()
    right = refused = 0
    for sizes in product((7, 8, 12, 15, 16, 24), (8, 12)[:count] if count > 1 else (0,)):
        args = [torch.randn(size, 4) for size in sizes[:count]]
        try:
            reference(*args)
        except AssertionError:
            with suppress(RuntimeError):  # what torch refuses has its meaning, or none
                wanted = code(*args)
                with suppress(InputError):
                    np.testing.assert_allclose(run(*_arrays(args)), wanted, rtol=1e-5, atol=1e-5)
                continue
            with pytest.raises(InputError):
                run(*_arrays(args))
            refused += 1
            continue
        np.testing.assert_allclose(run(*_arrays(args)), code(*args), rtol=1e-5, atol=1e-5)
        right += 1
    assert right
    assert refused


def _arrays(tensors: list[torch.Tensor]) -> list[Any]:
    return [each.numpy() for each in tensors]


def test_slices_are_clamped_for_sizes_beyond_those_that_torch_assumed() -> None:
    program = _program(lambda x, y: x[-y.shape[0] :], 2)
    run = plica.compile(plica.from_torch(program))
    x, y = np.ones((4, 4), "f4"), np.ones((9, 4), "f4")
    np.testing.assert_array_equal(run(x, y), x)


def test_a_number_for_a_dim_that_breaks_a_guard_is_refused() -> None:
    program = _program(CASES[0][2], 1)
    at_eight = plica.compile(plica.from_torch(program, dims={"args_0_0": 8}))
    np.testing.assert_array_equal(at_eight(np.ones((8, 4), "f4")), np.full((8, 4), 2.0))
    with pytest.raises(InputError, match="exported for other sizes"):
        plica.from_torch(program, dims={"args_0_0": 9})
