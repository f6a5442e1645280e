"""Summaries: the name-independent hash of a node, and its free variables in order.

The hash speaks of free variables only by their place in the order, so it does not depend on names,
and the summary of a shared subterm does not depend on where it is used.  Python's `hash` never
enters, and nothing follows the order of a set.

# Note [Many free variables]
An order is a tuple while it has at most `LIMIT` variables.  In `let x1 = ..; ..; (x1, .., xn)` the
tuples would have n^2 elements, so past that it is a persistent map from each variable to a hash of
the places where it occurs.  At each node the largest map is kept, and only what the other children
have is marked and merged into it (after Maziarz et al., Hashing modulo alpha-equivalence, 2021).
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from pyrsistent import PMap, pmap

from plica.core.binding import bound_by, fields_of_children
from plica.core.collector import paused
from plica.core.deferred import DeferredBytes, StoredBytes, look_at
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import MANY, ONE, FrozenBytes, Term, field_kinds, field_names

Order: TypeAlias = "tuple[Term, ...] | PMap[Term, bytes]"
Summary: TypeAlias = tuple[bytes, Order]
_Kid: TypeAlias = tuple[Summary, Mapping[Term, int]]  # with the numbers of what is bound in it

LIMIT: Final = 256
MIN_DIGESTED_BYTES: Final = 4096  # bytes that are told by a digest of their own
SELF: Final = bytes(16)  # stands before a variable's own name among many
NO_BINDER: Final[Mapping[Term, int]] = {}

word: Final = struct.Struct("<I").pack
_double: Final = struct.Struct("<d").pack
_blake2b: Final = hashlib.blake2b


def summary(root: Term) -> Summary:
    """The summary of a term."""
    with paused():
        return _summaries(root, keep=False)[root]


def summaries(root: Term) -> dict[Term, Summary]:
    """The summary of every node below `root`."""
    with paused():
        return _summaries(root, keep=True)


def _summaries(root: Term, keep: bool) -> dict[Term, Summary]:
    """With `keep` False a map is dropped after its last use: the collector of cycles looks through
    every map from end to end, though they share nearly all they hold."""
    memo: dict[Term, Summary] = {}
    pool: dict[tuple[Term, ...], tuple[Term, ...]] = {}  # equal orders are one object
    tags: dict[type[Term], bytes] = {}
    order = post_order(root) if keep else _untold(root, memo, pool)
    uses: Counter[Term] = Counter()

    def large(node: Term, parts: list[FrozenBytes], kids: list[_Kid]) -> Summary:
        found = _large(parts, kids, pool)
        if not keep:
            if not uses:
                uses.update(kid for term in order for kid in dict.fromkeys(term._children))
            for kid in dict.fromkeys(node._children):
                uses[kid] -= 1
                if not uses[kid] and not isinstance(memo[kid][1], tuple):
                    memo[kid] = memo[kid][0], ()
        return found

    for node in order:
        cls = node.__class__
        if (tag := tags.get(cls)) is None:
            tag = tags[cls] = plain(cls.tag())
        parts: list[FrozenBytes] = [tag] if cls._simple else [tag, *_own_parts(node)]
        if cls.binds:
            known_here = memo[node] = _binding(node, memo, parts, pool, large)
            if known_here[1].__class__ is tuple:
                _remember(node, known_here)
            continue
        kids = node._children
        free: Any = ()
        for kid in kids:
            theirs = memo[kid][1]
            if theirs is not free and theirs:
                if theirs.__class__ is not tuple or len(free) > LIMIT:
                    free = theirs if len(free) <= LIMIT else free
                    break
                if free:
                    theirs = tuple(dict.fromkeys(free + theirs))
                free = pool.setdefault(theirs, theirs)
        if cls.variable and node not in free:
            free = (node, *free)
            free = pool.setdefault(free, free)
        if free.__class__ is not tuple or len(free) > LIMIT:
            own = [(SELF, (node,))] if cls.variable else []
            known = [(each, NO_BINDER) for each in (*own, *(memo[kid] for kid in kids))]
            memo[node] = large(node, parts, known)
            continue
        place: dict[Term, int] | None = None
        for kid in kids:
            inner, theirs = memo[kid]
            parts.append(inner)
            if theirs is free:  # the pool makes this the only way to be equal
                parts.append(b"=")
                continue
            parts.append(b"#" + word(len(theirs)))
            if theirs:
                if place is None:
                    place = {v: i for i, v in enumerate(free)}
                parts.append(b"".join([word(place[v]) for v in theirs]))
        found = memo[node] = _blake2b(b"".join(parts), digest_size=16).digest(), free
        if not cls.variable:  # a variable is in its own order: that would be a cycle
            _remember(node, found)
    return memo


_remember: Final = cast(Any, Term.__dict__["_told"]).__set__  # past the guard of frozen classes


def _untold(
    root: Term, memo: dict[Term, Summary], pool: dict[tuple[Term, ...], tuple[Term, ...]]
) -> list[Term]:
    """The nodes below a root without a memoised summary, children first. The memo holds the
    summaries of the others; equal variable orders are one object."""
    order: list[Term] = []
    stack: list[tuple[Term | None, Iterator[Term]]] = []
    seen: set[Term] = set()
    node: Term | None = None
    kids = iter((root,))
    while True:
        for kid in kids:
            if kid in seen:
                continue
            seen.add(kid)
            if (told := getattr(kid, "_told", None)) is not None:
                memo[kid] = told[0], pool.setdefault(told[1], told[1])
            elif inner := kid._children:
                stack.append((node, kids))
                node, kids = kid, iter(inner)
                break
            else:
                order.append(kid)
        else:
            if node is None:
                return order
            order.append(node)
            node, kids = stack.pop()


def finish(summary: Summary, partner: Mapping[Term, bytes]) -> str:
    """The hash of a summary whose free variables are named, 32 hexadecimal digits."""
    inner, free = summary
    parts = [inner]
    if isinstance(free, tuple):
        parts += [partner[variable] for variable in free]
    else:
        parts += [where + partner[variable] for where, variable in _by_place(free)]
    return _blake2b(b"".join(parts), digest_size=16, person=b"plica").hexdigest()


def same(a: Summary, b: Summary, ours: Mapping[Term, Term], theirs: Mapping[Term, Term]) -> bool:
    """Whether two summaries agree when variables of one stand for those of the other."""
    if a[0] != b[0]:
        return False
    left, right = a[1], b[1]
    if isinstance(left, tuple) and isinstance(right, tuple):
        pairs: Iterable[tuple[Term, Term]] = zip(left, right, strict=True)
    elif not isinstance(left, tuple) and not isinstance(right, tuple):
        other = {where: variable for variable, where in right.items()}
        if len(left) != len(right) or any(where not in other for where in left.values()):
            return False
        pairs = ((variable, other[where]) for variable, where in left.items())
    else:
        return False
    return all(ours.get(x, x) is y and theirs.get(y, y) is x for x, y in pairs)


def own_data(node: Term) -> bytes:
    """The bytes of a node's own data, without its children and names."""
    return b"".join(_own_parts(node))


def _own_parts(node: Term) -> list[FrozenBytes]:
    """The same as pieces, so that weights are joined with the rest only once, when hashed."""
    cls = node.__class__
    if (told := _told_fields.get(cls)) is None:
        kinds = zip(field_names(cls), field_kinds(cls), strict=True)
        told = _told_fields[cls] = tuple([(n, kind is MANY) for n, kind in kinds if kind != ONE])
    parts: list[FrozenBytes] = []
    for name, many in told:
        value = getattr(node, name)
        if many:
            parts.append(word(len(value)))
        elif value.__class__ is str:
            parts.append(_plain_text(value))
        elif value.__class__ is bytes or value.__class__ is memoryview:
            parts += _bytes_parts(value)
        elif isinstance(value, StoredBytes) and len(value) >= MIN_DIGESTED_BYTES:
            look_at(value.leaves)
            parts += b"B" + struct.pack("<Q", len(value)), bytes.fromhex(value.digest)
        elif isinstance(value, DeferredBytes):
            parts += _bytes_parts(value.read())
        else:
            parts.append(plain(value))
    return parts


_told_fields: Final[dict[type[Term], tuple[tuple[str, bool], ...]]] = {}
"""The fields of a class that say something besides their terms; of many terms, how many."""


def _bytes_parts(value: FrozenBytes) -> tuple[FrozenBytes, FrozenBytes]:
    """Bytes with their length in front. Long ones are replaced by their SHA-256, which processors
    accelerate: a third of the time, and no copy."""
    size = struct.pack("<Q", len(value))
    if len(value) < MIN_DIGESTED_BYTES:
        return b"b" + size, value
    return b"B" + size, hashlib.sha256(value).digest()


@lru_cache(maxsize=1024)  # kinds of loops, names of operators: few words, again and again
def _plain_text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"s" + word(len(raw)) + raw


def plain(value: Any) -> bytes:
    """A canonical, prefix-free encoding of plain data; names and terms leave only their mark."""
    kind = type(value)
    if kind is str:
        return _plain_text(value)
    if kind is bool:
        return b"1" if value else b"0"
    if kind is int:
        raw = b"%x" % value
        return b"i" + word(len(raw)) + raw
    if kind is float:
        return b"d" + _double(value)
    if value is None:
        return b"."
    if kind is Name:
        return b"n"
    if kind is bytes or kind is memoryview:
        return b"".join(_bytes_parts(value))
    if kind is tuple:
        return b"(" + word(len(value)) + b"".join(map(plain, value))
    if isinstance(value, Term):
        return b"t"
    raise TypeError(f"A term holds {value!r}, which is neither a term nor plain data.")


def _binding(
    node: Term,
    memo: dict[Term, Summary],
    parts: list[FrozenBytes],
    pool: dict[tuple[Term, ...], tuple[Term, ...]],
    large: Callable[[Term, list[FrozenBytes], list[_Kid]], Summary],
) -> Summary:
    """As for other nodes, but bound variables are numbered by their binder, from 2^31 up."""
    number: dict[Term, int] = {}
    scopes: dict[str, dict[Term, int]] = {}
    for own, scope, variables in bound_by(node):
        for variable in variables:
            number.setdefault(variable, 2**31 + len(number))
        mine = {v: number[v] for v in variables}
        for name in (own, *scope):
            scopes[name] = scopes[name] | mine if name in scopes else mine
    kids = [(memo[kid], scopes.get(name, NO_BINDER)) for name, kid in fields_of_children(node)]
    free: dict[Term, int] = {}
    tail = []
    for (inner, theirs), bound in kids:
        if not isinstance(theirs, tuple):
            return large(node, parts, kids)
        tail.append(inner)
        tail.append(word(len(theirs)))
        for v in theirs:
            tail.append(word(bound[v] if v in bound else free.setdefault(v, len(free))))
    if len(free) > LIMIT:
        return large(node, parts, kids)
    order = tuple(free)
    parts += tail
    return _blake2b(b"".join(parts), digest_size=16).digest(), pool.setdefault(order, order)


def _large(
    parts: list[FrozenBytes], kids: list[_Kid], pool: dict[tuple[Term, ...], tuple[Term, ...]]
) -> Summary:
    """The summary of a node one of whose children, or which itself, has many free variables."""
    views: list[Order] = []
    seen = _Seen()
    copies = []  # a child that says what an earlier one says adds nothing but that
    for (inner, free), bound in kids:
        parts.append(inner)
        leaving = [(v, n) for v, n in bound.items() if v in free]
        for variable, number in leaving:
            parts.append(word(number) + _place(free, variable))
        parts.append(b"|")
        view = _without(free, [v for v, _ in leaving])
        copies.append(seen.before(inner, view))
        views.append(view)
    base = max(range(len(views)), key=lambda i: (len(views[i]), -i))
    merged = _as_map(views[base])
    changes: dict[Term, bytes] = {}
    for i, view in enumerate(views):
        if (copy := copies[i]) is not None:
            parts.append(b"c" + word(i) + word(copy))
        elif i != base:
            for variable, where in _places(view):
                before = changes.get(variable) or merged.get(variable) or b""
                changes[variable] = _hash(word(i) + where + before)
    parts.append(word(base))
    evolver = merged.evolver()
    for variable, where in changes.items():
        evolver[variable] = where
    merged = evolver.persistent()
    if len(merged) > LIMIT:
        return _hash(b"".join(parts)), merged
    ordered = _by_place(merged)
    order = tuple(variable for _, variable in ordered)
    whole = b"".join((*parts, *(where for where, _ in ordered)))
    return _hash(whole), pool.setdefault(order, order)


def _hash(data: bytes) -> bytes:
    return _blake2b(data, digest_size=16).digest()


def _index(number: int) -> bytes:
    """The place of a variable in a short order, as long as a hash."""
    return word(number).rjust(16, b"#")


def _place(free: Order, variable: Term) -> bytes:
    return _index(free.index(variable)) if isinstance(free, tuple) else free[variable]


def _places(free: Order) -> Iterable[tuple[Term, bytes]]:
    if isinstance(free, tuple):
        return [(v, _index(i)) for i, v in enumerate(free)]
    return free.items()


def _as_map(free: Order) -> PMap[Term, bytes]:
    return pmap(dict(_places(free))) if isinstance(free, tuple) else free


def _without(free: Order, variables: list[Term]) -> Order:
    if not variables:
        return free
    evolver = _as_map(free).evolver()
    for variable in variables:
        del evolver[variable]
    return evolver.persistent()


class _Seen:
    """The children of a node so far, found again by what they say."""

    def __init__(self) -> None:
        self.count = 0
        self.short: dict[tuple[bytes, tuple[Term, ...]], int] = {}
        self.long: dict[bytes, list[tuple[int, Order]]] = {}

    def before(self, inner: bytes, view: Order) -> int | None:
        """The number of an earlier child that says the same; this one is numbered as well."""
        here, self.count = self.count, self.count + 1
        if isinstance(view, tuple):
            first = self.short.setdefault((inner, view), here)
            return None if first == here else first
        alike = self.long.setdefault(inner, [])
        alike.append((here, view))
        found = next(i for i, each in alike if each is view or each == view)
        return None if found == here else found


def _by_place(free: PMap[Term, bytes]) -> list[tuple[bytes, Term]]:
    """The variables by where they occur; no two occur in the same places."""
    return sorted(((where, v) for v, where in free.items()), key=lambda pair: pair[0])
