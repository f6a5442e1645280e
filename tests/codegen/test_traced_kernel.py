"""Traced kernels: who made the loops of each kernel, and that its trace is enough to make it."""

import subprocess
from typing import Any

import pytest

from plica import op
from plica.codegen.backend import find_target
from plica.core.diagnostic import Malformed
from plica.core.encode import to_json
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import module
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import from_kernel, kernel_of, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica.pipeline.compiled import job_for, pipeline_of
from plica.runtime.late import python_here
from tests.codegen.traced_kernel import (
    TracedKernel,
    folds_of,
    has_loops,
    replayed_digest,
    traced_kernels,
)

AGAIN = "import sys, tests.codegen.traced_kernel as k; print(k.replayed_digest(*sys.argv[1:]))"


def kernels_of(body: Any, target: str, *shapes: tuple[int, ...]) -> tuple[TracedKernel, ...]:
    """The kernels of a function of some tensors for a target."""
    params = [Var(Name(f"x{at}"), tensor(each, "f32")) for at, each in enumerate(shapes)]
    made: Expr = body(*params)
    main = Var(Name("main"), None)
    program = module({main: Function((), (), tuple(params), None, made)}, main)
    on = find_target(target)
    return traced_kernels(pipeline_of(on), program, job_for(on))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_product_is_a_trace_that_another_process_replays(target: str) -> None:
    (found,) = kernels_of(op.matmul, target, (96, 64), (64, 96))
    assert found.is_traced
    assert found.steps > 10
    assert found.form
    assert found.template
    assert replayed_digest(found.start, found.trace, target) == found.code
    if target != "cpu":  # starting a process takes a while
        return
    command, environment = python_here("-c", AGAIN, found.start, found.trace, target)
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert again.stdout.strip() == found.code


def test_each_group_of_operators_is_one_kernel() -> None:
    found = kernels_of(
        lambda x, y: op.nn.softmax(op.matmul(x, y), axis=-1), "cpu", (96, 64), (64, 96)
    )
    assert len(found) == 2
    assert found[0].source == "matmul"


def test_loops_and_folds_are_told_from_stages() -> None:
    x = buffer("x", (8, 32), f32)
    whole = stages((x,), (stage("y", (8,), lambda i: reduce("sum", (32,), lambda k: x[i, k])),))
    parts = stage("p", (8, 4), lambda i, j: reduce("sum", (8,), lambda k: x[i, j * 8 + k]))
    joined = stage("y", (8,), lambda i: reduce("sum", (4,), lambda j: parts[i, j]))
    assert folds_of(whole) == 1
    assert folds_of(stages((x,), (parts, joined))) == 2
    assert not has_loops(whole)
    assert has_loops(from_kernel(kernel_of(whole)))


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(Malformed, match="No trace begins there"):
        replayed_digest(to_json(buffer("x", (8,), f32)), "{}", "cpu")
