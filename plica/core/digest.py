"""Digest: a content hash that is the same for terms equal up to renaming, on any machine.

A node's summary is a hash and the ordered list of its free variables; the hash speaks of free
variables only by their position in that list, so it does not depend on names, and the summary of
a shared subterm does not depend on where it is used.  Python's `hash` never enters.

Laws: `digest(a) == digest(b)` iff `a` and `b` differ only in the names of bound variables.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Final

from plica.core.binding import bound_by, fields_of_children, name_of
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import MANY, MIXED, PLAIN, Term, field_kinds, field_names

Summary = tuple[bytes, tuple[Term, ...]]
Path = tuple[str | int, ...]

_WORD: Final = struct.Struct("<I").pack
_DOUBLE: Final = struct.Struct("<d").pack


def digest(term: Term) -> str:
    """The content hash of `term`, 32 hexadecimal digits."""
    term = term.canonical()
    inner, free = summaries(term)[term]
    parts = [inner]
    for variable in free:  # a free variable has no binder: its name is all it has
        parts.append(_plain(tuple(name_of(variable))))
    return hashlib.blake2b(b"".join(parts), digest_size=16, person=b"plica").hexdigest()


def alpha_equal(a: Term, b: Term) -> bool:
    """Whether the two differ at most in the names of bound variables."""
    return a is b or digest(a) == digest(b)


def first_difference(a: Term, b: Term) -> Path | None:
    """The path to the first subterm in which `a` and `b` differ, None where they are equal."""
    a, b = a.canonical(), b.canonical()
    left, right = summaries(a), summaries(b)
    partner: dict[Term, Term] = {}
    path: list[str | int] = []
    if _same(left[a], right[b], partner):
        return None
    while type(a) is type(b) and len(a._children) == len(b._children):
        if a is not b and _own_data(a) != _own_data(b):
            break
        _pair_binders(a, b, partner)
        for (step, x), (_, y) in zip(steps(a), steps(b), strict=True):
            if not _same(left[x], right[y], partner):
                path.extend(step)
                a, b = x, y
                break
        else:
            break  # the same parts in another scope: the difference is here
    return tuple(path)


def at(term: Term, path: Path) -> Term:
    """The subterm that `path` leads to."""
    value: Any = term
    for step in path:
        value = getattr(value, step) if isinstance(step, str) else value[step]
    return value  # type: ignore[no-any-return]  # a path leads to a term


def steps(node: Term) -> list[tuple[Path, Term]]:
    """Each child with the path from its parent, in the order of `children`."""
    found: list[tuple[Path, Term]] = []
    for name in field_names(type(node)):
        _steps_into(getattr(node, name), (name,), found)
    return found


def summaries(root: Term) -> dict[Term, Summary]:
    """For every node below `root`: its hash and its free variables in order of occurrence."""
    memo: dict[Term, Summary] = {}
    pool: dict[tuple[Term, ...], tuple[Term, ...]] = {}
    codes: dict[tuple[int, ...], bytes] = {}
    tags: dict[type[Term], bytes] = {}
    for node in post_order(root):
        cls = type(node)
        tag = tags.get(cls)
        if tag is None:
            tag = tags[cls] = _plain(cls.tag())
        kids = node._children
        parts = [tag, _own_data(node)]
        if cls.binds:
            memo[node] = _binding_summary(node, memo, parts)
            continue
        free: tuple[Term, ...] = ()
        for kid in kids:
            theirs = memo[kid][1]
            if theirs is not free and theirs:
                free = tuple(dict.fromkeys(free + theirs)) if free else theirs
                free = pool.setdefault(free, free)
        if cls.variable and node not in free:
            free = (node, *free)
            free = pool.setdefault(free, free)
        place: dict[Term, int] | None = None
        for kid in kids:
            inner, theirs = memo[kid]
            parts.append(inner)
            if theirs is free:
                parts.append(b"=")
            else:
                if place is None:
                    place = {v: i for i, v in enumerate(free)}
                index = tuple([place[v] for v in theirs])
                code = codes.get(index)
                if code is None:
                    code = codes[index] = _code(index, len(free))
                parts.append(code)
        memo[node] = hashlib.blake2b(b"".join(parts), digest_size=16).digest(), free
    return memo


def _code(index: tuple[int, ...], width: int) -> bytes:
    if index == tuple(range(width)):
        return b"="  # however it was found out, the same mapping is written the same way
    return b"#" + _WORD(len(index)) + b"".join(map(_WORD, index))


def _binding_summary(node: Term, memo: dict[Term, Summary], parts: list[bytes]) -> Summary:
    """As for other nodes, but bound variables are numbered by their binder, from 2^31 up."""
    number: dict[Term, int] = {}
    scopes: dict[str, set[Term]] = {}
    for own, scope, variables in bound_by(node):
        for variable in variables:
            number.setdefault(variable, 2**31 + len(number))
        for name in (own, *scope):
            scopes.setdefault(name, set()).update(variables)
    free: dict[Term, int] = {}
    for name, kid in fields_of_children(node):
        inner, theirs = memo[kid]
        bound = scopes.get(name, ())
        parts.append(inner)
        parts.append(_WORD(len(theirs)))
        for variable in theirs:
            code = number[variable] if variable in bound else free.setdefault(variable, len(free))
            parts.append(_WORD(code))
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest(), tuple(free)


def _own_data(node: Term) -> bytes:
    """What a node says itself, apart from its children and its names."""
    cls = type(node)
    if cls._simple:
        return b""
    parts = []
    for name, kind in zip(field_names(cls), field_kinds(cls), strict=True):
        if kind is PLAIN or kind is MIXED:
            parts.append(_plain(getattr(node, name)))
        elif kind is MANY:
            parts.append(_WORD(len(getattr(node, name))))
    return b"".join(parts)


def _plain(value: Any) -> bytes:
    """A canonical, prefix-free encoding of plain data; names and terms leave only their mark."""
    kind = type(value)
    if kind is str:
        raw = value.encode()
        return b"s" + _WORD(len(raw)) + raw
    if kind is bool:
        return b"1" if value else b"0"
    if kind is int:
        raw = str(value).encode()
        return b"i" + _WORD(len(raw)) + raw
    if kind is float:
        return b"d" + _DOUBLE(value)
    if value is None:
        return b"."
    if kind is Name:
        return b"n"
    if kind is bytes:
        return b"b" + struct.pack("<Q", len(value)) + value
    if kind is tuple:
        return b"(" + _WORD(len(value)) + b"".join(map(_plain, value))
    if isinstance(value, Term):
        return b"t"
    raise TypeError(f"A term holds {value!r}, which is neither a term nor plain data.")


def _same(a: Summary, b: Summary, partner: dict[Term, Term]) -> bool:
    """Whether two summaries agree when bound variables of one stand for those of the other."""
    return a[0] == b[0] and all(partner.get(x, x) is y for x, y in zip(a[1], b[1], strict=True))


def _pair_binders(a: Term, b: Term, partner: dict[Term, Term]) -> None:
    for (_, _, ours), (_, _, theirs) in zip(bound_by(a), bound_by(b), strict=True):
        partner.update(zip(ours, theirs, strict=False))


def _steps_into(value: Any, path: Path, found: list[tuple[Path, Term]]) -> None:
    if isinstance(value, Term):
        found.append((path, value))
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            _steps_into(item, (*path, i), found)
