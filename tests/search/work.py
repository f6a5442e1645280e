"""Work to make spaces of, and what it means."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.stages import Stages, evaluate_stages
from plica.ir.loop.statement import Kernel
from plica.ir.type.infer import type_of
from plica.ir.type.term import tensor
from plica.schedule.default import Machine
from plica.schedule.form import Facts
from plica.schedule.hoist import constants
from plica.schedule.unlowered import run_unlowered
from plica.search.sketch_rule import hoisted_kernel
from plica.search.task import Task

Array = np.ndarray[Any, Any]

SMALL: Final = Machine(128, 8, (4096, 32768))
"""A machine on which small sizes are enough to see everything."""


def task(expr: Expr, *params: Var, constant: tuple[bool, ...] | None = None) -> Task:
    """The task of an expression over parameters."""
    function = Function((), (), params, type_of(expr), expr)
    told = constant or (False,) * len(params)
    return Task(function, Facts(told, contract=reassociates))


def product(m: int, n: int, k: int, *, constant: bool = True) -> Task:
    """A matrix product."""
    x, w = Var(Name("x"), tensor((m, k), "f32")), Var(Name("w"), tensor((k, n), "f32"))
    return task(Apply("matmul", (x, w)), x, w, constant=(False, constant))


def conv(channels: int, outputs: int, size: int, window: int, stride: int = 1) -> Task:
    """A convolution and relu."""
    x = Var(Name("x"), tensor((1, channels, size, size), "f32"))
    w = Var(Name("w"), tensor((outputs, channels, window, window), "f32"))
    attrs = (("dilation", 1), ("groups", 1), ("padding", window // 2), ("strides", stride))
    whole = Apply("nn.relu", (Apply("nn.conv", (x, w), attrs),))
    return task(whole, x, w, constant=(False, True))


def summed(rows: int, length: int) -> Task:
    """A sum along rows."""
    x = Var(Name("x"), tensor((rows, length), "f32"))
    attrs = (("axis", (1,)), ("keepdims", False))
    return task(Apply("sum", (x,), attrs), x)


def doubled(rows: int, length: int) -> Task:
    """Something for each element."""
    x = Var(Name("x"), tensor((rows, length), "f32"))
    return task(Apply("exp", (x + x,)), x)


def of_main(body: Expr, *params: Var) -> Module:
    """A module with one function."""
    main = Var(Name("main"), None)
    return module({main: Function((), (), params, None, body)}, main)


def multiplied(size: int, *, twice: bool = False) -> Module:
    """A product with a constant, maybe done twice."""
    x = Var(Name("x"), tensor((size, size), "f32"))
    random = np.random.default_rng(0)
    weight = const(random.integers(-2, 3, (size, size)).astype(np.float32))
    once = Apply("matmul", (x, weight))
    return of_main(Apply("matmul", (once, weight)) if twice else once, x)


def meant(of: Task, seed: int = 0) -> tuple[tuple[Array, ...], Array]:
    """Small whole numbers to read, and what the stages make of them."""
    random = np.random.default_rng(seed)
    arrays = [
        random.integers(-3, 4, _shape(each)).astype(each.dtype.numpy) for each in of.stages.inputs
    ]
    return tuple(arrays), evaluate_stages(of.stages, arrays)


def computed(of: Task, form: Stages, kernel: Kernel, arrays: tuple[Array, ...]) -> Array:
    """What a schedule of a form writes."""
    hoisted = hoisted_kernel(form, of.facts.constant).hoisted
    known = {n: arrays[n] for n, told in enumerate(of.facts.constant) if told}
    made = constants(hoisted, known) if hoisted.before else {}
    given = [arrays[each] if isinstance(each, int) else made[each] for each in hoisted.reads]
    shaped = [
        array.reshape(_shape(buffer))
        for array, buffer in zip(given, kernel.params[: kernel.inputs], strict=True)
    ]
    return run_unlowered(kernel, shaped)[-1]


def _shape(of: Any) -> tuple[int, ...]:  # a buffer of a kernel, whose sizes are literals
    return tuple([size.value for size in of.shape])
