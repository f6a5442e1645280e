"""Searches by value on a GPU: sorted runs are merged, and places found, as they are meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.scheduled import for_threads
from plica.codegen.lower.passes import LOWERING, lowered
from plica.core.name import Name
from plica.ir.contract import exact
from plica.ir.graph.expression import Function, Var
from plica.ir.op import find
from plica.ir.type.dtype import dtype, i64
from plica.ir.type.term import TensorType, tensor
from plica.schedule.default.gpu import Gpu
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run
from tests.ir.reference import REFERENCE

KEYS = np.array([3.0, np.nan, -1.0, 3.0, 0.0, -0.0, np.inf, 2.0, 3.0, 2.0, -np.inf], np.float32)
"""Eleven keys: more than two runs of 4, with equals, both zeros, infinities and nan."""


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    ("name", "args", "attrs"),
    [
        (
            "merge_runs",
            [np.concatenate([np.sort(KEYS[at : at + 4]) for at in (0, 4, 8)])],
            {"width": 4},
        ),
        ("searchsorted", [np.sort(KEYS), KEYS], {"side": "right"}),
    ],
)
def test_it_is_found(name: str, args: list[Any], attrs: dict[str, Any]) -> None:
    record = find(name)
    assert record is not None
    params = [Var(Name("x", at), tensor(x.shape, dtype(x.dtype))) for at, x in enumerate(args)]
    wanted = REFERENCE[name](*args, **attrs)
    result = TensorType(params[0].type.shape, i64)  # type: ignore[union-attr]  # a tensor
    function = Function((), (), tuple(params), result, record(*params, **attrs))
    made = for_threads(function, Facts((False,) * len(args), (), exact), Gpu())
    code = fold(lowered(made.kernel, passes=LOWERING["gpu"].passes), "kernel")
    found = np.full(wanted.shape, -1, np.int64)
    run(code, [*args, found])
    np.testing.assert_array_equal(found, wanted)
