"""Fusing: operators that one kernel computes become one function, called where they stood.

    before:  nn.relu(nn.conv(x, w) + b)
    after:   (lambda x, weight, y: nn.relu(nn.conv(x, weight) + y))(x, w, b)    primitive=True

Scalar constants go inside, other constants are arguments. A single operator is not wrapped.
Let-bound values are not split: convert to dataflow form first.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2,), "f32")), Var(Name("main"), None)
>>> of = infer(module({main: Function((), (), (x,), None, (x + 1.0) * (x + 1.0))}, main))
>>> defuse(fuse(of)) is of, fuse(fuse(of)) is fuse(of)
(True, True)

Laws: `digest(defuse(fuse(m))) == digest(m)` if nothing in `m` is fused; `fuse(fuse(m))` is
`fuse(m)`; results are bit-equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import attrs

from plica.core import Name
from plica.ir.graph import Attrs, Call, Const, Expr, Function, Module, Var, attr
from plica.ir.op import find
from plica.ir.passes import form
from plica.ir.type import TensorType, TupleType, Type, infer, type_of
from plica.rewrite.fuse.chain import is_product
from plica.rewrite.fuse.decide import Decisions, Group, Verdict, decide, inside
from plica.rewrite.fuse.limit import DEFAULT_LIMITS, FusionLimits
from plica.rewrite.fuse.reading import count, operator, values_below, with_parts
from plica.rewrite.fuse.row import with_rows
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.rewrite.fuse.chain import with_chains

PRIMITIVE: Final[Attrs] = (("primitive", True),)


def is_primitive(node: Expr) -> bool:
    """Whether an expression is a function that one kernel computes."""
    return isinstance(node, Function) and bool(attr(node, "primitive"))


def fuse(module: Module, limits: FusionLimits = DEFAULT_LIMITS) -> Module:
    """The module with a primitive function for each group of two or more operators."""
    known = infer(module)

    def write(_: Var, function: Function) -> Function:
        if is_primitive(function):
            return function
        decisions = along_rows(function.body, limits)
        for join, is_wanted in ((with_chains, limits.chains), (with_gates, limits.gates)):
            if is_wanted is not None:
                decisions = join(decisions, lambda group, ask=is_wanted: ask(called(group)[0]))  # type: ignore[misc]  # a default binds what is asked
        return attrs.evolve(function, body=_written(function.body, decisions))

    return map_functions(known, write)


def along_rows(root: Expr, limits: FusionLimits) -> Decisions:
    """The decisions for an expression, with groups along the same rows merged."""
    columns = limits.columns
    asked = None if columns is None else (lambda group: columns(called(group)[0]))
    return with_rows(decide(root, limits), limits, asked)


def defuse(module: Module) -> Module:
    """The module with the body of each primitive function in the place of its call."""
    return map_functions(module, lambda _, function: attrs.evolve(function, body=_opened(function)))


def is_fused(module: Module) -> bool:
    """Whether fusing would change nothing."""
    return fuse(module) is infer(module)


form("fused", is_fused)


def _written(root: Expr, decisions: Decisions) -> Expr:
    groups = decisions.groups
    memo: dict[Expr, Expr] = {}
    for node in decisions.order:
        if node not in groups:
            here = inside(node)
            memo[node] = with_operands(node, tuple([memo[p] for p in here])) if here else node
        elif groups[node].sink is node:
            group = groups[node]
            if len(group.spots) > 1:
                function, args = called(group)
                memo[node] = Call(function, tuple([memo[part] for part in args]))
            else:
                memo[node] = with_parts(node, tuple([memo[part] for part in inside(node)]))
    return memo[root]


def called(group: Group) -> tuple[Function, tuple[Expr, ...]]:
    """A group as a function, and its arguments."""
    params: dict[Expr, Var] = {}
    labels: dict[str, int] = {}
    body: dict[Expr, Expr] = {}
    for node in reversed(group.spots):  # users came first
        args = []
        for number, part in enumerate(inside(node)):
            if part not in body and part not in params and not is_small(part):
                params[part] = labelled(node, number, labels, type_of(part))
            args.append(body.get(part) or params.get(part) or part)
        body[node] = with_parts(node, tuple(args))
    whole = body[group.sink]
    attrs = PRIMITIVE
    if group.stages:  # which values are stages of a row was decided here, once and for all
        place = {value: number for number, value in enumerate(values_below(whole))}
        attrs = (*attrs, ("stages", tuple([place[body[stage.sink]] for stage in group.stages])))
    inner = Function((), (), tuple(params.values()), type_of(group.sink), whole, attrs)
    return inner, tuple(params)


def is_small(part: Expr) -> bool:
    """Whether an argument is a number: a constant of one element."""
    return isinstance(part, Const) and prod(part.shape) == 1


def labelled(value: Expr, number: int, taken: dict[str, int], of: Type) -> Var:
    """A parameter for an argument, named as in the operator's record; `taken` counts the names."""
    record = find(operator(value))
    names = ("x",) if record is None or record.variadic else record.inputs
    label = names[min(number, len(names) - 1)] if names else "x"
    taken[label] = taken.get(label, -1) + 1
    return Var(Name(label, taken[label]), of)


def _opened(function: Function) -> Expr:
    memo: dict[Expr, Expr] = {}
    for node in expressions(function.body):
        new = with_operands(node, tuple([memo[part] for part in operands(node)]))
        if isinstance(new, Call) and isinstance(new.callee, Function) and is_primitive(new.callee):
            new = _applied(new.callee, new.args)
        memo[node] = new
    return memo[function.body]


def _applied(function: Function, args: tuple[Expr, ...]) -> Expr:
    """The body of a function over its arguments; nothing in a primitive one binds a name."""
    memo: dict[Expr, Expr] = dict(zip(function.params, args, strict=True))
    for node in expressions(function.body):
        if node not in memo:
            memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
    return memo[function.body]


CUTTING_OPERATORS: Final = frozenset(("slice", "split"))
"""The operators that cut a product into gates."""


def with_gates(decisions: Decisions, is_wanted: Callable[[Group], bool]) -> Decisions:
    """The decisions with products fused into the readers of their slices, where that is wanted."""
    groups, verdicts = dict(decisions.groups), dict(decisions.verdicts)
    place = {node: number for number, node in enumerate(decisions.order)}
    for node in decisions.order:
        product = groups.get(node)
        if product is None or product.sink is not node or not is_product(product):
            continue
        readers = _readers(node, decisions, groups)
        wholes = [_joined(product, group, place) for group in readers]
        for number, reader in enumerate(readers):
            if more := _read_by(reader, readers):
                apart = _joined(product, reader, place, more)
                wholes[number] = apart if is_wanted(apart) else wholes[number]
        if not wholes or not all(map(is_wanted, wholes)):
            continue
        for inner in product.spots:
            if groups.get(inner) is product:
                del groups[inner]
                verdicts[inner] = Verdict("copied" if len(wholes) > 1 else "row")
        for reader, whole in zip(readers, wholes, strict=True):
            mine = [spot for spot in reader.spots if groups.get(spot) is reader]
            groups |= dict.fromkeys(mine, whole)
    return Decisions(decisions.order, decisions.users, groups, verdicts)


def _readers(node: Expr, decisions: Decisions, groups: dict[Expr, Group]) -> list[Group]:
    """The groups that read slices of a value elementwise; none if it has any other reader."""
    users = decisions.users[node]
    found: dict[Group, None] = {}
    elements = 0
    for user in users:
        reader = groups.get(user)
        plain = reader is not None and reader.anchor is None and not reader.is_closed
        if reader is None or not plain or operator(user) not in CUTTING_OPERATORS:
            return []
        found[reader] = None
        elements += _elements(user)
    return [*found] if 0 < elements <= _elements(node) else []


def _read_by(reader: Group, readers: list[Group]) -> list[Group]:
    """The other `readers` whose results a group reads."""
    inner = {part for node in reader.spots for part in inside(node)}
    return [group for group in readers if group is not reader and group.sink in inner]


def _joined(
    product: Group, reader: Group, place: dict[Expr, int], more: Sequence[Group] = ()
) -> Group:
    """One group of the product, its reader, and the groups `more` whose results that reads."""
    whole = Group(reader.sink, reader.of, is_closed=False)
    spots = {**product.spots, **reader.spots}
    for group in more:
        spots |= group.spots
    whole.spots = dict(sorted(spots.items(), key=lambda pair: -place[pair[0]]))
    whole.stages = (*(reader.stages or (reader,))[:-1], product, *more, reader)
    return whole


def _elements(of: Expr) -> int:
    found = type_of(of)
    parts = found.items if isinstance(found, TupleType) else (found,)
    return sum([count(part.shape) or 0 for part in parts if isinstance(part, TensorType)])
