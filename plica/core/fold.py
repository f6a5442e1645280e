"""Folds: every whole-term function, iterative and once per shared node.

>>> from attrs import frozen
>>> @frozen(eq=False)
... class Knot(Term):
...     parts: tuple[Term, ...]
>>> term = Knot(())
>>> for _ in range(60):
...     term = Knot((term, term))
>>> fold(lambda node, kids: 1 + sum(kids), term)
2305843009213693951

That counted the nodes of the unfolded tree without unfolding it.  Nothing here recurses on
Python's stack, so depth is bounded by memory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping
from typing import Any, TypeVar, cast

from plica.core.collector import paused
from plica.core.diagnostic import CompilerBug
from plica.core.term import Term, rebuild

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
T = TypeVar("T", bound=Term)


def post_order(*roots: Term) -> list[Term]:
    """Every distinct term inside the roots, children before parents."""
    done: set[Term] = set()
    order: list[Term] = []
    stack: list[tuple[Term | None, Iterator[Term]]] = []  # terms around, and kids still to visit
    push, pop, leave, see = stack.append, stack.pop, order.append, done.add
    node: Term | None = None
    kids = iter(roots)
    while True:
        for kid in kids:
            if kid in done:
                continue
            see(kid)
            if inner := kid._children:
                push((node, kids))
                node, kids = kid, iter(inner)
                break
            leave(kid)
        else:
            if node is None:
                return order
            leave(node)
            node, kids = pop()


def all_of(kind: type[T], *roots: Term) -> list[T]:
    """Every distinct term of a class inside the roots, children before parents."""
    return [node for node in post_order(*roots) if isinstance(node, kind)]


def parts_first(parts: Callable[[K], Iterable[K]], *roots: K) -> list[K]:
    """All distinct nodes below the roots, children first, where `parts` returns the children.

    >>> parts_first(lambda n: [d for d in range(2, n) if n % d == 0], 12, 8)
    [2, 3, 4, 6, 12, 8]
    """
    done: set[K] = set()
    order: list[K] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            order.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack += [(part, False) for part in reversed(tuple(parts(node)))]
    return order


def reached(parts: Callable[[K], Iterable[K]], *roots: K) -> Iterator[K]:
    """All distinct nodes below the roots, each before its parts, where `parts` returns those.

    >>> list(reached(lambda n: [n // 2, n // 3] if n > 1 else [], 6))
    [6, 3, 1, 2, 0]
    """
    seen: set[K] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(reversed(tuple(parts(node))))


def fold(algebra: Callable[[Term, tuple[R, ...]], R], root: Term) -> R:
    """Replace every node by `algebra(node, results of its children)`."""
    memo: dict[Term, R] = {}
    with paused():
        for node in post_order(root):
            memo[node] = algebra(node, tuple([memo[kid] for kid in node._children]))
    return memo[root]


def fold_into(
    memo: MutableMapping[K, R], root: K, parts: Callable[[K], Iterable[K]], result: Callable[[K], R]
) -> R:
    """Returns the result of `root` and adds the results of all its parts to `memo`.

    Folds over the graph that `parts` defines, each node once, children first: `result` reads the
    results of children from `memo`. Nodes already in `memo` are not recomputed.

    >>> lengths = {1: 1}
    >>> after = lambda n: n // 2 if n % 2 == 0 else 3 * n + 1
    >>> fold_into(lengths, 27, lambda n: [after(n)], lambda n: 1 + lengths[after(n)])
    112
    """
    stack = [root]
    while stack:
        node = stack[-1]
        if node in memo:
            stack.pop()
        elif missing := [part for part in parts(node) if part not in memo]:
            stack += missing
        else:
            memo[node] = result(node)
            stack.pop()
    return memo[root]


def map_bottom_up(f: Callable[[Term], Term], root: T) -> T:
    """Apply `f` to every node after its children.  `map_bottom_up(identity, t) is t`.

    `f` gives a term of the grammar of the one it is given.
    """
    memo: dict[Term, Term] = {}
    with paused():
        for node in post_order(root):
            if kids := node._children:
                new = tuple([memo[kid] for kid in kids])
                memo[node] = f(node if new == kids else rebuild(node, new))
            else:
                memo[node] = f(node)
    return cast(T, memo[root])


def map_within(f: Callable[[Term], Term], root: T, enters: Callable[[Term], bool]) -> T:
    """`map_bottom_up`, restricted to the nodes for which `enters` holds; others stay unchanged,
    contents included.

    Law: it is `map_bottom_up` where `f` changes nothing else.
    """
    memo: dict[Term, Term] = {}
    with paused():
        order = parts_first(lambda node: filter(enters, node._children), cast(Term, root))
        for node in order:
            kids = node._children
            new = tuple([memo.get(kid, kid) for kid in kids])
            memo[node] = f(node if new == kids else rebuild(node, new))
    return cast(T, memo[root])


def map_top_down(f: Callable[[Term], Term], root: T) -> T:
    """Apply `f` to every node before its children, then to the children of the result."""
    memo: dict[Term, Term] = {}
    head: dict[Term, Term] = {}
    stack: list[Any] = [root]
    with paused():
        while stack:
            node = stack.pop()
            if node.__class__ is tuple:
                node = node[0]
                new = head[node]
                kids = tuple([memo.get(kid) for kid in new._children])
                if None in kids:
                    raise CompilerBug(f"map_top_down never ends: {node!r} contains itself then.")
                memo[node] = rebuild(new, cast("tuple[Term, ...]", kids))
            elif node not in head:
                head[node] = new = f(node)
                stack.append((node,))
                stack.extend([kid for kid in reversed(new._children) if kid not in head])
    return cast(T, memo[root])


def universe(root: Term) -> Iterator[Term]:
    """Every distinct term inside `root`, children first."""
    return iter(post_order(root))
