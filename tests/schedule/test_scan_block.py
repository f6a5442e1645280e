"""Blocks that scan: what they are, what traces make of them, and traces in other processes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.core.digest import digest
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage_of
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.statement import Block, Kernel, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer, compute, prefix
from plica.ir.text.show.kernel import show_kernel
from plica.ir.type.dtype import DType, f32, i32, i64
from plica.schedule.block_class import carried_by, scan_begun, scan_body
from plica.schedule.default.choose import default_schedule, fallback_schedule
from plica.schedule.default.machine import Machine

WIDE, NARROW = Machine(512, 32), Machine(128, 16)
TOTAL: dict[str, Any] = {  # Any: ufuncs of numpy
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def scanned(
    word: Any,  # Any: a combiner
    shape: tuple[int, ...],
    at: int,
    dtype: DType,
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> Stages:
    """The scan of a tensor along an axis."""
    x = buffer("x", shape, dtype)

    def element(*i: sc.Scalar) -> sc.Scalar:
        return prefix(
            word, shape[at], i[at], lambda k: x[(*i[:at], k, *i[at + 1 :])],
            exclusive=exclusive, reverse=reverse,
        )  # fmt: skip

    of = compute((x,), shape, element)
    return stages((x,), (stage_of(buffer("y", shape, dtype), of.axes, of.body),))


@st.composite
def scans(draw: st.DrawFn) -> Stages:
    sizes = st.integers(1, 40) | st.sampled_from([64, 100, 300])
    shape = tuple(draw(st.lists(sizes, min_size=1, max_size=3)))
    at = draw(st.integers(0, len(shape) - 1))
    word, dtype = draw(st.sampled_from(sorted(TOTAL))), draw(st.sampled_from([f32, i32, i64]))
    ways = {way: draw(st.booleans()) for way in ("exclusive", "reverse")}
    return scanned(word, shape, at, dtype, **ways)


def values(of: Stages) -> np.ndarray[Any, Any]:  # Any: of any shape and dtype
    (x,) = of.inputs
    shape = [int(size.value) for size in x.shape if isinstance(size, sc.Lit)]
    return np.random.default_rng(0).integers(-3, 4, shape).astype(x.dtype.numpy)


@settings(max_examples=20, deadline=None)
@given(scans(), st.sampled_from([WIDE, NARROW, Machine(512, 32, cores=4)]))
def test_traces_keep_the_bits_of_a_scan(of: Stages, machine: Machine) -> None:
    kernel, x = kernel_of(of), values(of)
    if x.size > 4000:
        x = values(of := scanned("sum", (9, 40), 1, f32))
        kernel = kernel_of(of)
    wanted = evaluate_stages(of, [x])
    for made in (default_schedule(kernel, machine), fallback_schedule(kernel, machine)):
        assert isinstance(made, tuple)
        (found,) = run_kernel(made[1], [x])
        assert found.tobytes() == wanted.tobytes()


@settings(max_examples=20, deadline=None)
@given(scans())
def test_the_meaning_is_that_of_numpy(of: Stages) -> None:
    (scan,), x = of.stages, values(of)
    total = TOTAL[scan.combiner]  # type: ignore[union-attr]  # it is a scan
    way, at = (-1 if scan.reverse else 1), scan.along  # type: ignore[union-attr]  # it is a scan
    moved = np.moveaxis(x, at, 0)[::way]
    found = np.moveaxis(evaluate_stages(of, [x]), at, 0)[::way]
    wanted = total.accumulate(moved, 0, dtype=x.dtype)
    if scan.exclusive:  # type: ignore[union-attr]  # it is a scan
        found, wanted = found[1:], wanted[:-1]
    np.testing.assert_array_equal(found, wanted)


def test_every_scan_is_a_trace_that_other_processes_replay() -> None:
    shapes = [(64, 1000), (1000, 64), (7, 33), (5,)]
    sent, wanted = [], []
    for shape in shapes:
        for at in range(len(shape)):
            kernel = kernel_of(scanned("sum", shape, at, f32))
            made = default_schedule(kernel, WIDE)
            assert isinstance(made, tuple)
            trace, scheduled = made
            assert len(trace.steps) > 2
            sent.append((show_kernel(kernel), trace.to_json()))
            wanted.append(digest(scheduled))
    program = (
        "import json, plica, sys\n"
        "from plica.core.digest import digest\n"
        "from plica.schedule import Trace, replay\n"
        "for text, steps in json.load(sys.stdin):\n"
        "    made = replay(Trace.from_json(steps), plica.from_text(text)).values[0]\n"
        "    print(digest(made))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(sent), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.split() == wanted


def test_text_reads_back() -> None:
    kernel = kernel_of(scanned("max", (4, 9), 1, f32, exclusive=True, reverse=True))
    text = show_kernel(kernel)
    assert "scan=(" in text
    read = plica.from_text(text).values[0]
    assert isinstance(read, Kernel)
    assert digest(read) == digest(kernel)


# --- what a scan is -------------------------------------------------------------------------------

i, k = axis("i"), axis("k")
X, Y, CARRY = buffer("x", (3, 5), f32), buffer("y", (3, 5), f32), buffer("carry", (3,), f32)
ADD, KEEP = Store(CARRY, (i,), CARRY[i] + X[i, k]), Store(Y, (i, k), CARRY[i])
BEGIN = Store(CARRY, (i,), sc.Lit(0, f32))


def scan(body: Stmt, kinds: str = "sc", init: Any = BEGIN) -> Block:  # Any: as in a block
    return block("y", (i, k), (3, 5), kinds, (i, k), body, init)


@pytest.mark.parametrize(
    ("of", "word"),
    [
        (scan(seq(ADD, KEEP), "sr"), "scan-kinds"),
        (scan(seq(ADD, KEEP), "ss"), "scan-kinds"),
        (scan(KEEP), "scanner"),
        (scan(seq(ADD, Store(CARRY, (i,), sc.Lit(1, f32)))), "scanner"),
        (scan(seq(ADD, Store(Y, (i, k), Y[i, k] * CARRY[i]))), "scanner"),
        (scan(seq(Store(CARRY, (i,), CARRY[i] + Y[i, k]), KEEP)), "scanner"),
        (scan(seq(ADD, KEEP), init=Store(Y, (i, k), sc.Lit(0, f32))), "starts"),
        (scan(seq(ADD, KEEP), init=None), "starts"),
        (scan(seq(ADD, Store(Y, (i, sc.index(0)), CARRY[i]))), "distinct-writes"),
        (
            scan(
                seq(Store(CARRY, (k // 2,), CARRY[k // 2] + X[i, k]), KEEP),
                init=Store(CARRY, (k // 2,), sc.Lit(0, f32)),
            ),
            "scanner",
        ),
    ],
)
def test_what_is_no_scan_is_refused(of: Block, word: str) -> None:
    found = scan_begun(of)
    assert found is not None
    assert found.precondition == word


def test_what_is_carried() -> None:
    assert scan_body(scan(seq(ADD, KEEP))) is None
    assert scan_begun(scan(seq(KEEP, ADD))) is None
    assert set(carried_by(scan(seq(ADD, KEEP)))) == {CARRY}
