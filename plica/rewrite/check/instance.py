"""Instances: from the left side of a rule alone, well-typed terms that it matches.

All choices go through one function, `choose`, that picks from a sequence ordered from simple to
exotic: hypothesis's draws in a check (so failures shrink), a seeded generator when a rule is built.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import numpy as np

from plica.core import IllTyped, Name, Term, free_vars, post_order, rebuild, substitute
from plica.core.extension import FAILURES
from plica.ir.graph import Mismatch, Operator, expression as ex, find
from plica.ir.type.dtype import DTYPES, bool_, f16, f32, f64, i32, i64
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, TupleType, Type, tensor
from plica.rewrite.binder import opened, scopes
from plica.rewrite.check.attribute import alike, attribute_values
from plica.rewrite.check.data import SEEDS, Choose, Shape, array, odd_array, seeded, sizes
from plica.rewrite.check.sample import flat
from plica.rewrite.instantiate import settled
from plica.rewrite.match import fits, match
from plica.rewrite.pattern import ANYTHING, Constraint, Hole, Outputs, Rest, alternatives
from plica.rewrite.recursive import unrolled

T = TypeVar("T")
MAX_TRIES: Final = 40
"""How often types and attributes are chosen for one operator before the instance is given up."""
MAX_TAPE_CHOICES: Final = 4
"""The number of choices read from the tape. In half of all instances one number of the tape seeds
the others, because an operator that refuses most choices would exhaust the tape and be left with
the simplest ones."""
MAX_REPEATS: Final = 3  # the maximum number of identical choices in a row
SIZES: Final = (1, 1, 2, 2, 3, 3, 4, 0)
EMPTY: Final = (1, 0, 2)
ODD_CHOICES: Final = (False,) * 7 + (True,)
"""Some instances are unusual in all respects: empty axes together with non-finite constants."""
SQUARE: Final = (0, 0, 0, 0, 2, 3)
"""In some instances all axes that are free have one size: what lines up wrongly still fits."""
FILLS_OF_CONSTANTS: Final = (None, None, None, "plain", "short", "even", "vast")
"""In some instances all constants have one kind of data, which isolates the claim."""
USUAL_DTYPES: Final = (f32, f32, f32, f32, f64, f16, i64, i32, bool_)
"""Dtypes that are tried more often than others: most is claimed of floats."""
LONG_AXES: Final = (5, 8, 17)
"""Longer axes, for which the order of summation matters; few, so that shapes stay small."""
LONG_VECTORS: Final = (33, 130, 257, 1025)
"""Lengths of vectors that are longer than any block of a sum."""
MAX_PAIRS: Final = 1 << 21
"""The maximum product of result and argument elements, to bound the cost of one instance."""
MAX_ELEMENTS: Final = 600  # elements of a shape with long axes


@attrs.frozen
class Instance:
    """A term the left side matches, its free variables, and the arrays for them."""

    term: ex.Expr
    inputs: tuple[tuple[ex.Var, np.ndarray[Any, Any]], ...]
    variables: tuple[ex.Var, ...]


def instance(
    left: Term,
    choose: Choose,
    *,
    data: bool = True,
    given: Mapping[str, Any] | None = None,
    rounds: bool = False,
) -> Instance | None:
    """An instance of a left side, or None if no well-typed one was found.

    `given` fills the holes of those names; a type stands for a variable of it. An instance that
    `rounds` has floats with two or three equal axes, so that the order of summation matters.
    """
    pattern = choose(alternatives(unrolled(left, choose)))
    if isinstance(pattern, Outputs):
        pattern = ex.Tuple(pattern.patterns)  # type: ignore[arg-type]  # patterns for expressions
    making = _Making(choose, pattern, rounds)
    making.give(given or {})
    try:
        term = making.part(pattern)
    except _GivenUp:
        return None
    if not isinstance(term, ex.Expr):
        return None
    free = free_vars(term)
    everything = [*making.variables, *post_order(term)]
    variables = tuple(v for v in dict.fromkeys(everything) if isinstance(v, ex.Var) and v in free)
    inputs = tuple((var, array(var.type, choose)) for var in variables) if data else ()
    if data and variables and choose((False,) * 7 + (True,)):
        term = _computed(left, term, choose(variables))
    return Instance(term, inputs, variables)


def _computed(left: Term, term: ex.Expr, var: ex.Var) -> ex.Expr:
    """The instance with an operator of a variable in its place, where the left side allows it:
    programs fill holes with both."""
    of = var.type
    name = "logical_not" if isinstance(of, TensorType) and of.dtype is bool_ else "absolute"
    operator = find(name)
    assert operator is not None
    if not isinstance(of, TensorType) or isinstance(operator.relation({}, of), Mismatch):
        return term
    expr = substitute(term, {var: ex.Apply(name, (var,), ())})
    try:
        return term if match(left, expr) is None else expr
    except FAILURES:  # of a predicate: the rule that asks it fails, and is told so
        return expr


class _GivenUp(Exception):
    """Raised inside where no well-typed filling was found."""


class _Making:
    """One instance in the making."""

    def __init__(self, choose: Choose, pattern: Term, rounds: bool = False) -> None:
        self.choose, self.rounds = choose, rounds
        self.odd = choose(ODD_CHOICES) and not rounds
        self.square = choose((2, 3) if rounds else SQUARE)
        self.fill: str | None = choose(FILLS_OF_CONSTANTS)
        self.seeds = choose((False, True))
        self.given: dict[str, Any] = {}  # Any: what somebody fills holes with
        self.filling: dict[str, Any] = {}  # Any: terms, attribute values, tuples of arguments
        self.variables: list[ex.Var] = []
        self.made: dict[Term, Any] = {}
        self.binders: list[ex.Var] = []  # those that fill holes
        (whole,), self.named = opened(pattern)
        self.scopes = {name: sorted(frozenset().union(*s)) for name, s in scopes(whole).items()}

    def give(self, given: Mapping[str, Any]) -> None:
        """Fill some holes beforehand; attributes are read as operators read them."""
        self.given = dict(given)
        self._keep({
            name: ex.Var(Name(name), value) if isinstance(value, Type) else value
            for name, value in given.items()
        })  # fmt: skip

    def part(self, node: Term) -> Any:
        """The instance of a part of the pattern; recursion over a pattern."""
        if isinstance(node, Hole):
            return self._alone(node)
        if node not in self.made:
            self.made[node] = self._part(node)
        return self.made[node]

    def _part(self, node: Term) -> Any:
        made: Any
        match node:
            case ex.Apply():
                for arg in node.args:
                    if not type(arg).hole:
                        self.part(arg)
                return self._operator(node, self.made)
            case ex.Let():
                made = self._let(node)
            case ex.If():
                if isinstance(node.condition, Hole) and node.condition.name not in self.filling:
                    name = node.condition.name
                    self._keep({name: ex.Var(Name(name), tensor((), bool_))})
                made = ex.If(*(self.part(child) for child in node._children))
            case ex.Function():
                near = [var.type for var in self.variables]
                made = self._function(node, [None] * len(node.params), near)
            case ex.Call(callee=ex.Function() as callee):
                args = tuple(self.part(arg) for arg in node.args)
                types = [_type_of(arg) for arg in args]
                if len(types) != len(callee.params):
                    raise _GivenUp
                made = ex.Call(self._function(callee, types, ()), args, node.types)
            case ex.Match():
                made = self._match(node)
            case _:
                if type(node).hole or not isinstance(node, ex.Expr):
                    return node
                made = rebuild(node, tuple(self.part(kid) for kid in node._children))
        if not isinstance(node, ex.Literal | ex.Var):
            _type_of(made)
        return made

    def _let(self, node: ex.Let) -> ex.Expr:
        var, value = node.var, node.value
        if isinstance(value, Hole) and value.name not in self.filling and isinstance(var, ex.Var):
            self._keep({value.name: ex.Var(Name(value.name), var.type)})
        bound = self.part(value)
        inner = self._bind(var, _type_of(bound), bound)
        return ex.Let(inner, bound, self.part(node.body))

    def _function(
        self, node: ex.Function, types: Sequence[Type | None], near: Sequence[Type | None]
    ) -> ex.Expr:
        known = [each for each in near if isinstance(each, TensorType)]
        params = []
        given: tuple[Any, ...] = node.params  # Any: in a pattern they may be holes
        for param, of in zip(given, types, strict=True):
            wanted = param.constraint if isinstance(param, Hole) else ANYTHING
            params.append(self._bind(param, of or self._type(wanted, known)))
        body = self.part(node.body)
        ret = node.ret
        if isinstance(ret, Hole):
            ret = self.filling[ret.name] = _type_of(body)
        return ex.Function(node.dims, node.types, tuple(params), ret, body, node.attrs)

    def _match(self, node: ex.Match) -> ex.Expr:
        value = node.value
        tuples = [each.pattern for each in node.clauses if isinstance(each.pattern, ex.PTuple)]
        if tuples and isinstance(value, Hole) and value.name not in self.filling:
            items = range(len(tuples[0].items))
            names = [f"{value.name}{i}" for i in items]
            exprs = tuple(self._expression(name, ANYTHING, ()) for name in names)
            self._keep({value.name: ex.Tuple(exprs)})
        scrutinee = self.part(value)
        of = _type_of(scrutinee)
        clauses = []
        for clause in node.clauses:
            pattern = self._pattern(clause.pattern, of)
            clauses.append(ex.Clause(pattern, self.part(clause.body)))
        return ex.Match(scrutinee, tuple(clauses), node.total)

    def _pattern(self, pattern: ex.Pattern, of: Type) -> ex.Pattern:
        match pattern:
            case ex.PVar(var):
                return ex.PVar(self._bind(var, of))
            case ex.PTuple(items) if isinstance(of, TupleType) and len(of.items) == len(items):
                return ex.PTuple(tuple(map(self._pattern, items, of.items)))
            case ex.PAny():
                return pattern
            case _:  # values of data types are not made
                raise _GivenUp

    def _bind(self, binder: Term, of: Type, *outside: ex.Expr) -> ex.Var:
        """The variable that a binder becomes, sometimes a namesake of one that is free outside."""
        if not isinstance(binder, Hole):
            assert isinstance(binder, ex.Var)
            return binder
        known = self.filling.get(binder.name)
        if known is None:
            spoken = frozenset().union(*map(free_vars, outside))
            like = [var for var in self.variables if var.type is of and var not in spoken]
            own = ex.Var(Name(binder.name), of)
            known = self.choose((own, own, own, *like)) if like else own
            self.filling[binder.name] = known
            self.binders.append(known)
        if not isinstance(known, ex.Var) or known.type is not of:
            raise _GivenUp
        return known

    def _operator(self, node: ex.Apply, made: dict[Term, Any]) -> ex.Expr:
        operator = find(node.op)
        assert operator is not None
        last, repeats = None, 0
        own = self.choose
        for number in range(MAX_TRIES):
            if number == MAX_TAPE_CHOICES and self.seeds:
                self.choose = seeded(own(SEEDS))
            trial: dict[str, Any] = {}
            context = [type_of(expr) for expr in self._beside(node, made)]
            args: list[ex.Expr] = []
            for arg in node.args:
                for expr in self._argument(arg, made, trial, context):
                    args.append(expr)
                    if not isinstance(expr, ex.Literal):
                        context.append(type_of(expr))
            values = self._attributes(operator, node, trial, context)
            if values is None:
                raise _GivenUp
            term = settled(ex.Apply(node.op, tuple(args), values))
            # The same again and again: all choices are used up.
            last, repeats = term, repeats + 1 if term is last else 0
            if repeats == MAX_REPEATS:
                raise _GivenUp
            if any(isinstance(arg, ex.Literal) for arg in term.args):
                continue
            types = [type_of(arg) for arg in term.args]
            result = operator.relation(dict(values), *types)
            if not isinstance(result, Mismatch) and _is_small(result, types):
                self._keep(trial)
                self.choose = own
                return term
        raise _GivenUp

    def _beside(self, node: ex.Apply, made: dict[Term, Any]) -> list[ex.Expr]:
        """The arguments of an operator whose types are known already."""
        found = []
        for arg in node.args:
            value = self.filling.get(arg.name) if isinstance(arg, Hole) else made.get(arg)
            if isinstance(value, ex.Expr) and not isinstance(value, ex.Literal):
                found.append(value)
        return found

    def _argument(
        self, arg: ex.Expr, made: dict[Term, Any], trial: dict[str, Any], context: Sequence[Type]
    ) -> tuple[ex.Expr, ...]:
        if isinstance(arg, Rest):
            if arg.name not in self.filling and arg.name not in trial:
                count = self.choose((1, 2, 3))
                trial[arg.name] = tuple(
                    self._expression(f"{arg.name}{i}", ANYTHING, context) for i in range(count)
                )
            rest: tuple[ex.Expr, ...] = self.filling.get(arg.name) or trial[arg.name]
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
            for each in value if isinstance(value, tuple) else (value,):
                inside = post_order(each) if isinstance(each, ex.Expr) else ()
                self.variables.extend(
                    v for v in inside if isinstance(v, ex.Var) and v not in self.binders
                )

    def _expression(self, name: str, constraint: Constraint, context: Sequence[Type]) -> ex.Expr:
        spoken = self._scoped(name, constraint) if not constraint.constant else None
        if spoken is not None:
            return spoken
        # Without neighbours yet, it may later have to match earlier choices.
        near = context or [var.type for var in self.variables if var.type is not None]
        of = self._type(constraint, [each for each in near if isinstance(each, TensorType)])
        var = ex.Var(Name(name), of)
        demand = constraint.when
        if not constraint.constant and (demand is None or demand(var)):
            return var
        for _ in range(4):  # what refuses every variable may take some constant
            constant = ex.const(self._constant(of), of.dtype)
            if demand is None or demand(constant):
                break
        return constant

    def _constant(self, of: TensorType) -> np.ndarray[Any, Any]:
        if self.odd:
            return odd_array(of, self.choose)
        if self.fill is None:
            return array(of, self.choose)
        count = math.prod(sizes(of))
        return flat(self.fill, of.dtype, count, self.choose(SEEDS)).reshape(sizes(of))

    def _scoped(self, name: str, constraint: Constraint) -> ex.Expr | None:
        """A term with a variable in whose scope a hole stands, or one of the same name."""
        if not self.binders and not self.named:
            return None
        keys = self.scopes.get(name, [])
        inside = [self.named.get(key) or self.filling.get(key) for key in keys]
        others = [var for var in self.binders if var not in inside]
        uses: list[ex.Expr] = []
        for var in (*inside, *others):
            if isinstance(var, ex.Var) and fits(var.type, constraint):
                of = var.type
                twice = isinstance(of, TensorType) and of.dtype is not bool_ and var in inside
                uses.extend([var, var + var] if twice else [var])
        if constraint.when is not None:
            uses = [use for use in uses if constraint.when(use)]
        wanted = uses and self.choose((False, True, True) if any(inside) else (False, False, True))
        expr: ex.Expr | None = self.choose(uses) if wanted else None
        return expr

    def _type(self, constraint: Constraint, near: list[TensorType]) -> TensorType:
        allowed = constraint.dtypes or DTYPES
        if self.rounds and f32 in allowed and f64 in allowed:
            allowed = (f32, f64)
        common = [tensor_type.dtype for tensor_type in near if tensor_type.dtype in allowed]
        usual = [dtype for dtype in USUAL_DTYPES if dtype in allowed]
        alike = common and self.choose((True, True, True, True, True, True, True, False))
        of = self.choose(common if alike else [*usual, *allowed])
        return tensor(self._shape(constraint, [sizes(tensor_type) for tensor_type in near]), of)

    def _shape(self, constraint: Constraint, near: list[Shape]) -> Shape:
        if constraint.shape is not None:
            return tuple(self.choose(SIZES) if n is None else n for n in constraint.shape)
        options: Sequence[int] = EMPTY if self.odd else SIZES
        if constraint.ranks is not None:
            options = (*(n for shape in near for n in shape), *SIZES)  # a vector along some axis
            near = [shape for shape in near if len(shape) in constraint.ranks]
        if near and self.choose((True, True, True, False)):
            like: Shape = self.choose(near)
            match self.choose(("same", "ones", "short", "turned")):
                case "ones":
                    return tuple(self.choose((n, 1)) for n in like)
                case "short" if constraint.ranks is None:
                    return like[self.choose((*range(1, len(like)), len(like))) :]
                case "turned" if len(like) <= 4:
                    turned: Shape = self.choose(tuple(itertools.permutations(like)))
                    return turned
                case _:
                    return like
        rank = self.choose(range(5) if constraint.ranks is None else constraint.ranks)
        if self.square and rank < 4:
            least = rank if constraint.ranks is not None else max(rank, 2)
            alike: Shape = (self.square,) * least
            return alike
        if rank > 1 and self.choose((False, False, False, True)):  # axes can be mixed up unseen
            equal: Shape = (self.choose((2, 3)),) * rank
            return equal
        shape: Shape = tuple(self.choose(options) for _ in range(rank))
        if rank > 1 and math.prod(shape) > MAX_ELEMENTS:
            return tuple(min(n, max(SIZES)) for n in shape)
        return self._lengthened(shape) if rank else shape

    def _lengthened(self, shape: Shape) -> Shape:
        """Sometimes one axis is longer, where that leaves the shape small."""
        if not self.choose((False,) * 7 + (True,)):
            return shape
        at = self.choose(range(len(shape)))
        size = self.choose(
            (*LONG_AXES, *LONG_AXES, *LONG_VECTORS) if len(shape) == 1 else LONG_AXES
        )
        longer = (*shape[:at], size, *shape[at + 1 :])
        return longer if len(shape) == 1 or math.prod(longer) <= MAX_ELEMENTS else shape

    def _attributes(
        self, operator: Operator, node: ex.Apply, trial: dict[str, Any], context: Sequence[Type]
    ) -> ex.Attrs | None:
        """The attributes with their holes filled, or None if one cannot be."""
        specs = {attribute.name: attribute for attribute in operator.attributes}
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
                trial[value.name] = found = self.choose(alike(options, length))
                length = len(found) if isinstance(found, tuple) else length
            elif value.name in self.given:
                found = specs[name].read(self.given.pop(value.name))
                if isinstance(found, Mismatch):
                    raise _GivenUp
                self.filling[value.name] = found
            values.append((name, self.filling.get(value.name, trial.get(value.name))))
        return tuple(values)


def _is_small(result: Type, args: Sequence[Type]) -> bool:
    """Whether the result, and the pairs of its elements with those of an argument, are few."""
    results = result.items if isinstance(result, TupleType) else (result,)
    volumes = [math.prod(sizes(each)) for each in results if isinstance(each, TensorType)]
    given = [math.prod(sizes(arg)) for arg in args if isinstance(arg, TensorType)]
    return max(volumes, default=0) * max(1, *given, 1) <= MAX_PAIRS


def _type_of(term: ex.Expr) -> Type:
    """The type of a term; what no operator speaks of (the branches of an `If`) may have none."""
    try:
        return type_of(term)
    except IllTyped:
        raise _GivenUp from None
