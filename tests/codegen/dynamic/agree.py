"""What the tests of dynamic programs share: compiling one, and holding it to the interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from plica import pipeline
from plica.codegen.llvm import toolchain
from plica.ir.contract import Contract, exact
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.interpret.value import DataValue
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from plica.ir.type.term import TupleType
from plica.runtime.dynamic.executable import DynamicExecutable

HEADER = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Fn, Tensor, bool_, const, f32, i64
"""
LIST = """
@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])
"""


def text(source: str) -> Module:
    """A module from its text without the imports."""
    return infer(from_text(HEADER + source))


lower = partial(pipeline.lower, objects=True)
build = partial(pipeline.build, objects=True)
assemble = partial(pipeline.assemble, objects=True)


def compiled(module: Module, contract: Contract = exact) -> DynamicExecutable:
    """Native code over objects, though the program may be a static one, too."""
    target = toolchain.host()
    made = build(lower(module, contract, (), target), target)
    assert isinstance(made, DynamicExecutable)
    return made


def flat(value: Any, module: Module) -> list[Any]:
    """The tensors and data of a result, from left to right."""
    if not isinstance(module.main_function().ret, TupleType):
        return [value]
    found: list[Any] = []
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, tuple):
            stack.extend(reversed(each))
        else:
            found.append(each)
    return found


def alike(a: Any, b: Any, tolerance: float = 1e-5) -> bool:
    """Whether two values are equal up to rounding; nan is equal to nan."""
    stack = [(a, b)]
    while stack:
        a, b = stack.pop()
        if isinstance(a, DataValue):
            if not isinstance(b, DataValue) or a.data is not b.data or a.name is not b.name:
                return False
            stack.extend(zip(a.fields, b.fields, strict=True))
        elif isinstance(a, tuple):
            stack.extend(zip(a, b, strict=True))
        elif a.dtype != b.dtype or a.shape != b.shape:
            return False
        elif a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return False
        else:
            wide, other = a.astype(np.float64), b.astype(np.float64)
            if not np.allclose(wide, other, tolerance, tolerance, equal_nan=True):
                return False
    return True


def agree(exe: DynamicExecutable, module: Module, *args: Any, tolerance: float = 1e-5) -> Any:
    """What native code gives, which is what the program means; nothing is left behind."""
    found = exe(*args)
    several = list(found) if isinstance(found, tuple) else [found]
    assert alike(tuple(flat(interpret(module, *args), module)), tuple(several), tolerance)
    assert [state.live for state in exe._states] == [0] * len(exe._states)
    return found


def arrays_in(value: Any) -> list[Any]:  # Any: arrays, or tuples of them
    """The arrays in some inputs, from left to right."""
    if isinstance(value, tuple):
        return [leaf for each in value for leaf in arrays_in(each)]
    return [value]
