"""The reference meaning of the graph language: what every pass and every target must agree with.

Branches not taken and clauses that do not match are never evaluated; a let's value is evaluated
before its body; tail calls do not grow the stack.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Tuple, Var
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import FuncType, TupleType, tensor
>>> t = tensor((), "f32")
>>> x, main = Var(Name("x"), t), Var(Name("main"), FuncType((), (), (t,), TupleType((t, t))))
>>> twice = module({main: Function((), (), (x,), TupleType((t, t)), Tuple((x, x)))}, main)
>>> [float(each) for each in interpret(twice, 1.5)]
[1.5, 1.5]
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.core.collector import paused
from plica.ir.graph.expression import Var, attr
from plica.ir.graph.module import Module
from plica.ir.graph.shape_specialisation import check_ranges
from plica.ir.interpret.graph_machine import GENEROUS, Externs, GraphMachine, RunLimits
from plica.ir.interpret.graph_program import program_of
from plica.ir.interpret.input import read_inputs
from plica.ir.interpret.value import Array, Value
from plica.ir.loop.statement import Kernel
from plica.ir.text.script import Scripted, as_module
from plica.ir.type import TensorType
from plica.runtime.error import EvaluationError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few programs take lists, or are kernels
    from plica.ir.interpret.kernel import run_kernel
    from plica.runtime.ragged import flat_inputs, nested_results

MAX_RESULTS: Final = 1 << 20
"""The maximum number of tensors in a result, each of which is a separate array."""

__all__ = ["GENEROUS", "RunLimits", "interpret"]


def interpret(
    module: Module | Scripted,
    /,
    *args: Any,
    externs: Externs | None = None,
    limits: RunLimits = GENEROUS,
    **named: Any,
) -> Any:
    """The result of the module's main: an array, or a tuple in the order of outputs.

    Inputs are given by position or by name; `externs` gives a Python function for each symbol.
    """
    with paused():  # no cycles are made here, and a deep stack is long to trace
        program = program_of(as_module(module))
        start = program.module.main
        first = None if start is None else program.table.get(start)
        if isinstance(first, Kernel):
            return _kernel(first, program.module, args, named)
        machine = GraphMachine(program, externs or {}, limits)
        said = program.module.main_function()
        main = program.apart(said)
        if (lists := attr(said, "lists")) is not None:
            args, named = flat_inputs(lists, args, named), {}
        values, sizes = read_inputs(main.params, args, named, program.module)
        if said.dims:
            every = zip(said.dims, main.dims, strict=True)
            check_ranges(said, {str(dim.name): sizes[own] for dim, own in every if own in sizes})
        result = machine.enter(main, {}, values, sizes)
        if _tensors(result, {}) > MAX_RESULTS:
            message = "The result has more tensors than there is memory for."
            expected = f"at most {MAX_RESULTS} tensors"
            raise EvaluationError.of("no-memory", message, None, expected, "more")
        fresh = _fresh(result)
        return fresh if lists is None else nested_results(lists, fresh)


def _kernel(
    kernel: Kernel, module: Module, args: tuple[Any, ...], named: dict[str, Any]
) -> Array | tuple[Array, ...]:
    """The buffers a kernel writes, given those it reads."""
    inputs = kernel.params[: kernel.inputs]
    params = [Var(buffer.name, TensorType(buffer.shape, buffer.dtype)) for buffer in inputs]
    values, sizes = read_inputs(params, args, named, module)
    written = run_kernel(kernel, values, sizes)
    return written[0] if len(written) == 1 else written


def _tensors(value: Value, known: dict[int, int]) -> int:
    """The number of tensors in a value, counting shared tuples once per use."""
    if not isinstance(value, tuple):
        return 1
    if (count := known.get(id(value))) is None:
        count = known[id(value)] = sum([_tensors(item, known) for item in value])
    return count


def _fresh(value: Value) -> Value:
    """Arrays the caller may keep and change, whatever they were made from."""
    if isinstance(value, np.ndarray):
        return np.array(value)
    if isinstance(value, tuple):
        return tuple([_fresh(item) for item in value])
    return value
