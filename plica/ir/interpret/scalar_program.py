"""Scalar programs: terms compiled to linear code, so that loops need not walk them again.

>>> from plica.ir.type.dtype import i64
>>> from plica.ir.loop.scalar import Lit
>>> run_line(line((Lit(6, i64) * 7,), {}))
[42]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final, TypeAlias

import attrs

from plica.core import CompilerBug, EvaluationError, Term
from plica.ir.interpret import number
from plica.ir.loop import scalar as sc
from plica.ir.loop.summation import spelled

_UNSET: Final = object()
_DEEPEST: Final = 50

# Any: registers hold numbers of every dtype; the environment holds numbers and storage.
Registers: TypeAlias = list[Any]
Env: TypeAlias = dict[Term, Any]
# A register, what fills it, and for lazy nodes the lines of its sides with their results.
Step: TypeAlias = "tuple[int, Callable[[Registers], Any], Sides | None]"


@attrs.frozen(eq=False)
class Sides:
    """The lines a lazy node enters if its first operand is true, and if it is false."""

    then: tuple[list[Step], int]
    orelse: tuple[list[Step], int]


@attrs.frozen(eq=False)
class Line:
    """Steps in order, the registers they begin with, and where the results are."""

    steps: list[Step]
    blank: Registers
    results: tuple[int, ...]
    plain: tuple[tuple[int, Callable[[Registers], Any]], ...] | None  # where nothing is lazy


def run_line(of: Line) -> list[Any]:
    """The numbers a line computes."""
    registers = of.blank.copy()
    if of.plain is not None:
        for target, fill in of.plain:
            registers[target] = fill(registers)
        return [registers[result] for result in of.results]
    stack: list[tuple[list[Step], int, int, int]] = []
    steps, at = of.steps, 0
    while True:
        if at == len(steps):
            if not stack:
                return [registers[result] for result in of.results]
            steps, at, target, source = stack.pop()
            registers[target] = registers[source]
            continue
        target, fill, sides = steps[at]
        at += 1
        if registers[target] is not _UNSET:
            continue
        if sides is None:
            registers[target] = fill(registers)
        else:
            side, source = sides.then if fill(registers) else sides.orelse
            stack.append((steps, at, target, source))
            steps, at = side, 0


def line(scalars: Sequence[sc.Scalar], env: Env) -> Line:
    """The line of some scalars; variables and buffers are looked up in `env` when it runs."""
    return _Layout(env, 0).line(tuple(scalars))


class _Layout:
    """One line being laid out: a register for each node, and the lines of lazy sides."""

    def __init__(self, env: Env, nesting: int) -> None:
        self.env = env
        self.nesting = nesting
        self.register: dict[Term, int] = {}
        self.blank: Registers = []
        self.sides: dict[Term, list[Step]] = {}
        self.waiting: list[Term] = []

    def line(self, scalars: tuple[sc.Scalar, ...]) -> Line:
        steps = self.steps(scalars)
        while self.waiting:
            root = self.waiting.pop()
            self.sides[root].extend(self.steps((root,)))
        plain = None
        if all(sides is None for _, _, sides in steps):
            plain = tuple([(target, fill) for target, fill, _ in steps])
        return Line(steps, self.blank, tuple([self.register[scalar] for scalar in scalars]), plain)

    def steps(self, roots: Sequence[Term]) -> list[Step]:
        """A step for every node the roots need in any case, operands first."""
        steps: list[Step] = []
        seen: set[Term] = set()
        stack: list[Any] = list(reversed(roots))
        while stack:
            node = stack.pop()
            if node.__class__ is tuple:
                if (step := self.step(node[0])) is not None:
                    steps.append(step)
            elif node not in seen:
                seen.add(node)
                stack.append((node,))
                stack.extend(reversed(_operands(node)))
        return steps

    def at(self, node: Term) -> int:
        """The register of a node; a literal's is filled from the start."""
        if (known := self.register.get(node)) is None:
            known = self.register[node] = len(self.blank)
            self.blank.append(node.value if isinstance(node, sc.Lit) else _UNSET)
        return known

    def side(self, root: Term) -> tuple[list[Step], int]:
        """The line of a lazy side; it is laid out later, once for all who share it."""
        if root not in self.sides:
            self.sides[root] = []
            self.waiting.append(root)
        return self.sides[root], self.at(root)

    def step(self, node: sc.Scalar) -> Step | None:
        """What fills the register of a node whose operands are filled; None for a literal."""
        target, env = self.at(node), self.env
        match node:
            case sc.Lit():
                return None
            case sc.ScalarVar():
                return target, lambda _: env[node], None
            case sc.Load(buffer, indices):
                places = [self.at(index) for index in indices]
                if len(places) == 1:
                    (only,) = places
                    return target, lambda r: env[buffer].load((r[only],)), None
                return target, lambda r: env[buffer].load([r[place] for place in places]), None
            case sc.And(left, right):
                first, false = self.at(left), self.constant(False)
                return target, lambda r: r[first], Sides(self.side(right), ([], false))
            case sc.Or(left, right):
                first, true = self.at(left), self.constant(True)
                return target, lambda r: r[first], Sides(([], true), self.side(right))
            case sc.Select(condition, then, orelse):
                first = self.at(condition)
                return target, lambda r: r[first], Sides(self.side(then), self.side(orelse))
            case sc.Not(value):
                first = self.at(value)
                return target, lambda r: not r[first], None
            case sc.Cast(value, dtype):
                first, convert = self.at(value), number.cast(sc.dtype_of(value), dtype)
                return target, lambda r: convert(r[first]), None
            case sc.Intrinsic(name, args):
                places = [self.at(arg) for arg in args]
                call = number.intrinsic(name, sc.dtype_of(args[0]))
                return target, lambda r: call(*[r[place] for place in places]), None
            case sc.Reduce():
                return target, _reduction(node, env, self.nesting + 1), None
            case sc.Ramp() | sc.Broadcast() | sc.Shuffle():
                message = "A vector stands where one number is wanted."
                raise EvaluationError.of("shape-conflict", message)
        one, two = node._children
        if not isinstance(one, sc.Scalar):
            raise CompilerBug(f"The loop interpreter cannot evaluate a {type(node).__name__}.")
        a, b, function = self.at(one), self.at(two), number.binary(type(node), sc.dtype_of(one))
        return target, lambda r: function(r[a], r[b]), None

    def constant(self, value: bool) -> int:
        self.blank.append(value)
        return len(self.blank) - 1


def _operands(node: Term) -> tuple[Term, ...]:
    """The nodes that must be computed before this one, whatever their values."""
    match node:
        case sc.Lit() | sc.ScalarVar() | sc.Reduce():
            return ()
        case sc.Load(_, indices):
            return indices
        case sc.And(left, _) | sc.Or(left, _):
            return (left,)
        case sc.Select(condition, _, _):
            return (condition,)
        case sc.Cast(value, _) | sc.Not(value):
            return (value,)
        case sc.Intrinsic(_, args):
            return args
        case _:
            return node._children


def _reduction(node: sc.Reduce, env: Env, nesting: int) -> Callable[[Registers], Any]:
    """A reduction: its body is a line of its own, run for each point of the box."""
    if nesting > _DEEPEST:  # the one place where running recurses
        message = "Reductions inside reductions are nested too deep to be interpreted."
        raise EvaluationError.of("unsupported", message, None, f"at most {_DEEPEST}")
    if node.runs:
        line = _Layout(env, nesting).line((spelled(node),))
        return lambda _: run_line(line)[0]
    dtype = sc.dtype_of(node.body)
    start, combine = number.identity(node.combiner, dtype), number.combine(node.combiner, dtype)
    extents, body = (
        _Layout(env, nesting).line(node.extents),
        _Layout(env, nesting).line((node.body,)),
    )

    def reduce(_: Registers) -> Any:
        hidden = [env.get(axis) for axis in node.axes]
        total = start
        for point in product(*[range(max(0, size)) for size in run_line(extents)]):
            env.update(zip(node.axes, point, strict=True))
            total = combine(total, run_line(body)[0])
        env.update(zip(node.axes, hidden, strict=True))
        return total

    return reduce
