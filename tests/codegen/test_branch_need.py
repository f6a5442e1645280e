"""What a branch needs of open sizes is asked for where it runs, and of nobody else."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pytest

import plica
from plica.core.diagnostic import EvaluationError
from plica.core.fold import post_order
from plica.ir.graph.expression import Apply
from plica.ir.graph.shape_specialisation import sized
from plica.ir.loop.need import guarded, needs
from plica.ir.type.dim import dim_var, normal_dim
from plica.ir.type.infer import infer

N: Final = dim_var("n")
BRANCHES: Final = {
    "max": "op.max(x, axis=(2,))",
    "argmax": "op.cast(op.argmax(x, axis=2), dtype=f32)",
    "window": "op.sum(nn.max_pool(x, kernel=3, strides=2), axis=(2,))",
    "pooled": "op.reshape(nn.global_max_pool(x), (1, 2))",
    "edge": "op.sum(op.pad(x, ((0, 0), (0, 0), (1, 2)), mode='edge'), axis=(2,))",
    "matched": "op.sum(op.match_shape(x, (1, 2, 'm')) + y, axis=(2,))",
    "plain": "op.sum(x, axis=(2,))",
}


@cache
def program() -> tuple[Any, Any]:
    """One program with all branches, and its code."""
    lines = [
        '@plica.function(dims="n m")',
        'def main(c: Tensor[(7,), bool], x: Tensor[(1, 2, "n"), f32],'
        ' y: Tensor[(1, 2, "m"), f32]) -> Tensor[(1, 2), f32]:',
    ]
    for at, body in enumerate(BRANCHES.values()):
        lines += [f"    {'if' if at == 0 else 'elif'} op.take(c, {at}):", f"        return {body}"]
    lines += ["    else:", "        return op.sum(y, axis=(2,))"]
    read = plica.from_text("\n".join(lines))
    return read, plica.compile(read, cache=False, threads=1, effort="fast")


def given(name: str, n: int, m: int = 2) -> tuple[Any, ...]:
    flags = np.array([each == name for each in BRANCHES])
    x = np.arange(2.0 * n, dtype=np.float32).reshape(1, 2, n)
    return flags, x, np.ones((1, 2, m), np.float32)


@pytest.mark.parametrize("name", [*BRANCHES, "none"])
def test_a_branch_has_the_value_of_the_interpreter_or_is_refused(name: str) -> None:
    read, made = program()
    refused = set()
    for n in range(5):
        try:
            expected = plica.interpret(read, *given(name, n))
        except EvaluationError:
            refused.add(n)
            with pytest.raises(EvaluationError, match="no value at these sizes"):
                made(*given(name, n))
            continue
        np.testing.assert_allclose(made(*given(name, n)), expected, rtol=1e-6)
    wanted = {"plain": set(), "none": set(), "window": {0, 1, 2}, "matched": {0, 1, 3, 4}}
    assert refused == wanted.get(name, {0})
    assert made.stats.at_call == 0


@pytest.mark.parametrize("name", ["max", "window", "plain"])
def test_a_program_at_one_size_refuses_when_the_branch_runs(name: str) -> None:
    read, _ = program()
    at_none = sized(read, {N: 0, dim_var("m"): 2})
    assert plica.interpret(at_none, *given("none", 0)).tolist() == [[2, 2]]
    if name == "plain":
        assert plica.interpret(at_none, *given(name, 0)).tolist() == [[0, 0]]
    else:
        with pytest.raises(EvaluationError, match="outside"):
            plica.interpret(at_none, *given(name, 0))


def test_what_both_branches_have_is_asked_for_in_both() -> None:
    """An operator that runs whatever is chosen has its sizes looked at before; no other has."""
    source = """
@plica.function(dims="n")
def main(c: Tensor[(), bool], x: Tensor[("n",), f32]) -> Tensor[(), f32]:
    always = op.max(x)
    if c:
        return always + op.max(op.exp(x))
    else:
        return op.max(op.slice(x, (3,), (None,)))
"""
    checked = guarded(infer(plica.from_text(source)))
    assert [str(each) for each in map(normal_dim, needs(checked))] == [str(normal_dim(N - 1))]
    nodes = post_order(checked.main_function().body)
    assert sum(isinstance(each, Apply) and each.op == "match_shape" for each in nodes) == 2


def test_a_program_without_branches_stays() -> None:
    source = """
@plica.function(dims="n")
def main(x: Tensor[("n",), f32]) -> Tensor[(), f32]:
    return op.max(x)
"""
    read = infer(plica.from_text(source))
    assert guarded(read) is read
