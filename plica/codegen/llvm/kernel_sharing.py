"""Kernels that differ only in numbers are one function, which takes the numbers as arguments.

    for c in range(16):  y[n, c] = x[n, c] * w[c]
    for c in range(64):  y[n, c] = x[n, c] * w[c]      -->     for c in range(number): …   16, 64

The result is the least general kernel (anti-unification) of which all are instances. A number that
is a constant multiple of another in all of them stays one term, because bounds proofs relate sizes
to each other. Numbers that shape the code stay constants: lanes, copies, divisors, registers, and
lane strides. If a bounds proof depends on a constant, a shared function would have to check at run
time: then there is none.

>>> from plica.ir.text.script import from_text
>>> text = '''
... @plica.kernel
... def f(x: Buffer[("n", {0}, 3), f32], y: Buffer[("n", {0}, 3), f32]):
...     for i, c, j in grid(n, {0}, 3):
...         y[i, c, j] = x[i, c, j] * 2.0
... '''
>>> few, many = (from_text(text.format(each), "f.py").values[0] for each in (16, 64))
>>> (one, told), (other, _) = sharing([few, many])
>>> one is other, told, [str(each.name) for each in one.dims]
(True, (16,), ['n', 'number'])
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations_with_replacement
from typing import Final, TypeAlias

from plica.core import Term, free_vars, post_order, rebuild
from plica.core.term import PLAIN
from plica.ir.loop import Alloc, For, Kernel, Names, Store, scalar as sc
from plica.ir.type import i64

Numbers: TypeAlias = tuple[int, ...]
"""The values at one place in several kernels, or one kernel's arguments."""

Shared: TypeAlias = tuple[Kernel, Numbers]  # a kernel, and the numbers passed after its dims

COUNTED: Final = ("serial", "parallel")


def sharing(
    kernels: Sequence[Kernel],
    *,
    apart: bool = True,
    looks: Callable[[Kernel], bool | None] = lambda kernel: False,
) -> list[Shared]:
    """The kernel that serves each kernel; itself if it takes no numbers.

    The distance of copied statements may be a parameter (`apart`) if that costs no more than a
    constant, as when registers hold addresses anyway. A shared kernel checks bounds at run time
    (`looks`) only if one of its instances does; if bounds cannot be proved, nothing is shared.
    """
    groups: dict[Hashable, list[Kernel]] = {}
    for each in dict.fromkeys(kernels):
        if each.dims:  # others know all of their sizes, and what code gains by that
            groups.setdefault(_skeleton(each), []).append(each)
    found: dict[Kernel, Shared] = {}
    for alike in groups.values():
        left = alike
        while len(left) > 1:
            some, least = _served(left, apart)
            general = looks(least[some[0]][0]) if least else None
            if general is False or (general and any(map(looks, some))):
                found |= least
            left = [each for each in left if each not in some]
    return [found.get(each, (each, ())) for each in kernels]


def _served(kernels: Sequence[Kernel], apart: bool) -> tuple[list[Kernel], dict[Kernel, Shared]]:
    """The first of some kernels with those that one function can serve, and what serves them."""
    some = [kernels[0]]
    least: tuple[Kernel, list[Numbers]] | None = None
    for each in kernels[1:]:
        if (wider := _generalised([*some, each], apart)) is not None:
            some, least = [*some, each], wider
    if least is None:
        return some, {}
    kernel, told = least
    return some, {
        each: (kernel, tuple([numbers[at] for numbers in told])) for at, each in enumerate(some)
    }


def _skeleton(kernel: Kernel) -> Hashable:
    """The structure of kernels up to numbers."""
    found: dict[Term, int] = {}
    for node in post_order(kernel):
        if isinstance(node, sc.Lit) and node.dtype is i64:
            found[node] = 0
        else:
            kids = [found[child] for child in node._children]
            found[node] = hash((type(node).__name__, *_plain_fields(node), *kids))
    return found[kernel]


def _plain_fields(node: Term) -> Iterator[Hashable]:
    """The data of a term besides child terms."""
    of = type(node)
    for name, kind in zip(of._fields, of._kinds, strict=True):
        if kind == PLAIN:
            yield getattr(node, name)


def _generalised(kernels: Sequence[Kernel], apart: bool) -> tuple[Kernel, list[Numbers]] | None:
    """The least general kernel of several, and the value of each of its numbers; None if they have
    none.

    The first walk sees which numbers differ, the second puts terms in their places.
    """
    seen: dict[Numbers, None] = {}
    if _walked(kernels, _Collected(seen)) is None or not seen:
        return None
    bases: dict[Numbers, sc.ScalarVar] = {}
    terms: dict[Numbers, sc.Scalar] = {}
    names = Names(*kernels)
    for each in sorted(seen):
        if (scalar := _made_of(each, bases)) is None:
            if min(each) < 0:
                return None  # of what a kernel is told, as of its dims, code takes this for granted
            bases[each] = scalar = names.var("number")
        terms[each] = scalar
    found = _walked(kernels, terms)
    assert isinstance(found, Kernel)
    if not _keeps_lanes(found, {*bases.values()}, apart):
        return None
    dims = (*found.dims, *bases.values())
    whole = Kernel(dims, found.params, found.inputs, found.body, found.annotations)
    return whole, list(bases)


class _Collected(dict[Numbers, sc.Scalar]):
    """A placeholder for unknown terms that records lookups."""

    def __init__(self, seen: dict[Numbers, None]) -> None:
        self.seen = seen

    def __missing__(self, numbers: Numbers) -> sc.Scalar:
        self.seen[numbers] = None
        return sc.index(numbers[0])


def _walked(roots: Sequence[Kernel], terms: dict[Numbers, sc.Scalar]) -> Term | None:
    """Several terms merged into one, with a variable for each differing number; None if they differ
    otherwise."""
    done: dict[tuple[Term, ...], Term] = {}
    root: tuple[Term, ...] = tuple(roots)
    dims = {*roots[0].dims}
    stack = [(root, False)]
    while stack:
        nodes, leaving = stack.pop()
        if nodes in done:
            continue
        first = nodes[0]
        if all(node is first for node in nodes):
            done[nodes] = first
        elif isinstance(first, sc.Lit):
            if not all(isinstance(node, sc.Lit) and node.dtype is i64 for node in nodes):
                return None
            done[nodes] = terms[tuple([int(each.value) for each in nodes])]  # type: ignore[attr-defined]  # literals
        elif leaving:
            rows = zip(*[node._children for node in nodes], strict=True)
            done[nodes] = rebuild(first, tuple([done[row] for row in rows]))
        elif not _may_differ(nodes, dims):
            return None
        else:
            stack.append((nodes, True))
            rows = zip(*[node._children for node in nodes], strict=True)
            stack += [(row, False) for row in rows if row not in done]
    return done[root]


def _may_differ(nodes: tuple[Term, ...], dims: set[sc.ScalarVar]) -> bool:
    """Whether terms are of one kind, and differ where only numbers may."""
    first, *others = nodes
    fields, count = tuple(_plain_fields(first)), len(first._children)
    if any(type(term) is not type(first) for term in others):
        return False
    if any(len(term._children) != count or tuple(_plain_fields(term)) != fields for term in others):
        return False
    match first:
        case Alloc():
            return _agree(node._children[0] for node in nodes)
        case sc.FloorDiv() | sc.FloorMod():
            # One division for each launch is no matter, one for each element is.
            return _agree(node._children[1] for node in nodes) or dims >= free_vars(first)
        case For() if first.kind not in COUNTED:
            return _agree(node.extent for node in nodes)  # type: ignore[attr-defined]  # loops
        case _:
            return True


def _agree(terms: Iterable[Term]) -> bool:
    return len({*terms}) == 1


def _made_of(numbers: Numbers, bases: dict[Numbers, sc.ScalarVar]) -> sc.Scalar | None:
    """Numbers as multiples of others, or of products of two, or as these and a number more."""
    for few, var in bases.items():
        times = numbers[0] // few[0] if few[0] else 0
        if times and all(n == times * f for n, f in zip(numbers, few, strict=True)):
            return var * sc.index(times)
    for one, two in combinations_with_replacement(bases, 2):
        both = [a * b for a, b in zip(one, two, strict=True)]
        times = numbers[0] // both[0] if both[0] else 0
        if times and all(n == times * b for n, b in zip(numbers, both, strict=True)):
            return bases[one] * bases[two] * sc.index(times)
    for few, var in bases.items():
        more = numbers[0] - few[0]
        if all(n == f + more for n, f in zip(numbers, few, strict=True)):
            return var + sc.index(more)
    return None


def _keeps_lanes(kernel: Kernel, numbers: set[sc.ScalarVar], apart: bool) -> bool:
    """Whether lane strides stay constants: no parameter multiplies them."""
    kinds = ("vectorized",) if apart else ("vectorized", "unrolled")
    lanes = {
        each.var for each in post_order(kernel) if isinstance(each, For) and each.kind in kinds
    }
    for node in post_order(kernel):
        if isinstance(node, sc.Mul) and sc.dtype_of(node) is i64:
            left, right = free_vars(node.left), free_vars(node.right)
            if (left & numbers and right & lanes) or (right & numbers and left & lanes):
                return False
        elif isinstance(node, sc.Load | Store):
            inner: set[Term] = set()
            for size, at in zip(reversed(node.buffer.shape), reversed(node.indices), strict=True):
                if inner & numbers and free_vars(at) & lanes:
                    return False
                inner |= free_vars(size)
    return True
