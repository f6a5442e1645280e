"""Instances: from the left side of a rule alone, well-typed terms that it matches.

Holes become variables (or constants) of chosen types, attribute holes chosen values; what the type
relations of the operators refuse is chosen again.  Sizes include 0 and 1, shapes broadcast, data
include negative and extreme numbers, zeros of both signs, nan and inf.

All choice goes through one function, `choose`, that picks from a sequence ordered from simple to
strange: hypothesis's draws in a check (so failures shrink), a seeded generator when a rule is made.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import numpy as np

from plica.core.diagnostic import IllTyped
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term, rebuild
from plica.ir.dim import known
from plica.ir.dtype import DTYPES, DType, bool_, f32, i64
from plica.ir.graph import Apply, Attrs, Expr, Literal, Var, const
from plica.ir.infer import type_of
from plica.ir.operator import Attribute, Mismatch, Operator, find
from plica.ir.type import TensorType, Type, tensor
from plica.rewrite.instantiate import settled
from plica.rewrite.pattern import ANYTHING, Constraint, Hole, Rest, alternatives

T = TypeVar("T")
Choose: TypeAlias = Callable[[Sequence[Any]], Any]  # Any: whatever the sequence holds
Shape: TypeAlias = tuple[int, ...]
TRIES: Final = 40
"""How often types and attributes are chosen for one operator before the instance is given up."""
REPEATS: Final = 3
"""How often the same choice may come again in a row."""
SIZES: Final = (1, 2, 3, 0)
WORDS: Final = (
    "constant", "edge", "reflect", "symmetric", "wrap", "raise", "clip", "none", "tanh",
)  # fmt: skip
"""What attributes that are a choice of words may be."""


@attrs.frozen
class Instance:
    """A term the left side matches, and the arrays for its variables."""

    term: Expr
    inputs: tuple[tuple[Var, np.ndarray[Any, Any]], ...]


def instance(left: Term, choose: Choose, *, data: bool = True) -> Instance | None:
    """An instance of a left side, None where no well-typed one was found."""
    making = _Making(choose)
    term = making.fill(choose(alternatives(left)))
    if term is None or not _is_typed(term):
        return None
    inputs = tuple((var, array(var.type, choose)) for var in making.variables) if data else ()
    return Instance(term, inputs)


def _is_typed(term: Expr) -> bool:
    """Whether a term has a type; what no operator speaks of (the branches of an `If`) may not."""
    if isinstance(term, Apply):
        return True  # its relation was asked
    try:
        type_of(term)
    except IllTyped:
        return False
    return True


class _Making:
    """One instance in the making."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.filling: dict[str, Any] = {}  # Any: terms, attribute values, tuples of arguments
        self.variables: list[Var] = []

    def fill(self, pattern: Term) -> Expr | None:
        """The pattern with its holes filled, children first."""
        made: dict[Term, Any] = {}
        for node in post_order(pattern):
            if isinstance(node, Apply):
                term = self._operator(node, made)
                if term is None:
                    return None
                made[node] = term
            elif not type(node).hole:
                for kid in node._children:
                    if isinstance(kid, Hole):
                        made[kid] = self._alone(kid)
                made[node] = rebuild(node, tuple(made.get(kid, kid) for kid in node._children))
        result = made[pattern]
        return result if isinstance(result, Expr) else None

    def _operator(self, node: Apply, made: dict[Term, Any]) -> Expr | None:
        operator = find(node.op)
        assert operator is not None
        last, repeats = None, 0
        for _ in range(TRIES):
            trial: dict[str, Any] = {}
            context = [type_of(each) for each in self._beside(node, made)]
            args: list[Expr] = []
            for arg in node.args:
                for each in self._argument(arg, made, trial, context):
                    args.append(each)
                    if not isinstance(each, Literal):
                        context.append(type_of(each))
            values = self._attributes(operator, node, trial, context)
            if values is None:
                return None
            term = settled(Apply(node.op, tuple(args), values))
            # The same again and again: all choices are used up.
            last, repeats = term, repeats + 1 if term is last else 0
            if repeats == REPEATS:
                return None
            if any(isinstance(arg, Literal) for arg in term.args):
                continue
            types = [type_of(arg) for arg in term.args]
            if not isinstance(operator.relation(dict(values), *types), Mismatch):
                self._keep(trial)
                return term
        return None

    def _beside(self, node: Apply, made: dict[Term, Any]) -> list[Expr]:
        """The arguments of an operator whose types are known already."""
        found = []
        for arg in node.args:
            value = self.filling.get(arg.name) if isinstance(arg, Hole) else made.get(arg)
            if isinstance(value, Expr) and not isinstance(value, Literal):
                found.append(value)
        return found

    def _argument(
        self, arg: Expr, made: dict[Term, Any], trial: dict[str, Any], context: Sequence[Type]
    ) -> tuple[Expr, ...]:
        if isinstance(arg, Rest):
            if arg.name not in self.filling and arg.name not in trial:
                count = self.choose((1, 2, 3))
                trial[arg.name] = tuple(
                    self._expression(f"{arg.name}{i}", ANYTHING, context) for i in range(count)
                )
            rest: tuple[Expr, ...] = self.filling.get(arg.name) or trial[arg.name]
            return rest
        if isinstance(arg, Hole):
            if arg.name in self.filling:
                return (self.filling[arg.name],)
            if arg.name not in trial:
                trial[arg.name] = self._expression(arg.name, arg.constraint, context)
            return (trial[arg.name],)
        return (made.get(arg, arg),)

    def _alone(self, hole: Hole) -> Any:
        """What fills a hole that no operator says anything of."""
        if hole.name not in self.filling:
            self._keep({hole.name: self._expression(hole.name, hole.constraint, ())})
        return self.filling[hole.name]

    def _keep(self, trial: dict[str, Any]) -> None:
        self.filling |= trial
        for value in trial.values():
            found = value if isinstance(value, tuple) else (value,)
            self.variables.extend(each for each in found if isinstance(each, Var))

    def _expression(self, name: str, constraint: Constraint, context: Sequence[Type]) -> Expr:
        # Where nothing is beside it yet, it may meet later what was made before.
        near = context or [var.type for var in self.variables if var.type is not None]
        of = self._type(constraint, [each for each in near if isinstance(each, TensorType)])
        var = Var(Name(name), of)
        demand = constraint.when
        if not constraint.constant and (demand is None or demand(var)):
            return var
        for _ in range(4):  # what refuses every variable may take some constant
            made = const(array(of, self.choose), of.dtype)
            if demand is None or demand(made):
                break
        return made

    def _type(self, constraint: Constraint, near: list[TensorType]) -> TensorType:
        allowed = constraint.dtypes or DTYPES
        common = [each.dtype for each in near if each.dtype in allowed]
        usual = [each for each in (f32, i64, bool_) if each in allowed]
        alike = common and self.choose((True, True, True, True, True, True, True, False))
        of = self.choose(common if alike else [*usual, *allowed])
        return tensor(self._shape(constraint, [_sizes(each) for each in near]), of)

    def _shape(self, constraint: Constraint, near: list[Shape]) -> Shape:
        if constraint.shape is not None:
            return tuple(self.choose(SIZES) if n is None else n for n in constraint.shape)
        sizes: Sequence[int] = SIZES
        if constraint.ranks is not None:
            sizes = (*(n for shape in near for n in shape), *SIZES)  # a vector along some axis
            near = [shape for shape in near if len(shape) in constraint.ranks]
        if near and self.choose((True, True, True, False)):
            shape: Shape = self.choose(near)
            match self.choose(("same", "ones", "short", "turned")):
                case "ones":
                    return tuple(self.choose((n, 1)) for n in shape)
                case "short" if constraint.ranks is None:
                    return shape[self.choose(range(len(shape) + 1)) :]
                case "turned" if len(shape) <= 4:
                    turned: Shape = self.choose(tuple(itertools.permutations(shape)))
                    return turned
                case _:
                    return shape
        rank = self.choose(range(5) if constraint.ranks is None else constraint.ranks)
        return tuple(self.choose(sizes) for _ in range(rank))

    def _attributes(
        self, operator: Operator, node: Apply, trial: dict[str, Any], context: Sequence[Type]
    ) -> Attrs | None:
        """The attributes with their holes filled, None where a hole can't be."""
        specs = {each.name: each for each in operator.attributes}
        values = []
        length: int | None = None
        for name, value in node.attrs:
            if not isinstance(value, Hole):
                values.append((name, value))
                continue
            if value.name not in self.filling and value.name not in trial:
                options = attribute_values(specs[name], context)
                if value.constraint.when is not None:
                    options = tuple(filter(value.constraint.when, options))
                if not options:
                    return None
                trial[value.name] = found = self.choose(_alike(options, length))
                length = len(found) if isinstance(found, tuple) else length
            values.append((name, self.filling.get(value.name, trial.get(value.name))))
        return tuple(values)


def _alike(options: Sequence[Any], length: int | None) -> Sequence[Any]:
    """The options of that length: sequences of one operator mostly have one item for each axis.

    As long as none is chosen, single values are as likely as all sequences together.
    """
    single = [each for each in options if not isinstance(each, tuple)]
    if length is None:
        several = len(options) - len(single)
        return single * (several // len(single)) + [*options] if single else options
    fitting = [each for each in options if not isinstance(each, tuple) or len(each) == length]
    return fitting or options


def attribute_values(spec: Attribute, context: Iterable[Type]) -> tuple[Any, ...]:
    """Values the attribute's reader accepts, from a pool that suits the arguments' shapes."""
    shapes = dict.fromkeys(_sizes(each) for each in context if isinstance(each, TensorType))
    return _accepted(spec.read, tuple(shapes))


@functools.lru_cache(maxsize=4096)
def _accepted(read: Callable[[Any], Any], shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
    for pool in (_pool(shapes), WORDS):  # an index reads a word as a symbolic dim: words come last
        found = [value for raw in pool if not isinstance(value := _read(read, raw), Mismatch)]
        if found:
            return tuple(dict.fromkeys(found))
    return ()


@functools.lru_cache(maxsize=1 << 16, typed=True)  # 1 is not True
def _read(read: Callable[[Any], Any], raw: Any) -> Any:
    return read(raw)


def _pool(shapes: tuple[Shape, ...]) -> list[Any]:
    rank = max(map(len, shapes), default=0)
    pool: list[Any] = [0, 1, -1, 2, -2, 3, True, False, None, 0.5, 2.0, -1.0, *DTYPES]
    for shape in shapes:
        pool.extend([shape, (-1,), (1, *shape), (*shape, 1), shape[::-1]])
        if len(shape) <= 4:
            pool.extend(itertools.permutations(range(len(shape))))
        volume = int(np.prod(shape, dtype=np.int64))
        pool.append((volume,))
        pool.extend((k, volume // k) for k in (1, 2, 3) if volume % k == 0)
        pool.extend(shape[:i] + shape[i + 1 :] for i in range(len(shape)))
    pool.extend(itertools.product((0, 1), repeat=rank))
    pool.extend((i,) for i in range(-rank, rank))
    pool.extend((i, j) for i in range(rank) for j in range(i + 1, rank))
    pool.extend(tuple((a, b) for _ in range(rank)) for a in (0, 1) for b in (0, 1))
    inner = [((0, 0), (0, 0), *[pair] * (rank - 2)) for pair in ((1, 1), (0, 1), (2, 0))]
    pool.extend(inner if rank > 2 else ())  # around what a window slides over
    return pool


def array(of: Type | None, choose: Choose) -> np.ndarray[Any, Any]:
    """An array of a type: a few interesting values repeated, or a ramp that tells places apart."""
    assert isinstance(of, TensorType)
    shape = _sizes(of)
    count = int(np.prod(shape, dtype=np.int64))
    values = [choose(numbers(of.dtype)) for _ in range(choose((1, 2, 3, 4)))]
    flat = np.resize(np.array(values, of.dtype.numpy), count)
    if of.dtype is not bool_ and choose((False, True)):
        with np.errstate(over="ignore", invalid="ignore"):
            flat = flat + np.arange(count).astype(of.dtype.numpy)
    return flat.astype(of.dtype.numpy).reshape(shape)


def numbers(of: DType) -> Sequence[Any]:
    """Numbers of a dtype, the simple ones first."""
    if of is bool_:
        return (False, True)
    if of.is_float:
        big = 3e38 if of.bits >= 32 else 3e4
        small = 1e-40 if of.bits >= 32 else 1e-6
        inf, nan = float("inf"), float("nan")
        plain = (0.0, 1.0, -0.0, -1.0, 2.0, 0.5, 0.0, -0.0, 3.0, -2.0, 1.25, -0.75, 0.1)
        return (*plain, inf, -inf, nan, small, -small, 100.0, big, -big)
    low, high = of.bounds
    near = (0, 1, 2, 3, 5) + ((-1, -2, -3) if low < 0 else ())
    return (*near, high, low, high - 1, low + 1)


def _sizes(of: TensorType) -> Shape:
    return tuple(known(n) or 0 for n in of.shape)
