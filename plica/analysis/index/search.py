"""Search: small points at which a condition fails, found by looking.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import Eq
>>> from plica.analysis.index.context import EMPTY
>>> x = dim_var("x")
>>> counterexample(Eq((x + 1) // 2, x // 2 + 1), EMPTY)
{ScalarVar(Name(hint='x', index=0), DType('i64')): 0}

Points are made of the numbers that the condition mentions, their neighbours and the ends of ranges:
that is where wrong rules are wrong.  The one found is made as small as it gets.
"""

from __future__ import annotations

import random
from typing import Final

import numpy as np

from plica.analysis.index.bounds import knowledge, of_term
from plica.analysis.index.context import Context
from plica.analysis.index.point import Values, all_values, atoms, structure_nodes, value
from plica.ir.loop.scalar import Lit, Scalar, dtype_of
from plica.ir.type import bool_

POINTS: Final = 4_096
MACHINE_INTEGER_LIMIT: Final = 1 << 62  # numbers below are put into arrays of machine integers


def counterexample(condition: Scalar, context: Context) -> dict[Scalar, int] | None:
    """A point that the context allows and where the condition is false; None: none was met."""
    said = context.conditions()
    unknowns = atoms(condition, *said)
    columns = _columns(unknowns, condition, context)
    truth, *allowed = all_values((condition, *said), columns)
    wrong = ~truth
    for each in allowed:
        wrong &= each
    if not wrong.any():
        return None
    best = 0
    if columns:
        sizes = [_size(column[wrong].astype(np.int64)) for column in columns.values()]
        best = int(np.argmin(np.sum(sizes, axis=0)))
    point = {unknown: int(columns[unknown][wrong][best]) for unknown in unknowns}
    return smallest(condition, context, point)


def _size(of: Values) -> Values:
    """Small numbers first, and of two that differ in sign the positive one."""
    return 2 * np.minimum(np.abs(of), 1 << 40) + (of < 0)


def smallest(condition: Scalar, context: Context, point: dict[Scalar, int]) -> dict[Scalar, int]:
    """A counterexample shrunk: each unknown towards 0 as far as it stays one."""
    tries = MAX_TRIES
    changed = True
    while changed and tries > 0:
        changed = False
        for unknown, old in point.items():
            sign, size = (1, old) if old > 0 else (-1, -old)
            for less in sorted({0, size // 2, size - size // 4, size - 1}):
                if not 0 <= less < size:
                    continue
                tries -= 1
                new = {**point, unknown: sign * less}
                if fails(new, condition, context):
                    point = new
                    changed = True
                    break
    return point


MAX_TRIES: Final = 240


def fails(point: dict[Scalar, int], condition: Scalar, context: Context) -> bool:
    """Whether the context allows the point and the condition is false there."""
    return all(value(each, point) for each in context.conditions()) and not value(condition, point)


def _columns(
    unknowns: tuple[Scalar, ...], condition: Scalar, context: Context
) -> dict[Scalar, Values]:
    """Arrays of points: all combinations where they are few, a fixed sample otherwise."""
    numbers = _numbers((condition, *context.conditions()))
    known = knowledge(context)
    choices: dict[Scalar, list[int]] = {}
    for unknown in unknowns:
        if dtype_of(unknown) is bool_:
            choices[unknown] = [0, 1]
            continue
        low, high = of_term(unknown, known)
        ends = [e + k for e in (low, high) if e is not None for k in (0, 1, -1)]
        near = [s * n + k for n in numbers for s in (1, -1) for k in (0, 1, -1)]
        pool = dict.fromkeys([*range(-4, 5), *ends, *near, *range(-9, 10)])
        choices[unknown] = [
            v for v in pool if (low is None or low <= v) and (high is None or v <= high)
        ] or [0 if low is None else low]
    total = 1
    for options in choices.values():
        total *= len(options)
    if total <= POINTS:
        return _product(choices)
    source = random.Random(0)
    head = min(POINTS // 2, 9 ** min(len(unknowns), 3))
    columns: dict[Scalar, Values] = {}
    for number, (unknown, options) in enumerate(choices.items()):
        small = [options[(i // 9**number) % min(9, len(options))] for i in range(head)]
        rest = source.choices(options, k=POINTS - head)
        kind = np.bool_ if dtype_of(unknown) is bool_ else object
        columns[unknown] = _packed([*small, *rest], kind)
    return columns


def _product(choices: dict[Scalar, list[int]]) -> dict[Scalar, Values]:
    total = 1
    for options in choices.values():
        total *= len(options)
    columns: dict[Scalar, Values] = {}
    inner = total
    for unknown, options in choices.items():
        inner //= len(options)
        kind = np.bool_ if dtype_of(unknown) is bool_ else object
        columns[unknown] = np.resize(np.repeat(_packed(options, kind), inner), total)
    return columns


def _packed(of: list[int], kind: type) -> Values:
    if kind is object and max(map(abs, of), default=0) < MACHINE_INTEGER_LIMIT:
        return np.array(of, dtype=np.int64)
    return np.array(of, dtype=kind)


def _numbers(terms: tuple[Scalar, ...]) -> list[int]:
    literals = [node for node in structure_nodes(*terms) if isinstance(node, Lit)]
    return sorted({abs(int(literal.value)) for literal in literals})[:24]
