"""Reverse mode: a program whose functions give their value and a pullback.

    f  : (a, b) -> c
    f' : (a, b) -> (c, (c's cotangent) -> (a's cotangent, b's cotangent))

Functions are differentiated if an active value is passed to them. The reverse sweep of main is
inlined, so a main of operators alone stays plain dataflow.

The result is an ordinary module: pure, typed, and to be differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.core.task import run
from plica.ir.graph import Defined, Definition, expression as ex
from plica.ir.type import FuncType
from plica.rewrite.gradient.form import unmarked
from plica.rewrite.gradient.sweep import BlockSweep, branch_sweep
from plica.rewrite.gradient.swept_program import SweptProgram
from plica.runtime.error import UnsupportedError


class Reverse(SweptProgram):
    """A program, and the definitions of its derivatives."""

    def main(self, varying: Sequence[ex.Var]) -> tuple[BlockSweep, ex.Expr, ex.Function]:
        """The main function swept forwards, its result, and itself."""
        function = self.module.main_function()
        assert self.module.main is not None
        self.place = str(self.module.main.name)
        sweep = BlockSweep(self, set(varying))
        return sweep, run(sweep.forward(function.body)), function

    def definitions(self) -> dict[Defined, Definition]:
        """All other definitions: those there were, and those of derivatives."""
        for callee in self.todo:  # grows while it is gone through
            self.place = str(callee.name)
            value = self.table[callee]
            assert isinstance(value, ex.Function)
            self.made[self.derived[callee]] = self._pulling(value, self.derived[callee])
        if self.missing:
            raise UnsupportedError(*self.missing.values())
        old = {
            name: unmarked(value) if isinstance(value, ex.Function) else value
            for name, value in self.module.items()
            if name is not self.module.main
        }
        return {**old, **self.tangents.definitions, **self.made}

    def _pulling(self, value: ex.Function, name: ex.Var) -> ex.Function:
        active = {each for each in value.params if self.is_active(each)}
        branch = run(branch_sweep(self, value.body, active, ()))
        assert isinstance(name.type, FuncType)
        return ex.Function(
            value.dims, (), value.params, name.type.ret, branch.written(value.params)
        )
