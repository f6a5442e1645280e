"""Needs: the preconditions on open sizes under which every operator of a program is defined.

A window must fit into its axis, and a maximum needs an element. For constant sizes the type
relation checks this; for open sizes, needs are terms over the dims that must be non-negative,
checked when sizes are known. The needs of a branch are checked when that branch runs: its operators
take their sizes from `match_shape` (`guarded`).

>>> from plica.core.name import Name
>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.graph.expression import Apply, Function, Var
>>> from plica.ir.type.infer import infer
>>> from plica.ir.graph.module import module
>>> from plica.ir.text.show.type import show_dim
>>> from plica.ir.type.term import tensor
>>> n = dim_var("n")
>>> x, main = Var(Name("x"), tensor((n,), "f32")), Var(Name("main"), None)
>>> greatest = Apply("max", (x,), (("axis", (0,)), ("keepdims", False)))
>>> whole = infer(module({main: Function((n,), (), (x,), None, greatest)}, main))
>>> [show_dim(each, lambda v: str(v.name)) for each in needs(whole)]
['n-1']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from plica.core import Term, fold, free_vars, post_order, rebuild, substitute
from plica.ir.graph.expression import Apply, Expr, Function, If, Match, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import Lit, Max, Min, Scalar, ScalarVar, index
from plica.ir.op import find
from plica.ir.op.create import zeros
from plica.ir.op.index import take
from plica.ir.op.relation import needs_of
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import match_shape
from plica.ir.type.dim import Key, greater, is_size, known, normal_dim, polynomial
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import TensorType


def needs(of: Module) -> tuple[Scalar, ...]:
    """The terms over the dims of an inferred module that must not be negative.

    The needs of branches are excluded: a branch may serve other sizes.
    """
    main = of.main_function()
    return needs_in(main.body, frozenset(main.dims))


def needs_in(body: Expr, dims: frozenset[Term]) -> tuple[Scalar, ...]:
    """The same of an expression: terms over these dims."""
    return _needed(_always(body), dims)


def asserted(nodes: Iterable[Term], dims: frozenset[Term]) -> tuple[Scalar, ...]:
    """The assertions on these dims in the `match_shape` nodes."""
    said = [node for node in nodes if isinstance(node, Apply) and node.op == match_shape.name]
    return _needed(said, dims) if said else ()


def guarded(of: Module) -> Module:
    """The module whose branches look at the sizes that their own operators need when they run.

    If there are other functions, their needs are required unconditionally.
    """
    said = {node: least for node, least in _in_branches(of) if node.op != match_shape.name}

    def asserted_of(of: Expr, kind: TensorType, least: tuple[Scalar, ...]) -> Expr:
        _, attrs = match_shape.bind((of,), {"shape": kind.shape, "least": least})
        return Apply(match_shape.name, (of,), attrs)

    def checked(node: Apply, new: Apply) -> Expr:
        for at, arg in enumerate(node.args):
            if isinstance(kind := type_of(arg), TensorType):
                part = asserted_of(new.args[at], kind, said[node])
                return Apply(new.op, (*new.args[:at], part, *new.args[at + 1 :]), new.attrs)
        # An operator without arguments has clamped sizes, with an assertion of their values.
        kind = type_of(node)
        if not isinstance(kind, TensorType):
            return new
        clamped = {size: greater(size, index(0)) for size in kind.shape}

        def clamp(value: object) -> object:
            if isinstance(value, tuple):
                return tuple([clamp(each) for each in value])
            return clamped.get(value, value) if isinstance(value, Scalar) else value

        attrs = tuple([(name, clamp(value)) for name, value in new.attrs])
        return asserted_of(Apply(new.op, (), attrs), kind, said[node])

    return infer(_with(of, {*said}, checked)) if said else of


def settled(of: Module, sizes: Mapping[ScalarVar, int]) -> Module:
    """The module in which branch operators that are undefined at some sizes are refused at run
    time: an operand without a type there is replaced by a missing element. Needs inference."""
    numbers: dict[Term, Term] = {dim: Lit(size, dim.dtype) for dim, size in sizes.items()}

    def is_refused(least: Scalar) -> bool:
        return (known(normal_dim(substitute(least, numbers))) or 0) < 0

    wrong = {node for node, least in _in_branches(of) if any(map(is_refused, least))}

    def missing(node: Apply, new: Apply) -> Expr:
        if not isinstance(kind := type_of(node), TensorType):
            return new
        nothing = zeros((0,), kind.dtype)
        shape = tuple([greater(substitute(extent, numbers), index(0)) for extent in kind.shape])
        return broadcast_to(take(nothing, const(np.zeros((), np.int64))), shape)

    return _with(of, wrong, missing)


def _in_branches(of: Module) -> list[tuple[Apply, tuple[Scalar, ...]]]:
    """The operators that occur only in branches, with their needs."""
    main = of.main_function()
    inside = post_order(main.body)
    if len(of.values) > 1 or not any(isinstance(term, If) for term in inside):
        return []
    if any(isinstance(term, Function | Match) for term in inside):
        return []
    always, dims = {*_always(main.body)}, frozenset(main.dims)
    nodes = [each for each in inside if isinstance(each, Apply) and each not in always]
    return [(node, least) for node in nodes if (least := _needed([node], dims))]


def _with(of: Module, nodes: set[Apply], change: Callable[[Apply, Apply], Expr]) -> Module:
    """The module with some operators changed: `change` is given each, and it of changed parts."""
    if not nodes:
        return of

    def algebra(node: Term, kids: tuple[Term, ...]) -> Term:
        new = node if kids == node._children else rebuild(node, kids)
        if isinstance(node, Apply) and isinstance(new, Apply) and node in nodes:
            return change(node, new)
        return new

    main = of.main_function()
    whole = fold(algebra, main.body)
    assert isinstance(whole, Expr)
    assert of.main is not None
    function = Function(main.dims, main.types, main.params, main.ret, whole, main.attrs)
    return module({of.main: function}, of.main)


def _needed(nodes: Iterable[Apply], dims: frozenset[Term]) -> tuple[Scalar, ...]:
    found: dict[frozenset[tuple[Key, int]], Scalar] = {}
    for node in nodes:
        record = find(node.op)
        if record is None or not dims:
            continue
        types = [type_of(arg) for arg in node.args]
        asked = [normal_dim(e) for e in needs_of(record.relation, dict(node.attrs), *types)]
        for least in [part for scalar in asked for part in _apart(scalar)]:
            if free_vars(least) <= dims:
                key = frozenset((k, count) for k, (_, count) in polynomial(least).items())
                found.setdefault(key, least)
    return tuple(found.values())


def _apart(least: Scalar) -> list[Scalar]:
    """The terms whose non-negativity implies that of a term; empty if it is always non-negative.

    The lesser of two, and something, is not negative where both are not, each with it.

    >>> from plica.ir.type.dim import dim_var
    >>> n, k = dim_var("n"), dim_var("k")
    >>> [normal_dim(each - n + k) for each in _apart(Min(n, k) - k)], _apart(k - Min(n, k))
    ([Lit(0, DType('i64'))], [])
    """
    if is_size(least):
        return []
    for atoms, count in polynomial(least).values():
        if abs(count) != 1 or len(atoms) != 1 or not isinstance(atom := atoms[0], Min | Max):
            continue
        sides = [normal_dim(least + (side - atom) * count) for side in (atom.left, atom.right)]
        if isinstance(atom, Min) == (count > 0):
            return [part for side in sides for part in _apart(side)]
        if any(map(is_size, sides)):  # one of them is enough
            return []
    return [least]


def _always(body: Expr) -> list[Apply]:
    """The operators that run whatever the values are."""
    nodes: list[Apply] = []
    seen: set[Term] = {body}
    stack: list[Term] = [body]
    while stack:
        if isinstance(node := stack.pop(), Apply):
            nodes.append(node)
        inside: tuple[Term, ...] = node._children
        if isinstance(node, If):
            inside = (node.condition,)
        elif isinstance(node, Function | Match):
            inside = ()
        for each in inside:
            if isinstance(each, Expr) and each not in seen:
                seen.add(each)
                stack.append(each)
    return nodes
