"""Host parts: what of a program the host does between segments, and the shape of a loop."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from plica.codegen.program_kind import is_loop, is_ordering
from plica.core import Term, free_vars, map_bottom_up
from plica.ir.graph import expression as ex
from plica.ir.loop.scalar import ScalarVar, index
from plica.ir.type import TensorType, TupleType, type_of
from plica.rewrite.graph.walk import expressions, is_atom, operands
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    pass


def host_parts(root: ex.Expr, *, chooses: bool = True) -> set[ex.Expr]:
    """The expressions with something in them that the host does; choices are such, too, where what
    runs segments never `chooses`."""
    exprs: set[ex.Expr] = set()
    for node in expressions(root):
        own = isinstance(node, ex.LetDim) or is_loop(node) or is_ordering(node)
        own = own or (not chooses and isinstance(node, ex.If))
        if own or not exprs.isdisjoint(operands(node)):
            exprs.add(node)
    return exprs


def shared_by_sides(of: ex.If, hosts: Set[ex.Expr]) -> list[ex.Expr]:
    """The largest tensors with a part of the host's that both sides of a choice compute in any
    case, in order: they are made before it, so that no loop is there twice."""
    yes, no = _surely_needed(of.then), _surely_needed(of.orelse)
    exprs: list[ex.Expr] = []
    seen: set[ex.Expr] = set()
    stack = [of.then]
    while stack:
        node = stack.pop()
        if node in seen or node not in hosts:
            continue
        seen.add(node)
        if node in yes and node in no and isinstance(type_of(node), TensorType):
            exprs.append(node)
        else:
            stack += reversed(operands(node))
    return exprs


def _surely_needed(side: ex.Expr) -> set[ex.Expr]:
    """What one side computes whatever it chooses, of what has no name that it binds itself."""
    found: dict[ex.Expr, None] = {}
    bound: set[Term] = set()
    stack = [side]
    while stack:
        node = stack.pop()
        if node in found or isinstance(node, ex.Function):
            continue
        found[node] = None
        if isinstance(node, ex.LetDim):
            bound.add(node.dim)
        elif isinstance(node, ex.Let):
            bound.add(node.var)
        stack += (node.condition,) if isinstance(node, ex.If) else operands(node)
    return {node for node in found if bound.isdisjoint(free_vars(node))}


def loops_at_calls(root: ex.Expr) -> ex.Expr:
    """The same program, in which loops that have a name stand where they are called."""

    def sunk(node: Term) -> Term:
        match node:
            case ex.Let(var, ex.Function() as function, body) if not is_loop(node):
                if var not in free_vars(function):
                    return node

                def whole(each: Term) -> Term:
                    if isinstance(each, ex.Call) and each.callee is var:
                        return ex.Let(var, function, each)
                    return each

                moved = map_bottom_up(whole, body)
                return node if var in free_vars(moved) else moved
            case _:
                return node

    expr = map_bottom_up(sunk, root)
    assert isinstance(expr, ex.Expr)
    return expr


def turn_of(loop: ex.Let) -> tuple[ex.Expr, ex.Expr, ex.Expr]:
    """Whether a loop goes on, what it carries then, and what it gives at its end."""
    assert isinstance(loop.value, ex.Function)
    match loop.value.body:
        case ex.If(condition, then, orelse):
            return condition, _next_turn(then, loop.var), orelse
        case _:
            raise refused("A function calls itself in another way than a loop does.", "recursion")


def _next_turn(node: ex.Expr, itself: ex.Var) -> ex.Expr:
    """What a loop hands to its next turn, under the sizes that are measured for it."""
    sizes: list[ex.LetDim] = []
    while isinstance(node, ex.LetDim):
        sizes.append(node)
        node = node.body
    if not (isinstance(node, ex.Call) and node.callee is itself):
        raise refused("A function calls itself in another way than a loop does.", "recursion")
    expr: ex.Expr = ex.Tuple(node.args)
    if itself in free_vars(expr):
        raise refused("A function calls itself in another way than a loop does.", "recursion")
    for size in reversed(sizes):
        expr = ex.LetDim(size.dim, size.value, expr)
    return expr


@lru_cache(maxsize=256)
def invariants(loop: ex.Let) -> tuple[ex.Expr, ...]:
    """What every turn of a loop would compute anew: the largest parts that depend on something from
    outside of it, and on nothing that it carries or binds.

    What is computed under a condition is left there, and so is what depends on constants alone: a
    segment folds and packs it while it is compiled.
    """
    assert isinstance(loop.value, ex.Function)
    test, body, _ = turn_of(loop)
    own: set[Term] = {loop.var, *loop.value.params, *loop.value.dims}
    for node in expressions(test, body):
        match node:
            case ex.Let(var, _, _) | ex.LetDim(var, _, _):
                own.add(var)
            case ex.Function():
                own.update((*node.params, *node.dims))
    found: dict[ex.Expr, None] = {}
    seen: set[ex.Expr] = set()
    stack: list[ex.Expr] = [body, test]
    while stack:
        node = stack.pop()
        if node in seen or is_atom(node) or isinstance(node, ex.Function):
            continue
        seen.add(node)
        free = free_vars(node)
        given = own.isdisjoint(free) and any(isinstance(each, ex.Var) for each in free)
        if given and not isinstance(node, ex.Project | ex.Tuple) and _is_whole(node):
            found[node] = None
        else:
            stack += (node.condition,) if isinstance(node, ex.If) else operands(node)
    return tuple(found)


def _is_whole(of: ex.Expr) -> bool:
    """Whether an expression is a tensor, or some."""
    kind = type_of(of)
    items = kind.items if isinstance(kind, TupleType) else (kind,)
    return all(isinstance(item, TensorType) for item in items)


def refused(message: str, found: str) -> UnsupportedError:
    """The refusal of a program that cannot be cut."""
    hint = "plica.interpret runs every program of the language."
    return UnsupportedError(Diagnostic("unsupported", message, None, None, found, hint))


def prefix_of(node: ex.Expr) -> tuple[ex.Expr, ScalarVar] | None:
    """What an expression is the beginning of along the first axis, and the dim that says how much
    of it, of which it is asserted that there is so much; None where it is another."""
    match node:
        case ex.Apply("match_shape", (ex.Apply("slice", (x,), cut),), said):
            of, whole, options = type_of(node), type_of(x), dict(cut)
        case _:
            return None
    assert isinstance(of, TensorType)
    assert isinstance(whole, TensorType)
    dim = of.shape[0] if of.shape else None
    begins = (options["axes"], options["starts"], options["steps"]) == ((0,), (index(0),), None)
    if not begins or options["stops"] != (dim,) or dict(said)["least"]:
        return None
    return (x, dim) if isinstance(dim, ScalarVar) and of.shape[1:] == whole.shape[1:] else None
