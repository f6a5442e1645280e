"""Staged compilation: a program that learns sizes while it runs, segment by segment.

>>> import numpy as np
>>> import plica
>>> exe = plica.compile(plica.from_text('''
... @plica.function(dims="n k")
... def main(x: Tensor[("n",), f32]) -> Tensor[("k",), i64]:
...     found = op.argwhere(x)
...     measure("k", found[1])
...     return op.match_shape(op.slice(op.ravel(found[0]), (0,), ("k",)), ("k",))
... '''))
>>> exe(np.array([0, 5, 0, 7], np.float32)), exe(np.zeros(3, np.float32)).shape
(array([1, 3]), (0,))
>>> exe.stats.at_call
0
"""

from __future__ import annotations

from collections.abc import Callable

from plica.codegen.staged.cut import cut
from plica.ir.graph.module import Module
from plica.ir.type import infer
from plica.pipeline.code_for_sizes import interface_of
from plica.runtime.executable import Executable
from plica.runtime.staged.executable import StagedExecutable
from plica.runtime.staged.program import RepeatBlock, all_steps


def compile_staged(
    module: Module,
    compiled: Callable[[Module], Executable],
    driver: Callable[[], bytes],
    *,
    chooses: bool = True,
    updates: bool,
    written_out: Callable[[], Executable] | None = None,
) -> StagedExecutable:
    """Compiles a module that measures sizes. `compiled` makes code for its segments, which may
    contain choices if that code `chooses`, and may overwrite loop-carried values if it `updates`;
    `driver` builds the function that runs loops; `written_out` is the equivalent program without
    loops, if any."""
    known = infer(module)
    program = cut(known, chooses=chooses, updates=updates)
    segments = [compiled(segment) for segment in program.segments]
    loops = any(isinstance(step, RepeatBlock) for step in all_steps(program.program))
    return StagedExecutable(
        interface_of(known), program.program, segments, driver() if loops else b"", written_out
    )
