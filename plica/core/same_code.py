"""Same code: whether two functions were written alike, so that registering one again is nothing.

Rerunning a notebook cell or reloading a module makes new functions with the same text. Two
functions are equal if their bytecode, constants, defaults, closures and the functions of their own
module that they call are equal; their source location does not count.

>>> def scaled(k): return lambda x: x * k
>>> same_code(scaled(2), scaled(2)), same_code(scaled(2), scaled(3))
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from attrs import fields, has


def same_code(a: Any, b: Any) -> bool:  # Any: functions, and whatever they close over
    """Whether two values are equal, comparing functions by their code."""
    pairs, seen = [(a, b)], set[tuple[int, int]]()
    while pairs:
        one, other = pairs.pop()
        if one is other or (id(one), id(other)) in seen:
            continue
        seen.add((id(one), id(other)))
        if type(one) is not type(other):
            return False
        if (inside := _inside(one)) is None:
            if one != other:
                return False
            continue
        beside = _inside(other)
        if beside is None or len(inside) != len(beside):
            return False
        pairs.extend(zip(inside, beside, strict=True))
    return True


def _inside(of: Any) -> list[Any] | None:  # Any: as above
    """The parts that decide equality of a composite value; None for a value that is compared
    directly."""
    if isinstance(of, FunctionType):
        called = [of.__globals__.get(name) for name in _names(of.__code__)]
        mine = [each for each in called if getattr(each, "__module__", None) == of.__module__]
        cells = [each.cell_contents for each in of.__closure__ or ()]
        return [of.__code__, of.__defaults__, of.__kwdefaults__, *cells, *filter(_is_code, mine)]
    if isinstance(of, CodeType):
        return [of.co_code, of.co_names, of.co_varnames, of.co_freevars, *of.co_consts]
    if isinstance(of, partial):
        return [of.func, of.args, of.keywords]
    if isinstance(of, tuple | list):
        return list(of)
    if isinstance(of, Mapping):
        return [list(of), *of.values()]
    if has(type(of)) and not isinstance(of, type):
        return [getattr(of, field.name) for field in fields(type(of))]
    return None


def _names(of: CodeType) -> list[str]:
    """The global names that some code speaks of, its inner functions' too."""
    inner = [name for each in of.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return [*of.co_names, *inner]


def _is_code(of: Any) -> bool:  # Any: as above
    return isinstance(of, FunctionType)
