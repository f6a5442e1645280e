"""Products of bytes: what their kernels read is made of constants, and is tuned all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import plica
from plica import op
from plica.codegen.llvm import toolchain
from plica.codegen.lower.processor import machine_of
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.search.measure import MeasureJob, job_of
from plica.search.record import Database
from plica.search.space_of import space_of
from plica.search.task import tasks

HERE = evolve(toolchain.host(), cores=1)
WEIGHT = np.random.default_rng(0).integers(-128, 127, (24, 32), endpoint=True).astype(np.int8)

pytestmark = pytest.mark.skipif(
    machine_of(HERE).dot is None, reason="this machine multiplies no four bytes at once"
)


def product() -> Module:
    """x @ w, of bytes, in 32 bits."""
    x = Var(Name("x"), tensor((12, 24), "i8"))
    body = op.matmul(op.cast(x, dtype="i32"), op.cast(const(WEIGHT), dtype="i32"))
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, body)}, main)


def test_what_is_made_of_constants_travels() -> None:
    (task,) = tasks(product(), DEFAULT_CONTRACT, (), HERE)
    space = space_of(task, machine_of(HERE))
    job = job_of(task, space, space.default, HERE)
    assert job.hoisted.before
    again = MeasureJob.from_json(job.to_json())
    assert again.hoisted.before == job.hoisted.before
    assert again.identity == job.identity


def test_a_tuned_product_of_bytes_is_exact(tmp_path: Path) -> None:
    with Database(tmp_path / "tune.db") as database:
        tuned = plica.tune(
            product(), "cpu", 2, database, progress=False, threads=1, policy="random"
        )
        statuses = {each.error for each in tuned.courses[0].observations}
        assert statuses == {""}
        exe = plica.compile(product(), threads=1, database=database)
    assert "tuned" in str(exe.tuning)
    x = np.random.default_rng(1).integers(-128, 127, (12, 24), endpoint=True).astype(np.int8)
    assert np.array_equal(np.asarray(exe(x)), x.astype(np.int32) @ WEIGHT.astype(np.int32))
