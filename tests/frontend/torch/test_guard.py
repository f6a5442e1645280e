"""Guards of exported programs: a call that breaks one is refused, and no result is wrong."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import product
from typing import TypeAlias

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
    ("an offset", 1, lambda x: torch.diagonal(x @ x.T, offset=x.shape[0] // 2)),
]


def _program(code: Code, count: int, loaded: bool = False) -> torch.export.ExportedProgram:
    args = tuple(torch.randn(size, 4) for size in (12, 9)[:count])
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
