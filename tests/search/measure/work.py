"""Work for the tests of measuring: a small product of matrices, its space, and jobs gone wrong."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from plica import op
from plica.codegen.llvm import toolchain
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Function, Var
from plica.ir.loop.stages import Stages, from_kernel
from plica.ir.loop.statement import Kernel
from plica.ir.text.script import from_text
from plica.ir.type.infer import type_of
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule import block, do, loops, reorder, sample_tile, split, trace_of, vectorize
from plica.schedule.do import Body
from plica.schedule.form import Facts
from plica.schedule.trace import Trace
from plica.search.measure import MeasureJob
from plica.search.space import Space, sketch

TARGET: Final = evolve(toolchain.host(), cores=1)


@frozen
class Task:
    """As much of a task as measuring asks for."""

    function: Function
    facts: Facts

    @property
    def stages(self) -> Stages:
        return to_stages(self.function).stages


def product(size: int = 16) -> Function:
    """x @ w."""
    x = Var(Name("x"), tensor((size, size), "f32"))
    w = Var(Name("w"), tensor((size, size), "f32"))
    body = op.matmul(x, w)
    return Function((), (), (x, w), type_of(body), body)


@do
def tiled() -> Body:
    i, j, k = yield loops((yield block("out")))
    i0, i1 = yield split(i, sample_tile(2, max_inner=8))
    j0, j1 = yield split(j, sample_tile(2, max_inner=16))
    yield reorder(i0, j0, k, i1, j1)
    yield vectorize(j1)


TASK: Final = Task(product(), Facts((False, False), contract=reassociates))

HEAD: Final = """
import plica
from plica.script import Buffer, block, f32, grid, init
"""

PRODUCT: Final = """
@plica.kernel
def product(x: Buffer[(16, 16), f32], w: Buffer[(16, 16), f32], y: Buffer[(16, 16), f32]):
    for i, j, k in grid(16, 16, 16):
        with block("out", spatial=(i, j), reduce=(k,)):
            with init():
                y[i, j] = 0.0
            y[i, j] += x[i, k] * w[k, j]
"""


def product_space() -> Space:
    """Schedules of the product."""
    kernel = kernel_of(PRODUCT)
    return Space((sketch("tiled", kernel, trace_of(tiled, kernel)),))


SAID: Final = """
@plica.kernel
def said(x: Buffer[(1024,), f32], y: Buffer[(1024,), f32]):
    for i in grid(1024):
        with block("out", spatial=(i,)):
            y[{place}] = {value}
"""

DOUBLED: Final = SAID.format(place="i", value="x[i] + x[i]")
SQUARED: Final = SAID.format(place="i", value="x[i] * x[i]")
BEYOND: Final = SAID.format(place="i", value="x[i + 16] + x[i]")
OUTSIDE: Final = SAID.format(place="i + 16", value="x[i] + x[i]")

ENDLESS: Final = """
@plica.kernel
def endless(x: Buffer[(1024,), f32], y: Buffer[(1024,), f32]):
    for i, k in grid(1024, 1099511627776):
        with block("out", spatial=(i,), reduce=(k,)):
            with init():
                y[i] = 0.0
            y[i] = y[i] * x[i]
"""


def kernel_of(text: str) -> Kernel:
    """The kernel of a script."""
    (found,) = from_text(HEAD + text).values
    assert isinstance(found, Kernel)
    return found


def doubled() -> Function:
    """x + x over 1024 elements: what the kernels above are said to compute."""
    x = Var(Name("x"), tensor((1024,), "f32"))
    body = op.add(x, x)
    return Function((), (), (x,), type_of(body), body)


def pretended(text: str, trace: Trace | None = None) -> MeasureJob:
    """A job whose kernel does something else than its work."""
    steps = trace or Trace(())
    whole, form = to_stages(doubled()).stages, from_kernel(kernel_of(text))
    return MeasureJob(whole, form, (False,), True, steps, TARGET.describe())
