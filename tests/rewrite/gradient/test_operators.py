"""Every operator's gradient is what finite differences in f64 say it is."""

from __future__ import annotations

import math
from typing import Any, Final

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from plica.ir.graph.operator import Mismatch, Operator
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find, names
from plica.rewrite.gradient import grad, jvp
from tests.conftest import PROFILE
from tests.ir.reference import CASES
from tests.ir.reference.case import Case
from tests.ir.reference.run import attributes, types_of
from tests.rewrite.gradient.finite import Array, directional, is_float, weighted

FEW: Final = {"ci": 2, "dev": 10, "deep": 300}[PROFILE]

# Where an operator has a finite slope, for those that have one only there.
DOMAINS: Final[dict[str, tuple[float, float]]] = {
    **dict.fromkeys(("arcsin", "arccos", "arctanh"), (-0.8, 0.8)),
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "power", "cumprod"), (0.3, 2.0)),
    "log1p": (-0.5, 2.0),
    "arccosh": (1.3, 3.0),
    **dict.fromkeys(("nn.nll_loss", "nn.cross_entropy"), (0.3, 2.0)),
}

NOT_DERIVED: Final = (
    "argmax", "argmin", "argsort", "argwhere", "nn.bitserial_conv", "nn.bitserial_dense",
    "stop_gradient", "unravel_index",
)  # fmt: skip
"""Made of others, and of whole numbers; or not to be differentiated on purpose."""


def record_of(name: str) -> Operator:
    found = find(name)
    assert found is not None
    return found


def smooth(name: str, case: Case, seed: int) -> list[Array]:
    """The arguments of a case with its floats replaced: none is near another, nor near zero."""
    low, high = DOMAINS.get(name, (-2.0, 2.0))
    random = np.random.default_rng(seed)
    args: list[Array] = []
    like = record_of(name).like
    for at, each in enumerate(case.args):
        if like is not None and at not in like:
            args.append(each)  # indices, conditions
            continue
        values: Array = np.asarray(random.uniform(low, high, each.shape))
        if low < 0 < high:
            values = np.where(np.abs(values) < 0.1, values + 0.2, values)
        if name == "nn.batch_norm" and at == 4:
            values = np.abs(values)  # a variance
        args.append(values)
    return args


def relation(record: Operator, args: list[Array], attrs: Any) -> Any:
    return record.relation(attributes(record, attrs), *types_of(args))


def has_slope(name: str, args: list[Array], case: Case) -> bool:
    """Whether a statistic is one: of too few numbers it is nan, or a root of zero."""
    if name in ("nn.nll_loss", "nn.cross_entropy"):
        return bool(np.any(args[1] != case.attrs["ignore_index"]))
    if name not in ("mean", "var", "std"):
        return True
    least = case.attrs.get("ddof", 0) + (2 if name == "std" else 1)
    axis = case.attrs["axis"]
    sizes = args[0].shape if axis is None else [args[0].shape[at] for at in axis]
    return bool(math.prod(sizes) >= least)


def is_differentiable(name: str) -> bool:
    record = record_of(name)
    made = record.gradient is not None or record.decompose is not None
    return bool(record.inputs) and made and name not in NOT_DERIVED


@pytest.mark.parametrize("name", [each for each in names() if is_differentiable(each)])
@settings(max_examples=FEW, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_it_is_what_differences_say(name: str, data: st.DataObject) -> None:
    case = data.draw(CASES[name])
    seed = data.draw(st.integers(0, 1000))
    args = smooth(name, case, seed)
    chosen = [at for at, each in enumerate(args) if is_float(each)]
    assume(chosen)
    assume(not isinstance(relation(record_of(name), args, case.attrs), Mismatch))
    module = weighted(record_of(name), args, case.attrs)
    assume(module is not None and has_slope(name, args, case))
    assert module is not None
    random = np.random.default_rng(3)
    ways = [
        np.asarray(random.uniform(-1, 1, each.shape)) if is_float(each) else None for each in args
    ]
    wanted = directional(module, args, ways)
    found = interpret(grad(module, tuple(chosen)), *args)
    along = sum(float(np.sum(part * ways[at])) for part, at in zip(found, chosen, strict=True))
    scale = 1 + sum(
        float(np.sum(np.abs(part * ways[at]))) for part, at in zip(found, chosen, strict=True)
    )
    assert along == pytest.approx(wanted, abs=1e-6 * scale)
    if PROFILE == "ci" and seed % 2:
        return
    # Forward mode is the pullback of the pullback, so this is about second derivatives too.
    moved: Any = interpret(jvp(module, tuple(chosen)), *args, *[ways[at] for at in chosen])
    assert float(moved[1]) == pytest.approx(along, abs=1e-9 * scale)
