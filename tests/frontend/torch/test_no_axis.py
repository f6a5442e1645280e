"""Reductions of torch over `dim=()` and `dim=[]`: all axes or none, as each operator has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import plica

torch = pytest.importorskip("torch")
from tests.frontend.torch.test_by_value import Model  # noqa: E402  # torch may be absent

REDUCTIONS: Final = (
    "sum", "mean", "any", "all", "amax", "amin", "std", "var", "logsumexp", "nansum", "nanmean",
    "count_nonzero", "std_mean", "var_mean", "norm", "squeeze", "flip",
)  # fmt: skip
DATA: Final = {
    "matrix": torch.tensor([[1.0, 2.0, 0.0], [3.0, 5.0, -1.0]]),
    "number": torch.tensor(2.0),
    "nothing": torch.zeros(0, 3),
}


Call: TypeAlias = Callable[[Any], Any]  # Any: tensors of torch


def calls(x: Any) -> list[Call]:
    """Each reduction with each way to name no axis, where torch takes the call."""
    found: list[Call] = []
    for name in REDUCTIONS:
        word = "dims" if name == "flip" else "dim"
        for named in ({word: ()}, {word: [], "keepdim": True}):
            call = partial(getattr(torch, name), **named)
            try:
                call(x)
            except (IndexError, RuntimeError, TypeError):
                continue
            found.append(call)
    return found


@pytest.mark.parametrize(
    "name",
    ["matrix", *(pytest.param(each, marks=pytest.mark.slow) for each in ("number", "nothing"))],
)
@pytest.mark.filterwarnings("ignore")  # torch warns of deviations of one element
def test_no_axis_means_what_torch_means(name: str) -> None:
    x = DATA[name]
    taken = calls(x)
    assert len(taken) > 20
    program = torch.export.export(Model(lambda x: [call(x) for call in taken]), (x,))
    found = plica.interpret(plica.from_torch(program), x.numpy())
    wanted = torch.utils._pytree.tree_leaves([call(x) for call in taken])
    for ours, theirs in zip(found, wanted, strict=True):
        assert np.asarray(ours).dtype == theirs.numpy().dtype
        np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), rtol=1e-6, atol=1e-6)
