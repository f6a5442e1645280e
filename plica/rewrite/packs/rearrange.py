"""Rearrangements: the algebra of operators that repeat, turn, pad, join and split elements.

Measure: operators, then attributes that are not explicit.  What needs a known size does not apply
to a symbolic one.  No element is computed here: every rule is exact.

>>> [rule.name for rule in REPETITIONS][:2]
['flip-flip', 'flip-of-ones']
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from plica.core import Term
from plica.ir.graph.expression import Project
from plica.ir.type import known, same_dim
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.axes import NoLonger, exclusive, flipped, longer
from plica.rewrite.packs.per_axis import widths_together
from plica.rewrite.packs.shape import is_order
from plica.rewrite.packs.word import LikeLeft, op, refilled, reshaped, shape, v, x, y
from plica.rewrite.pattern import Rest, derived, hole, holes

transpose, broadcast_to, flip = map(op, ["transpose", "broadcast_to", "flip"])
tile, repeat, roll, pad, concat, stack = map(
    op, ["tile", "repeat", "roll", "pad", "concat", "stack"]
)
split, tril, triu, upsample = map(op, ["split", "tril", "triu", "nn.upsample"])
space_to_depth, depth_to_space = op("nn.space_to_depth"), op("nn.depth_to_space")

# Any: holes for attributes.
a, o, t, u = holes("a o t u")
p: Any = hole("p", when=is_order)


def are_ones(reps: Any) -> bool:
    """Whether a tile repeats nothing."""
    return isinstance(reps, tuple) and set(reps) <= {1}


ones: Any = hole("ones", when=are_ones)


def are_zeros(shifts: Any) -> bool:
    """Whether a roll moves nothing."""
    return isinstance(shifts, tuple) and set(shifts) <= {0}


zeros: Any = hole("zeros", when=are_zeros)


def is_zero(widths: Any) -> bool:
    pairs = widths if isinstance(widths, tuple) else ((widths,),)
    return not any(number for pair in pairs for number in pair)


def tiled_once(match: PatternMatch) -> Term:
    """One tile for two, aligned at the last axis."""
    rank = max(len(match.a), len(match.o))
    first, second = ((1,) * (rank - len(reps)) + reps for reps in (match.a, match.o))
    done: Term = tile(match.x, tuple(i * j for i, j in zip(first, second, strict=True)))
    return done


@attrs.frozen
class RepeatsOnes:
    """A guard: what a tile or a repetition repeats has the size 1."""

    name: str
    repeats: str
    axis: str = ""

    def __call__(self, match: PatternMatch) -> bool:
        sizes, repeats = shape(match[self.name]), match[self.repeats]
        if self.axis:
            return known(sizes[match[self.axis]]) == 1
        pairs = zip(sizes[::-1], repeats[::-1], strict=False)
        return all(times == 1 or known(size) == 1 for size, times in pairs)


def rolled_once(match: PatternMatch) -> Term:
    """One roll for two."""
    shifts = [
        given * len(axes) if len(given) == 1 else given
        for given, axes in ((match.a, match.o), (match.t, match.u))
    ]
    done: Term = roll(match.x, shifts[0] + shifts[1], match.o + match.u)
    return done


@attrs.frozen
class AreHalves:
    """A guard: two tensors are as long along an axis."""

    first: str
    second: str
    axis: str

    def __call__(self, match: PatternMatch) -> bool:
        sizes, others, at = shape(match[self.first]), shape(match[self.second]), match[self.axis]
        return at < len(sizes) and same_dim(sizes[at], others[at])


@attrs.frozen
class CutBehind:
    """A guard: the only cut of a split is at the end of a tensor."""

    cuts: str
    name: str
    axis: str

    def __call__(self, match: PatternMatch) -> bool:
        cuts, size = match[self.cuts], shape(match[self.name])[match[self.axis]]
        return isinstance(cuts, tuple) and len(cuts) == 1 and same_dim(cuts[0], size)


def without_empty(match: PatternMatch) -> Term | None:
    """A concat without parts that have no elements."""
    every = (match.x, *match.s)
    kept = tuple([part for part in every if known(shape(part)[match.a]) != 0])
    if len(kept) == len(every):
        return None
    done: Term = concat(kept, axis=match.a) if kept else match.x
    return done


def parts(count: int) -> tuple[Any, Any]:
    """`x` split evenly and joined again, and `x`."""
    whole = split(x, count, axis=a)
    return concat(tuple(Project(whole, at) for at in range(count)), axis=a), x


@derived
def smaller(first: int, second: int) -> int:
    """The smaller of two numbers."""
    return min(first, second)


@derived
def larger(first: int, second: int) -> int:
    """The larger of two numbers."""
    return max(first, second)


def concat_of_transposed(match: PatternMatch) -> Term | None:
    done: Term = transpose(concat((match.x, match.y), axis=match.p[match.a]), match.p)
    return done


# fmt: off
# ruff: noqa: E501  # a rule is one line
REPETITIONS: Final = (
    rule("flip-flip",                   flip(flip(x, a), o),                          flipped(x, exclusive(a, o, x))),
    rule("flip-of-ones",                flip(x, a),                                   flipped(x, longer(a, x))),
    rule("tile-once",                   tile(x, ones),                                x, when=NoLonger("ones", "x")),
    rule("tile-tile",                   tile(tile(x, a), o),                          tiled_once),
    rule("tile-of-ones",                tile(x, a),                                   LikeLeft(tile(x, a), x, "broadcast_to", always=True), when=RepeatsOnes("x", "a")),
    rule("repeat-once",                 repeat(x, 1, a),                              x),
    rule("repeat-of-one",               repeat(x, a, o),                              LikeLeft(repeat(x, a, o), x, "broadcast_to", always=True), when=RepeatsOnes("x", "a", "o")),
    rule("upsample-once",               upsample(x, 1),                               x),
    rule("roll-nothing",                roll(x, zeros, a),                            x),
    rule("roll-roll",                   roll(roll(x, a, o), t, u),                    rolled_once),
    rule("pad-nothing",                 pad(x, hole("w", when=is_zero), t, u),        x),
    rule("pad-pad",                     pad(pad(x, a, "constant", u), o, "constant", u), pad(x, widths_together(a, o, x), "constant", u)),
    rule("tril-tril",                   tril(tril(x, a), o),                          tril(x, smaller(a, o))),
    rule("triu-triu",                   triu(triu(x, a), o),                          triu(x, larger(a, o))),
    rule("flip-of-filled",              flip(broadcast_to(v, t), a),                  broadcast_to(v, t)),
    rule("roll-of-filled",              roll(broadcast_to(v, t), a, o),               broadcast_to(v, t)),
    rule("tile-of-filled",              *refilled(tile(broadcast_to(v, t), a))),
    rule("repeat-of-filled",            *refilled(repeat(broadcast_to(v, t), a, o))),
    rule("depth-of-space",              depth_to_space(space_to_depth(x, a), a),      x),
    rule("space-of-depth",              space_to_depth(depth_to_space(x, a), a),      x),
)
JOINS: Final = (
    rule("stack-of-one",                *reshaped(stack((x,), axis=a))),
    rule("concat-of-one",               concat((x,), axis=a),                         x),
    rule("concat-of-nothing",           concat((x, Rest("s")), axis=a),               without_empty),
    rule("concat-first-concat",         concat((concat((Rest("s"),), axis=a), Rest("t")), axis=a), concat((Rest("s"), Rest("t")), axis=a)),
    rule("concat-second-concat",        concat((x, concat((Rest("s"),), axis=a), Rest("t")), axis=a), concat((x, Rest("s"), Rest("t")), axis=a)),
    rule("concat-of-transposes",        concat((transpose(x, p), transpose(y, p)), axis=a), concat_of_transposed),
    *(rule(f"concat-of-{word}-parts",   *parts(count))                                for word, count in (("two", 2), ("three", 3), ("four", 4))),
    rule("split-in-one",                Project(split(x, 1, axis=a), 0),              x),
    rule("split-at-end",                Project(split(x, t, axis=a), 0),              x, when=CutBehind("t", "x", "a")),
    rule("first-half-of-concat",        Project(split(concat((x, y), axis=a), 2, axis=a), 0), x, when=AreHalves("x", "y", "a")),
    rule("second-half-of-concat",       Project(split(concat((x, y), axis=a), 2, axis=a), 1), y, when=AreHalves("x", "y", "a")),
    rule("before-seam-of-concat",       Project(split(concat((x, y), axis=a), t, axis=a), 0), x, when=CutBehind("t", "x", "a")),
    rule("after-seam-of-concat",        Project(split(concat((x, y), axis=a), t, axis=a), 1), y, when=CutBehind("t", "x", "a")),
)
# fmt: on

REARRANGE: Final[Pack] = pack(
    "rearrange",
    REPETITIONS,
    JOINS,
    version="1",
    doc="The algebra of repeating, joining and splitting.",
)
