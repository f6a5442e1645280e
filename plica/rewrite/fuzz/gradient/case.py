"""Cases: a program of one number that goes through differentiable operators, and a point of it.

    arguments -- sometimes through a sine --> an operator --> a few others --> a weighted sum

There are two such sums in a program, added; where they are linked the first moves the arguments of
the second.  Each case is made from the seed and its own number.  Operators come in turn, two a
program, in an order that is drawn anew for each round: after n programs of k operators each was in
2 * n // k of them, or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import attrs
import numpy as np

from plica.core import Name
from plica.ir.generate.draw import Array, DrawnCall
from plica.ir.graph.expression import Apply, Expr, Function, Project, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.graph.operator import Mismatch, Operator, find
from plica.ir.op.elementwise import sin
from plica.ir.op.reduction import sum_
from plica.ir.type import TensorType, TupleType, dtype, f64, infer, static_shape, tensor, type_of
from plica.rewrite.check.slope import Slope
from plica.rewrite.fuzz.gradient.table import drawn

FOLLOWERS: Final = ("tanh", "sin", "square", "reshape", "own product", "nn.softplus", "half sum",
                    "transpose", "matmul", "concat")  # fmt: skip
"""What may come after the operator."""


MAX_RELATIVE_SHIFT: Final = 0.01
"""By how much of themselves arguments are moved by what comes before, at most."""


@attrs.frozen
class GradientCase:
    """What a program is made of: shrinking takes parts away."""

    ops: tuple[str, ...]
    """The operators whose turn it is: one or two."""
    seed: str
    followers: tuple[str, ...]
    before: bool
    """Whether floats go through a sine before the operators."""
    linked: bool
    """Whether what an operator is given is moved by what the one before gives."""
    most: int = 3
    """The largest size that is free."""

    def calls(self) -> list[DrawnCall] | None:
        """The calls of the operators; None where one of them was not found."""
        found = []
        for op in self.ops:
            call = drawn(_operator(op), Random(f"{self.seed} {op}"), self.most)
            if call is None or _applied(call, _parameters(call)) is None:
                return None
            found.append(call)
        return found

    def slope(self) -> Slope | None:
        """The program, its point and a direction; None where there is none."""
        if (calls := self.calls()) is None:
            return None
        random = np.random.default_rng(Random(f"{self.seed} ways").randrange(1 << 32))
        params: list[Var] = []
        points: list[Array] = []
        total: Expr | None = None
        for call in calls:
            own = _parameters(call, len(params))
            params += own
            term, at = self._sum(call, own, total, random)
            points += at
            if term is None:
                return None
            total = term if total is None else total + term
        assert total is not None
        main = Var(Name("main"), None)
        whole = infer(module({main: Function((), (), tuple(params), None, total)}, main))
        chosen = tuple([at for at, each in enumerate(points) if each.dtype == np.float64])
        ways = [np.asarray(random.uniform(-1, 1, each.shape)) for each in points]
        return Slope(whole, points, ways, chosen) if chosen else None

    def _sum(
        self, call: DrawnCall, params: Sequence[Var], past: Expr | None, random: np.random.Generator
    ) -> tuple[Expr | None, list[Array]]:
        """The weighted sum of what an operator gives, and the point; None where it has no slope."""
        given: list[Expr] = list(params)
        points = list(call.args)
        for at, each in enumerate(call.args):
            if each.dtype == np.float64:
                if self.before:
                    given[at], points[at] = _through_sine(params[at], each)
                if self.linked and past is not None:
                    moved = sin(past) * const(np.float64(MAX_RELATIVE_SHIFT)) + const(
                        np.float64(1.0)
                    )
                    given[at] = given[at] * moved
        applied = _applied(call, tuple(given))
        total: Expr | None = None
        for value in [] if applied is None else _floats(applied):
            for follower in self.followers:
                value = _followed(value, follower)
            of = type_of(value)
            assert isinstance(of, TensorType)
            term = sum_(value * const(random.uniform(0.5, 1.5, static_shape(of))))
            total = term if total is None else total + term
        return total, points

    def smaller(self) -> list[GradientCase]:
        """The case with a part taken away."""
        alone = [attrs.evolve(self, ops=(op,)) for op in self.ops] if len(self.ops) > 1 else []
        fewer = [attrs.evolve(self, followers=self.followers[:at] + self.followers[at + 1 :])
                 for at in range(len(self.followers))]  # fmt: skip
        plainer = [attrs.evolve(self, before=False)] if self.before else []
        apart = [attrs.evolve(self, linked=False)] if self.linked else []
        lesser = [attrs.evolve(self, most=self.most - 1)] if self.most > 1 else []
        return [*alone, *fewer, *plainer, *apart, *lesser]


def gradient_case(seed: int, number: int, ops: tuple[str, ...]) -> GradientCase:
    """The case of a number: operators come in turn, two of them in each."""
    random = Random(f"{seed}/{number} gradient")
    followers = tuple(random.choices(FOLLOWERS, k=random.choice((0, 1, 1, 2))))
    both = dict.fromkeys([_in_turn(seed, place, ops) for place in (2 * number, 2 * number + 1)])
    before, linked = (random.random() < 0.4 for _ in range(2))
    return GradientCase(tuple(both), f"{seed}/{number}", followers, before, linked)


def _in_turn(seed: int, place: int, ops: tuple[str, ...]) -> str:
    """The operator at a place of rounds of all, each in an order of its own."""
    turn, at = divmod(place, len(ops))
    return Random(f"{seed}/{turn} turn").sample(ops, len(ops))[at]


def operators_of(of: Module) -> list[str]:
    """The operators in a program."""
    from plica.core.fold import post_order

    return [node.op for node in post_order(of.main_function().body) if isinstance(node, Apply)]


def _parameters(call: DrawnCall, first: int = 0) -> tuple[Var, ...]:
    """Parameters of the types of what an operator is given, numbered from one on."""
    types = [tensor(each.shape, dtype(each.dtype)) for each in call.args]
    return tuple([Var(Name("x", first + at), each) for at, each in enumerate(types)])


def _applied(call: DrawnCall, args: tuple[Expr, ...]) -> Expr | None:
    record = _operator(call.op)
    made: Any = record(args, **call.attrs) if record.variadic else record(*args, **call.attrs)
    if not isinstance(made, Apply):
        return None
    types = [type_of(each) for each in args]
    return None if isinstance(record.relation(dict(made.attrs), *types), Mismatch) else made


def _floats(of: Expr) -> list[Expr]:
    """The results that have a derivative."""
    gives = type_of(of)
    several = [(of, gives)]
    if isinstance(gives, TupleType):
        several = [(Project(of, at), each) for at, each in enumerate(gives.items)]
    return [
        value for value, each in several
        if isinstance(each, TensorType) and each.dtype is f64 and static_shape(each) is not None
    ]  # fmt: skip


def _through_sine(param: Var, value: Array) -> tuple[Expr, Array]:
    """An argument as `2 * sin(p)` of a parameter (or 3, where numbers are larger), and the point
    at which it is what was drawn."""
    reach = float(np.abs(value).max(initial=1.0)) * 1.25
    return sin(param) * const(np.float64(reach)), np.arcsin(value / reach)


def _followed(value: Expr, follower: str) -> Expr:
    """What one more operator makes of a tensor."""
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
    found = find(name)
    assert found is not None
    return found
