"""Gradient cases: a scalar program of differentiable operators, and a point to differentiate it at.

arguments -- sometimes through a sine --> an operator --> followers --> a weighted sum
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import attrs
import numpy as np

from plica.core import Name
from plica.ir.generate.draw import Array, DrawnCall
from plica.ir.generate.table import ROWS, drawn_call
from plica.ir.graph.expression import Apply, Expr, Function, Project, Var, const
from plica.ir.graph.module import Module, main_module
from plica.ir.graph.operator import Mismatch, Operator, find, names
from plica.ir.op.elementwise import sin
from plica.ir.op.reduction import sum_
from plica.ir.type import TensorType, TupleType, dtype, f64, infer, static_shape, tensor, type_of
from plica.rewrite.check.operator import call_in_f64
from plica.rewrite.check.slope import Slope

FOLLOWERS: Final = ("tanh", "sin", "square", "reshape", "own product", "nn.softplus", "half sum",
                    "transpose", "matmul", "concat")  # fmt: skip
"""What may be applied to the result of the operator under test."""

MAX_RELATIVE_SHIFT: Final = 0.01
"""The largest relative change of an argument by the sum that it is linked to."""


@attrs.frozen
class GradientCase:
    """The parts of a program, which shrinking removes."""

    ops: tuple[str, ...]  # the operators under test: one or two
    seed: str
    followers: tuple[str, ...]
    through_sine: bool  # whether float arguments are sines of the parameters
    linked: bool  # whether the arguments of the second operator depend on the result of the first
    max_size: int = 3  # the largest free size

    def calls(self) -> list[DrawnCall] | None:
        """A drawn call of each operator, or None if one cannot be drawn."""
        calls = []
        for op in self.ops:
            call = drawn(_operator(op), Random(f"{self.seed} {op}"), self.max_size)
            if call is None or _call_operator(call, _parameters(call)) is None:
                return None
            calls.append(call)
        return calls

    def slope(self) -> Slope | None:
        """The program, a point and directions, or None if nothing is differentiable."""
        if (calls := self.calls()) is None:
            return None
        random = np.random.default_rng(Random(f"{self.seed} ways").randrange(1 << 32))
        params: list[Var] = []
        points: list[Array] = []
        total: Expr | None = None
        for call in calls:
            call_params = _parameters(call, len(params))
            params += call_params
            term, call_points = self._sum(call, call_params, total, random)
            points += call_points
            if term is None:
                return None
            total = term if total is None else total + term
        assert total is not None
        whole = infer(main_module(Function((), (), tuple(params), None, total)))
        floats = tuple([at for at, point in enumerate(points) if point.dtype == np.float64])
        directions = [np.asarray(random.uniform(-1, 1, point.shape)) for point in points]
        return Slope(whole, points, directions, floats) if floats else None

    def _sum(
        self, call: DrawnCall, params: Sequence[Var], first: Expr | None,
        random: np.random.Generator,
    ) -> tuple[Expr | None, list[Array]]:  # fmt: skip
        """The weighted sum of the results of a call, None if it has no slope, and the point; the
        `first` sum scales the arguments of a linked case."""
        args: list[Expr] = list(params)
        points = list(call.args)
        for at, drawn_arg in enumerate(call.args):
            if drawn_arg.dtype == np.float64:
                if self.through_sine:
                    args[at], points[at] = _as_sine(params[at], drawn_arg)
                if self.linked and first is not None:
                    shift = sin(first) * const(np.float64(MAX_RELATIVE_SHIFT))
                    args[at] = args[at] * (shift + const(np.float64(1.0)))
        result = _call_operator(call, tuple(args))
        total: Expr | None = None
        for value in [] if result is None else _differentiable(result):
            for follower in self.followers:
                value = _follow(value, follower)
            of = type_of(value)
            assert isinstance(of, TensorType)
            term = sum_(value * const(random.uniform(0.5, 1.5, static_shape(of))))
            total = term if total is None else total + term
        return total, points

    def smaller(self) -> list[GradientCase]:
        """The cases with one part removed."""
        alone = [attrs.evolve(self, ops=(op,)) for op in self.ops] if len(self.ops) > 1 else []
        fewer = [attrs.evolve(self, followers=self.followers[:at] + self.followers[at + 1 :])
                 for at in range(len(self.followers))]  # fmt: skip
        plain = [attrs.evolve(self, through_sine=False)] if self.through_sine else []
        apart = [attrs.evolve(self, linked=False)] if self.linked else []
        narrow = [attrs.evolve(self, max_size=self.max_size - 1)] if self.max_size > 1 else []
        return [*alone, *fewer, *plain, *apart, *narrow]


def gradient_case(seed: int, number: int, ops: tuple[str, ...]) -> GradientCase:
    """The case of a number, with the next two operators of the round robin."""
    random = Random(f"{seed}/{number} gradient")
    followers = tuple(random.choices(FOLLOWERS, k=random.choice((0, 1, 1, 2))))
    pair = dict.fromkeys([_round_robin(seed, place, ops) for place in (2 * number, 2 * number + 1)])
    through_sine, linked = (random.random() < 0.4 for _ in range(2))
    return GradientCase(tuple(pair), f"{seed}/{number}", followers, through_sine, linked)


def _round_robin(seed: int, place: int, ops: tuple[str, ...]) -> str:
    """The operator at a position of consecutive random permutations of all."""
    round_, at = divmod(place, len(ops))
    return Random(f"{seed}/{round_} turn").sample(ops, len(ops))[at]


def operators_of(of: Module) -> list[str]:
    """The operators in a program."""
    from plica.core.fold import post_order

    return [node.op for node in post_order(of.main_function().body) if isinstance(node, Apply)]


def _parameters(call: DrawnCall, first: int = 0) -> tuple[Var, ...]:
    """Parameters of the types of a call's arguments, numbered from `first` on."""
    types = [tensor(arg.shape, dtype(arg.dtype)) for arg in call.args]
    return tuple([Var(Name("x", first + at), of) for at, of in enumerate(types)])


def _call_operator(call: DrawnCall, args: tuple[Expr, ...]) -> Expr | None:
    """The call on other arguments, or None if they do not fit."""
    record = _operator(call.op)
    made: Any = record(args, **call.attrs) if record.variadic else record(*args, **call.attrs)
    if not isinstance(made, Apply):
        return None
    types = [type_of(arg) for arg in args]
    return None if isinstance(record.relation(dict(made.attrs), *types), Mismatch) else made


def _differentiable(of: Expr) -> list[Expr]:
    """The results that have a derivative."""
    type = type_of(of)
    results = [(of, type)]
    if isinstance(type, TupleType):
        results = [(Project(of, at), item) for at, item in enumerate(type.items)]
    return [
        value for value, of_value in results
        if isinstance(of_value, TensorType) and of_value.dtype is f64
        and static_shape(of_value) is not None
    ]  # fmt: skip


def _as_sine(param: Var, value: Array) -> tuple[Expr, Array]:
    """An argument as `amplitude * sin(param)`, and the parameter at which it is `value`."""
    amplitude = float(np.abs(value).max(initial=1.0)) * 1.25
    return sin(param) * const(np.float64(amplitude)), np.arcsin(value / amplitude)


def _follow(value: Expr, follower: str) -> Expr:
    """The value of a follower applied to a tensor."""
    of = type_of(value)
    assert isinstance(of, TensorType)
    shape = static_shape(of)
    assert shape is not None
    reshape, transpose, matmul, concat = map(
        _operator, ("reshape", "transpose", "matmul", "concat")
    )
    match follower:
        case "reshape":
            return reshape(value, shape=(-1,))
        case "own product":
            return value * value + value
        case "half sum":
            return sum_(value, axis=(0,)) * const(np.float64(0.5)) if shape else value
        case "transpose":
            return transpose(value, axes=tuple(range(len(shape)))[::-1])
        case "matmul":
            flat = reshape(value, shape=(shape[0], -1)) if shape and 0 not in shape else None
            return value if flat is None else matmul(flat, transpose(flat, axes=(1, 0)))
        case "concat":
            return concat((value, value * const(np.float64(0.5))), axis=0) if shape else value
        case _:
            return _operator(follower)(value)


def _operator(name: str) -> Operator:
    operator = find(name)
    assert operator is not None
    return operator


# --- differentiable operators, and calls of them -----------------------------------------------


NOT_DERIVED: Final = frozenset({
    "argmax", "argmin", "argsort", "argwhere", "iota_like", "nn.bitserial_conv",
    "nn.bitserial_dense", "stop_gradient", "unique", "unravel_index",
})  # fmt: skip
"""Made of others and of whole numbers, or not to be differentiated on purpose, or of a size that
the numbers themselves decide."""


def differentiable() -> tuple[str, ...]:
    """The operators with a gradient, directly or through their decomposition."""
    return tuple([name for name in names() if _is_derived(name)])


def _is_derived(name: str) -> bool:
    record = find(name)
    assert record is not None
    made = record.gradient is not None or record.decompose is not None
    return bool(record.inputs) and made and name not in NOT_DERIVED


def drawn(op: Operator, random: Random, most: int = 3) -> DrawnCall | None:
    """A call of an operator, or None if none was found."""
    if op.name in ROWS:
        return drawn_call(op.name, random, most)
    found = call_in_f64(op, random.choice)
    return None if found is None else DrawnCall(op.name, *found)
