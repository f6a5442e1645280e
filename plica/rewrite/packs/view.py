"""Views first: a reshape of a slice, cast or transpose becomes a reshape of the tensor in memory.

Measure: casts, slices, transposes and layers below reshapes, then transposes below layers. A
reshape of memory is free, so users can read slices, casts and transposes of a tensor in place:
attention heads are slices of one product, and are not copied. The rows of a layer may be permuted,
so a transpose of them is applied to its result, where it meets the inverse transpose.

No element is computed here: every rule is exact.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.pack import rewrite
>>> x = Var(Name("x"), tensor((5, 24), "f16"))
>>> heads = rewrite(reshape(slice_(x, (8,), (16,), None, (1,)), (5, 2, 4)), VIEWS)[0]
>>> heads is slice_(reshape(x, (5, 6, 4)), (2,), (4,), None, (1,))
True
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
from attrs import evolve

from plica.core import Name, Term
from plica.ir.graph.expression import Expr, Var, const
from plica.ir.type import f32, known, same_dim, tensor
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.cut import CUT, cuts, numbers, sliced
from plica.rewrite.packs.motion import MOTION
from plica.rewrite.packs.shape import ARRANGEMENTS, is_explicit, is_order
from plica.rewrite.packs.word import c, op, shape, x
from plica.rewrite.pattern import hole, holes

slice_, reshape, cast, transpose = map(op, ["slice", "reshape", "cast", "transpose"])
dense, add, broadcast_to, repeat = map(op, ["nn.dense", "add", "broadcast_to", "repeat"])

# Any: holes for attributes.
a, i, j, o, s, t, w = holes("a i j o s t w")
p: Any = hole("p", when=is_order)
r: Any = hole("r", when=is_explicit)
q: Any = hole("q", when=is_explicit)
n: Any = hole("n", dtypes=("f16", "bf16"))


def cut_later(match: PatternMatch) -> Term | None:
    """A slice of a reshape for a reshape of a slice that cuts whole groups of one axis.

    Axes of extent one may be added or removed anywhere.
    """
    sizes = [known(size) for size in shape(match.x)]
    new = [known(size) for size in match.r]
    found = {axis: numbers(each)
             for axis, each in cuts(shape(match.x), match.i, match.j, match.s, match.a).items()}  # fmt: skip
    if len(found) != 1 or None in sizes or None in new:
        return None
    ((at, told),) = found.items()
    whole, wanted = [size or 0 for size in sizes], [size or 0 for size in new]
    if told is not None and told[1:] == (1, 1) and at < len(whole) - 1:
        return _joined(match, at, told[0], whole)
    lead = prod(whole[:at])
    first = next((p for p, size in enumerate(wanted) if size != 1 and prod(wanted[:p]) == lead), 0)
    last = next((e for e in range(first + 1, len(wanted) + 1)
                 if prod(wanted[e:]) == prod(whole[at + 1 :])), 0)  # fmt: skip
    group = prod(wanted[first + 1 : last])
    if told is None or told[1] != 1 or last <= first or prod(wanted[:first]) != lead:
        return None
    if prod(wanted[first:last]) != told[2] or not group or whole[at] % group or told[0] % group:
        return None
    around = [[size for size in each if size != 1] for each in
              (wanted[:first], whole[:at], wanted[last:], whole[at + 1 :])]  # fmt: skip
    if around[0] != around[1] or around[2] != around[3]:
        return None
    before = (*wanted[:first], whole[at] // group, *wanted[first + 1 :])
    return sliced(reshape(match.x, before), {first: (told[0] // group, 1, wanted[first])})


def _joined(match: PatternMatch, at: int, place: int, sizes: list[int]) -> Term | None:
    """One of an axis: a cut of that axis and the next as one."""
    near = sizes[at + 1]
    if not near:
        return None
    whole = reshape(match.x, (*sizes[:at], sizes[at] * near, *sizes[at + 2 :]))
    done: Term = reshape(sliced(whole, {at: (place * near, 1, near)}), match.r)
    return done


def _segments(old: list[int], new: list[int]) -> list[tuple[range, range]] | None:
    """Axes of a shape and of another of as many elements that stand for one another, in order."""
    found: list[tuple[range, range]] = []
    first = second = 0
    while first < len(old) or second < len(new):
        begin, start, left, right = first, second, 1, 1
        while first == begin or second == start or left != right:
            if (left <= right and first < len(old)) or second == len(new):
                if first == len(old):
                    break
                left, first = left * old[first], first + 1
            else:
                right, second = right * new[second], second + 1
        found.append((range(begin, first), range(start, second)))
    return found


def turned_later(match: PatternMatch) -> Term | None:
    """A transpose of a reshape for a reshape of a transpose.

    Merged axes must be adjacent in memory. If some are not, rows come in memory order, and are
    transposed afterwards.
    """
    sizes, new = ([known(size) for size in each] for each in (shape(match.x), match.r))
    if not all(sizes) or not all(new):
        return None
    whole = [size or 0 for size in sizes]
    wanted = [size or 0 for size in new]
    parts = _segments([whole[at] for at in match.p], wanted)
    if parts is None:
        return None
    inner = [[match.p[at] for at in old] for old, _ in parts]
    order = sorted(range(len(parts)), key=lambda at: min(inner[at], default=-1))
    flat = [axis for at in order for axis in inner[at]]
    if flat != sorted(flat):
        order = sorted(range(len(parts) - 1), key=lambda at: min(inner[at], default=-1))
        order.append(len(parts) - 1)
        flat = [axis for at in order for axis in inner[at]]
    if order == sorted(order):
        return None
    after = [axis for at in order for axis in parts[at][1]]
    plain = reshape(transpose(match.x, tuple(flat)) if flat != sorted(flat) else match.x,
                    tuple([wanted[axis] for axis in after]))  # fmt: skip
    done: Term = transpose(plain, tuple([after.index(axis) for axis in range(len(wanted))]))
    return done


def rows_later(match: PatternMatch) -> Term | None:
    """A layer of transposed rows: its result is transposed instead."""
    last = len(match.p) - 1
    done: Term | None = None
    if match.p[-1] == last and last > 1:
        done = transpose(dense(match.x, match.w), match.p)
    return done


def rows_kept(match: PatternMatch) -> Term | None:
    """A layer of rows that were joined or split: its result is."""
    deep = known(match.r[-1]) if match.r else None
    done: Term | None = None
    if deep and len(shape(match.x)) > 1 and known(shape(match.x)[-1]) == deep:
        rows = dense(match.x, match.w)
        done = reshape(rows, (*match.r[:-1], shape(match.w)[0]))
    return done


def rows_so(match: PatternMatch) -> Term | None:
    """A layer whose rows have the shape wanted for its result."""
    deep, wide = shape(match.w)[-1], shape(match.w)[0]
    if len(match.q) < len(match.r) or not same_dim(match.q[-1], wide) or not known(wide):
        return None
    if not shape(match.x) or same_dim(shape(match.x)[-1], deep):
        return None  # rows may as well be joined or split behind the layer
    done: Term = dense(reshape(match.x, (*match.q[:-1], deep)), match.w)
    return done


def rows_so_biased(match: PatternMatch) -> Term | None:
    """The same, of a layer that adds a row of constants."""
    plain = rows_so(match) if match.c.shape == (known(shape(match.w)[0]),) else None
    done: Term | None = None if plain is None else add(plain, match.c)
    return done


def rows_apart(match: PatternMatch) -> Term | None:
    """A layer of rows that were merged after a transpose: they are merged behind it."""
    turned = [known(shape(match.x)[at]) for at in match.p]
    new = [known(size) for size in match.r]
    if None in turned or None in new or len(turned) <= len(new) or match.p[0] == 0:
        return None
    lead, terms = len(turned), 1
    while terms < (new[-1] or 0):
        lead -= 1
        terms *= turned[lead] or 0
    if terms != new[-1] or lead < len(new):
        return None
    rows = reshape(transpose(match.x, match.p), (*turned[:lead], terms))
    done: Term = reshape(dense(rows, match.w), (*match.r[:-1], shape(match.w)[0]))
    return done


def biased_before(match: PatternMatch) -> Term | None:
    """A reshape of a sum with a constant per column, which the reshape keeps."""
    one, other, bias = shape(match.x), match.r, match.c.shape
    if not one or not bias or len(bias) > len(other) or prod(bias[:-1]) != 1:
        return None
    if not known(one[-1]) == known(other[-1]) == bias[-1]:
        return None
    row = const(match.c.numpy().reshape(bias[-1:]), match.c.dtype)
    done: Term = reshape(add(match.x, row), match.r)
    return done


def repeated(match: PatternMatch) -> Term | None:
    """A repetition of neighbours for a reshape of a broadcast along an axis of one."""
    old, wide = ([known(each) for each in of] for of in (shape(match.x), match.t))
    sizes = [1] * (len(wide) - len(old)) + old
    grown = [at for at, size in enumerate(sizes) if size != wide[at]]
    if len(grown) != 1 or grown[0] == 0 or not all(wide) or None in sizes:
        return None
    (at,) = grown
    near = reshape(match.x, (*sizes[:at], *sizes[at + 1 :]))
    done: Term = reshape(repeat(near, wide[at], at - 1), match.r)
    return done


def _groups(choose: Any) -> Expr:  # Any: a chooser is generic in what it chooses from
    """Heads that several queries share, as a broadcast along a new axis."""
    few, many, deep = (choose((1, 2, 3)) for _ in range(3))
    heads = Var(Name("x"), tensor((few, 1, deep), choose(("f16", "f32", "i32"))))
    done: Expr = reshape(broadcast_to(heads, (few, many + 1, deep)), (few * (many + 1), deep))
    return done


def _heads(choose: Any) -> Expr:  # Any: as above
    """A layer of concatenated heads."""
    batch, long, heads, deep = (choose((2, 3)) for _ in range(4))
    mixed, weight = _inputs((batch, heads, long, deep), (choose((1, 3)), heads * deep))
    done: Expr = dense(
        reshape(transpose(mixed, (2, 0, 1, 3)), (batch * long, heads * deep)), weight
    )
    return done


def _rows(choose: Any) -> Expr:  # Any: as above
    """A layer with its rows in a shape, and its result in another."""
    few, deep, wide = (choose((2, 3)) for _ in range(3))
    data, weight = _inputs((few, deep, 1), (wide, deep))
    biased = add(dense(reshape(data, (few, deep)), weight), const(np.ones(wide, np.float32), f32))
    done: Expr = reshape(biased, (1, few, wide))
    return done


def _inputs(*shapes: tuple[int, ...]) -> list[Var]:
    return [Var(Name("x", at), tensor(each, "f32")) for at, each in enumerate(shapes)]


# fmt: off
# ruff: noqa: E501  # a rule is one line
VIEW: Final[Pack] = pack(
    "view",
    rule("reshape-of-widened",    reshape(cast(n, dtype=o), r),                 cast(reshape(n, r), dtype=o)),
    rule("reshape-of-slice",      reshape(slice_(x, i, j, s, a), r),            cut_later),
    rule("reshape-of-transpose",  reshape(transpose(x, p), r),                  turned_later),
    evolve(rule("reshape-of-broadcast", reshape(broadcast_to(x, t), r),         repeated), instances=_groups),
    rule("dense-of-transpose",    dense(transpose(x, p), w),                    rows_later),
    rule("dense-of-reshape",      dense(reshape(x, r), w),                      rows_kept),
    evolve(rule("dense-of-joined-rows", dense(reshape(transpose(x, p), r), w),  rows_apart), instances=_heads),
    rule("reshape-of-layer",      reshape(dense(reshape(x, r), w), q),          rows_so),
    evolve(rule("reshape-of-biased-layer", reshape(add(dense(reshape(x, r), w), c), q), rows_so_biased), instances=_rows),
    rule("add-of-reshape-bias",   add(reshape(x, r), c),                        biased_before),
    version="3",
    doc="Reshapes become those of memory; rows of layers are turned behind them.",
)
# fmt: on

MEETING: Final = frozenset({
    "reshape-reshape", "reshape-same", "slice-of-transpose", "slice-slice", "slice-whole",
    "transpose-identity", "transpose-of-ones", "transpose-transpose",
})  # fmt: skip
"""Rules by which arrangements that meet become one, or none."""

VIEWS: Final[Pack] = pack(
    "views",
    VIEW,
    [each for each in (*ARRANGEMENTS, *CUT) if each.name in MEETING],
    [each for each in MOTION if "transpose" in each.name],
    version="2",
    doc="Everything that lets products read and write where things lie.",
)
