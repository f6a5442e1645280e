"""Common subexpressions: equal values are computed once.

    before:  def f(x):                      after:   def f(x):
                 a = exp(x)                              a = exp(x)
                 b = exp(x)                              return a * (a + 1)
                 return a * (b + 1)

Equal terms are one node already, and a run computes a node once. What remains is equality hidden by
names: lets of equal values, functions that differ in parameter names, and definitions that compute
the same. The language is pure, so nothing else matters.

Law: `merge_common(merge_common(m)) is merge_common(m)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from plica.core import Name, Term, digest, substitute
from plica.core.summary import summaries
from plica.ir.graph.expression import Apply, Call, Expr, Function, Let, Match, Project, Tuple, Var
from plica.ir.graph.module import Extern, Module, Numbered
from plica.ir.type import infer, same_type
from plica.ir.type.infer import components, declared
from plica.rewrite.graph.alpha_rename import alpha_renamed, is_recursive
from plica.rewrite.graph.walk import (
    expressions,
    map_functions,
    operands,
    reachable,
    references,
    with_operands,
)
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.rewrite.graph.dominator import PostDominators


def merge_common(module: Module) -> Module:
    """The module with equal lets, functions and definitions merged."""
    known = infer(module)
    while True:
        before = known
        known = _definitions(_functions(known))
        if known is before:
            return known


def _functions(module: Module) -> Module:
    outer = frozenset(module.names)

    def rewrite(_: Var, function: Function) -> Function:
        apart = alpha_renamed(function, outer)
        merged = _merge_lets(_merge_renamed(apart))
        return function if merged is apart else merged

    return map_functions(module, rewrite)


# --- equal up to names -----------------------------------------------------------------------


def _merge_renamed(function: Function) -> Function:
    """Merges nodes that differ only in the names of their bound variables.

    A summary is the name-independent hash of a node with its free variables in order.
    """
    nodes = expressions(function)
    spine = _spine(function.body)
    if all(node in spine for node in nodes[:-1] if isinstance(node, Function | Let | Match)):
        return function  # nothing binds names but the body itself
    found = summaries(function)
    first: dict[Any, Expr] = {}  # Any: a summary
    memo: dict[Expr, Expr] = {}
    for node in nodes:
        inner, order = found[node]
        # A node with hundreds of free variables is compared by identity alone.
        chosen = first.setdefault((inner, order), node) if isinstance(order, tuple) else node
        if chosen is not node:
            memo[node] = memo[chosen]
        else:
            memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
    made = memo[function]
    assert isinstance(made, Function)
    return made


def _spine(body: Expr) -> set[Expr]:
    """The lets that stand one in the body of the other, from the outermost on."""
    exprs: set[Expr] = set()
    while isinstance(body, Let):
        exprs.add(body)
        body = body.body
    return exprs


# --- equal lets ------------------------------------------------------------------------------


class _Body:
    """The position after a let, where its variable is in scope."""

    def __init__(self, let: Let) -> None:
        self.let = let


def _merge_lets(function: Function) -> Function:
    """One let for all of equal values, where the first is in scope of the others."""
    nodes = expressions(function.body)
    lets = {node.var: node for node in nodes if isinstance(node, Let)}
    if len(lets) < 2:
        return function
    bodies = {let: _Body(let) for let in lets.values()}

    def parts(node: Any) -> Iterable[Any]:
        if isinstance(node, _Body):
            return (node.let.body,)
        if isinstance(node, Let):
            return (node.value, bodies[node])
        return operands(node)

    tree = PostDominators(function.body, parts)
    numbers = _Numbers(lets)
    same: dict[Var, Var] = {}
    first: dict[int, list[Let]] = {}
    for node in tree.preorder():  # so a let that is out of scope once stays out of scope
        if not isinstance(node, Let) or is_recursive(node):
            continue
        number = numbers.of(node.value)
        earlier = first.setdefault(number, [])
        while earlier and not tree.dominates(bodies[earlier[-1]], node):
            earlier.pop()
        if earlier and earlier[-1].var.type is node.var.type:
            same[node.var] = same.get(earlier[-1].var, earlier[-1].var)
        else:
            earlier.append(node)
    return _renamed(function, same)


class _Numbers:
    """Numbers for values: equal values have one, whatever names stand in them."""

    def __init__(self, lets: dict[Var, Let]) -> None:
        self.lets = lets
        self.known: dict[Expr, int] = {}
        self.table: dict[Any, int] = {}  # Any: a head and the numbers of the parts

    def of(self, root: Expr) -> int:
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if node in self.known:
                continue
            parts = self._parts(node)
            if leaving or not parts:
                key: Any = node
                if isinstance(node, Var) and parts:
                    self.known[node] = self.known[parts[0]]
                    continue
                if parts:
                    key = (self._head(node), tuple([self.known[part] for part in parts]))
                self.known[node] = self.table.setdefault(key, len(self.table))
            else:
                stack.append((node, True))
                stack.extend((part, False) for part in parts)
        return self.known[root]

    def _parts(self, node: Expr) -> tuple[Expr, ...]:
        if isinstance(node, Var):
            let = self.lets.get(node)
            return () if let is None or isinstance(let.value, Function) else (let.value,)
        return operands(node) if isinstance(node, Apply | Call | Tuple | Project) else ()

    def _head(self, node: Expr) -> Any:
        match node:
            case Apply(op, _, attributes):
                return "apply", Apply(op, (), attributes)
            case Call(_, _, types):
                return "call", types
            case Project(_, index):
                return "project", index
        return "tuple"


def _renamed(function: Function, same: dict[Var, Var]) -> Function:
    """The function without the lets of some variables, which others stand for."""
    if not same:
        return function
    memo: dict[Expr, Expr] = {}
    for node in expressions(function):
        if isinstance(node, Var):
            memo[node] = same.get(node, node)
        elif isinstance(node, Let) and node.var in same:
            memo[node] = memo[node.body]
        else:
            memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
    made = memo[function]
    assert isinstance(made, Function)
    return made


# --- equal definitions -----------------------------------------------------------------------


def _definitions(module: Module) -> Module:
    """One definition for all functions and externs that compute the same."""
    same: dict[Term, Term] = {}
    first: dict[str, Var] = {}
    kinds = _kinds(module)
    for name in sorted(kinds, key=lambda name: (name is not module.main, name.name)):
        kept = first.setdefault(kinds[name], name)
        if kept is not name and _has_type_of(name, kept):
            same[name] = kept
    if not same:
        return module
    table = module.definitions()
    kept_names = [name for name in module.names if name not in same]
    values: list[Any] = [substitute(table[name], same) for name in kept_names]
    return infer(Module(tuple(kept_names), tuple(values), module.main))


def _kinds(module: Module) -> dict[Var, str]:
    """What functions and externs compute that others might too, as a text without names."""
    table = module.definitions()
    names = [
        name
        for name, value in module.items()
        if isinstance(name, Var) and isinstance(value, Function | Extern)
    ]
    if len(names) < 2:
        return {}
    shapes = {name: digest(type_) for name in names if (type_ := declared(table[name]))}
    counts = Counter(shapes.values())
    alike = {name for name in names if counts[shapes.get(name, "")] != 1}
    found: dict[Var, str] = {}
    if not alike:
        return found
    for group in components(names, table):  # what is needed comes first
        for name in group:
            if name not in alike:
                continue  # it is one of a kind, and known by its name
            value = table[name]
            used = [each for each in references(value, table) if isinstance(each, Var)]
            if any(var in group for var in used):
                found[name] = _digest_from(name, module)
                continue
            # The others are identified by what they compute, in order of occurrence.
            stand_in: dict[Term, Term] = {
                var: Var(Name(f"#{found.get(var, var.name)}", number), var.type)
                for number, var in enumerate(used)
            }
            found[name] = digest(substitute(value, stand_in))
    return found


def _digest_from(name: Var, module: Module) -> str:
    """A name-independent digest of a recursive definition and those it depends on."""
    table = module.definitions()
    order = tuple(reachable(module, [name]))
    return digest(Numbered(order, tuple([table[each] for each in order]), name))


def _has_type_of(name: Var, other: Var) -> bool:
    return name.type is not None and other.type is not None and same_type(name.type, other.type)
