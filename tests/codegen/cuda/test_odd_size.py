"""Sizes that fill no tile: products, convolutions with channels last and transposes on a GPU.

Every kernel runs in two orders of threads, in memory that is poisoned (`emulate`): a tail that is
not filled, or not waited for, is a finding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.scheduled import for_threads
from plica.codegen.lower.passes import LOWERING, lowered
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Function, Var
from plica.ir.op import find
from plica.ir.type.dim import known
from plica.ir.type.dtype import dtype
from plica.ir.type.infer import infer_expr, type_of
from plica.ir.type.term import TensorType, tensor
from plica.schedule.default.gpu import Gpu
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run
from tests.ir.reference import REFERENCE

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")

Shape = tuple[int, ...]
DTYPES = st.sampled_from(["f16", "f16", "bf16", "f32"])
LAST = ("NHWC", "OHWI", "NHWC")


@st.composite
def products(draw: st.DrawFn) -> tuple[str, list[Shape], dict[str, Any]]:
    lots = draw(st.sampled_from([(), (3,)]))
    m, n, k = (draw(st.integers(8, most)) for most in (130, 130, 200))
    return "matmul", [(*lots, m, k), (*lots, k, n)], {}


@st.composite
def windows(draw: st.DrawFn) -> tuple[str, list[Shape], dict[str, Any]]:
    images, height, width = (draw(st.integers(3, most)) for most in (5, 10, 10))
    channels, out = 8 * draw(st.integers(1, 6)), 8 * draw(st.integers(1, 6))
    size, stride = draw(st.sampled_from([1, 3])), draw(st.integers(1, 2))
    attrs = {"layouts": LAST, "strides": (stride, stride), "padding": (size // 2, size // 2)}
    return "nn.conv_laid", [(images, height, width, channels), (out, size, size, channels)], attrs


@st.composite
def transposes(draw: st.DrawFn) -> tuple[str, list[Shape], dict[str, Any]]:
    shape = (draw(st.integers(1, 3)), *(draw(st.integers(30, 110)) for _ in range(2)))
    return "transpose", [shape], {"axes": (0, 2, 1)}


def compared(work: tuple[str, list[Shape], dict[str, Any]], kind: str, *, together: bool) -> None:
    name, shapes, attrs = work
    record = find(name)
    assert record is not None
    params = [Var(Name("x", at), tensor(shape, kind)) for at, shape in enumerate(shapes)]
    value = infer_expr(record(*params, **attrs))
    result = type_of(value)
    assert isinstance(result, TensorType)
    function = Function((), (), tuple(params), result, value)
    facts = Facts((False,) * len(params), (), reassociates)
    made = for_threads(function, facts, Gpu(groups=together))
    code = fold(lowered(made.kernel, passes=LOWERING["gpu"].passes), "kernel")
    random = np.random.default_rng(0)
    arrays = [random.integers(-2, 3, shape).astype(dtype(kind).numpy) for shape in shapes]
    found = np.full([known(size) or 0 for size in result.shape], 7, result.dtype.numpy)
    run(code, [*[arrays[each] for each in made.reads if isinstance(each, int)], found])
    expected = REFERENCE[name](*[each.astype(np.float64) for each in arrays], **attrs)
    near = 1e-2 if kind == "bf16" else 1e-3  # whole numbers: only the result is rounded
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=near)


@pytest.mark.parametrize("shape", [(2, 96, 100), (1, 33, 64)])
def test_the_last_tile_of_a_transpose_is_waited_for(shape: Shape) -> None:
    compared(("transpose", [shape], {"axes": (0, 2, 1)}), "f16", together=False)


@settings(max_examples=3)
@given(products() | windows() | transposes(), DTYPES, st.booleans())
def test_any_size_means_the_same(
    work: tuple[str, list[Shape], dict[str, Any]], kind: str, together: bool
) -> None:
    compared(work, kind, together=together)
