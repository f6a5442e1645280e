"""What threads of a warp do with registers that they read of one another, as one thread sees it.

Sums of tensor cores are distributed over the registers of a warp: of a square of 8 columns each of
a row's four threads holds two. The memory scope `warp` represents that: its first axis is the lane,
the others are its registers. An intrinsic reads those of a row's four threads, without shared
memory:

    warp_mma    c[half, pair] += a[t, half, h, p] * b[8 * h + 2 * t + p, pair]     for all t, h, p
                (of f32 without h, and rows of b are in the order p, t)
    row_max     c[half] = max(c[half], a[t, half, j, p])                           for all t, j, p
    row_sum     c[half] += a[t, half]                                              for all t
    row_power   a[half, j, p] = 2 ** (a[half, j, p] * k[half] - b[half]); c[half] += a[half, j, p]
    lanes_sum   c[i] += a[t, i]                  for all t of some threads; so are max, min and prod
    quad_mma    c[half, pair] += a[t, half, n, e] * b[4 * pair + t, n, e]          for all t, n, e
    quad_mix    c[i, half, pair] += a[t, k, 2 * i + half] * b[4 * pair + t, k]     for all t, k

A thread's own register operations on several numbers at a time are intrinsics, too:

    restored    c[p] = (number p of the word a - z) * s, rounded once

So the sums of one product are a side of the next: rounded to its dtype, as tensor cores need it.

>>> warp_mma(2, 8).name, row_max(2, 8).name, lanes_sum(16, 1).name
('cuda.warp_mma_f16_2x8', 'cuda.row_max_2x8', 'cuda.lanes_sum_f32_16x1')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final

from plica.ir.loop.combiner import MEANING
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.invocation import TensorIntrinsic, register_family
from plica.ir.loop.scalar import (
    BitAnd,
    Buffer,
    Cast,
    Combiner,
    Intrinsic,
    Lit,
    Max,
    Scalar,
    ScalarVar,
    ShiftRight,
    index,
)
from plica.ir.loop.statement import For, Invoke, Kernel, Region, Stmt, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type import DType, bf16, f16, f32, f64, i8, i32, i64, known, u8
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS, STEPS, group_mma, mma

JOINED: Final[tuple[Combiner, ...]] = ("sum", "prod", "max", "min")
SHUFFLED: Final = (f32, f64, i32, i64)
"""What registers hold as memory does: others are not shuffled."""


@lru_cache(maxsize=64)
def warp_mma(high: int, wide: int, dtype: DType = f16) -> TensorIntrinsic:
    """Products of a warp's registers with 16 rows of a matrix, for a number of squares; with 8 rows
    for f32, odd rows after the even ones."""
    if dtype is f32:
        return _wide_warp_mma(high, wide)
    a = buffer("a", (QUADS, high, 2, 2, 2), f32)
    b = buffer("b", (wide, 2, OCTET, 2), dtype)
    c = buffer("c", (high, 2, wide, 2), f32)

    def total(at: Mapping[str, ScalarVar]) -> Store:
        t, i, half, j, pair, h, p = (at[word] for word in ("t", "i", "half", "j", "pair", "h", "p"))
        left = Cast(Cast(a[t, i, half, h, p], dtype), f32)
        place = (i, half, j, pair)
        return Store(c, place, c[place] + left * Cast(b[j, h, t * 2 + p, pair], f32))

    extents = {"i": high, "half": 2, "j": wide, "pair": 2, "h": 2, "t": QUADS, "p": 2}
    name = f"cuda.warp_mma_{dtype.name}_{high}x{wide}"
    return _declared(name, "warp_mma", (a, b, c), extents, total)


def _wide_warp_mma(high: int, wide: int) -> TensorIntrinsic:
    a, b = buffer("a", (QUADS, high, 2, 2), f32), buffer("b", (wide, 2, QUADS, 2), f32)
    c = buffer("c", (high, 2, wide, 2), f32)

    def total(at: Mapping[str, ScalarVar]) -> Store:
        t, i, half, j, pair, p = (at[word] for word in ("t", "i", "half", "j", "pair", "p"))
        place = (i, half, j, pair)
        return Store(c, place, c[place] + a[t, i, half, p] * b[j, p, t, pair])

    extents = {"i": high, "half": 2, "j": wide, "pair": 2, "t": QUADS, "p": 2}
    return _declared(f"cuda.warp_mma_f32_{high}x{wide}", "warp_mma", (a, b, c), extents, total)


@lru_cache(maxsize=64)
def group_scores(high: int, wide: int, dtype: DType = f16) -> TensorIntrinsic:
    """Products of four warps, 64 terms, with sums as threads of a row hold them."""
    extents = {"i": high, "half": 2, "j": wide // OCTET, "o": OCTET, "pair": 2,
               "s": STEPS, "h": 2, "e": OCTET}  # fmt: skip
    left, right = _kept("i half s h e", extents), _kept("j o pair s h e", extents)
    a, b = (buffer(name, tuple([extents[each] for each in of]), dtype)
            for name, of in (("a", left), ("b", right)))  # fmt: skip
    c = buffer("c", (high, 2, wide, 2), f32)

    def total(at: Mapping[str, ScalarVar]) -> Store:
        one, other = (tuple([at[word] for word in of]) for of in (left, right))
        place = (at["i"], at["half"], at["j"] * OCTET + at["o"], at["pair"])
        return Store(c, place, c[place] + Cast(a[one], f32) * Cast(b[other], f32))

    name = f"cuda.group_scores_{dtype.name}_{high}x{wide}"
    hints = (("high", high), ("left", True), ("right", True), ("wide", wide))
    return _declared(name, "group_mma", (a, b, c), extents, total, hints=hints)


@lru_cache(maxsize=64)
def group_warp_mma(high: int, wide: int, dtype: DType = f16) -> TensorIntrinsic:
    """Products of four warps' registers with 64 rows of a matrix, for a number of squares."""
    extents = {"i": high, "half": 2, "j": wide // OCTET, "o": OCTET, "pair": 2,
               "s": STEPS, "h": 2, "t": QUADS, "p": 2}  # fmt: skip
    right = _kept("j s h e o pair", extents | {"e": OCTET})
    a = buffer("a", (QUADS, high, 2, 2 * STEPS, 2), f32)
    b = buffer("b", tuple([(extents | {"e": OCTET})[each] for each in right]), dtype)
    c = buffer("c", (high, 2, wide, 2), f32)

    def total(at: Mapping[str, ScalarVar]) -> Store:
        own: dict[str, Scalar] = {**at, "e": at["t"] * 2 + at["p"]}
        left = a[at["t"], at["i"], at["half"], at["s"] * 2 + at["h"], at["p"]]
        place = (at["i"], at["half"], at["j"] * OCTET + at["o"], at["pair"])
        weight = Cast(Cast(left, dtype), f32)
        return Store(
            c, place, c[place] + weight * Cast(b[tuple([own[each] for each in right])], f32)
        )

    name = f"cuda.group_warp_mma_{dtype.name}_{high}x{wide}"
    hints = (("high", high), ("wide", wide))
    return _declared(name, "group_warp_mma", (a, b, c), extents, total, hints=hints)


def _kept(axes: str, extents: Mapping[str, int]) -> tuple[str, ...]:
    """The axes that have several places: of others a region has many."""
    return tuple([each for each in axes.split() if extents[each] > 1])


@lru_cache(maxsize=64)
def row_max(high: int, wide: int) -> TensorIntrinsic:
    """The maximum of each row held by four threads, and of the previous value."""
    a, c = buffer("a", (QUADS, high, 2, wide, 2), f32), buffer("c", (high, 2), f32)

    def most(at: Mapping[str, ScalarVar]) -> Store:
        place = (at["i"], at["half"])
        return Store(c, place, Max(c[place], a[at["t"], at["i"], at["half"], at["j"], at["p"]]))

    extents = {"i": high, "half": 2, "t": QUADS, "j": wide, "p": 2}
    return _declared(f"cuda.row_max_{high}x{wide}", "row_max", (a, c), extents, most)


@lru_cache(maxsize=64)
def row_sum(high: int) -> TensorIntrinsic:
    """The sum of each row held by four threads, added to the previous value."""
    a, c = buffer("a", (QUADS, high, 2), f32), buffer("c", (high, 2), f32)

    def total(at: Mapping[str, ScalarVar]) -> Store:
        place = (at["i"], at["half"])
        return Store(c, place, c[place] + a[at["t"], at["i"], at["half"]])

    extents = {"i": high, "half": 2, "t": QUADS}
    return _declared(f"cuda.row_sum_{high}", "row_sum", (a, c), extents, total)


@lru_cache(maxsize=64)
def row_power(high: int, wide: int) -> TensorIntrinsic:
    """Powers of two of a thread's elements, scaled and offset per row, and their sums."""
    b, k = buffer("b", (high, 2), f32), buffer("k", (high, 2), f32)
    a, c = buffer("a", (high, 2, wide, 2), f32), buffer("c", (high, 2), f32)

    def powers(at: Mapping[str, ScalarVar]) -> Stmt:
        row = (at["i"], at["half"])
        place = (*row, at["j"], at["p"])
        return seq(
            Store(a, place, Intrinsic("exp2", (a[place] * k[row] - b[row],))),
            Store(c, row, c[row] + a[place]),
        )

    extents = {"i": high, "half": 2, "j": wide, "p": 2}
    name = f"cuda.row_power_{high}x{wide}"
    return _declared(name, "row_power", (b, k, a, c), extents, powers, outputs=2)


def lanes_sum(lanes: int, count: int) -> TensorIntrinsic:
    """Sums over a number of adjacent threads, added to the previous value."""
    return lanes_join("sum", f32, lanes, count)


def lanes_max(lanes: int, count: int) -> TensorIntrinsic:
    """Maxima over a number of adjacent threads, and of the previous value."""
    return lanes_join("max", f32, lanes, count)


@lru_cache(maxsize=256)
def lanes_join(word: Combiner, dtype: DType, lanes: int, count: int) -> TensorIntrinsic:
    """The values of adjacent threads of a warp, joined with the previous value."""
    shape = (lanes, count) if lanes > 1 else (count,)
    a, c = buffer("a", shape, dtype), buffer("c", (count,), dtype)
    _, join = MEANING[word]

    def joined(at: Mapping[str, ScalarVar]) -> Store:
        own = (at["t"], at["i"]) if lanes > 1 else (at["i"],)
        return Store(c, (at["i"],), join(c[at["i"]], a[own]))

    name = f"cuda.lanes_{word}_{dtype.name}_{lanes}x{count}"
    hints = (("lanes", lanes),)
    return _declared(name, f"lanes_{word}", (a, c), {"t": lanes, "i": count}, joined, hints=hints)


def lanes_joined(
    word: Combiner, held: Buffer, place: tuple[Scalar, int], own: Scalar, into: Buffer
) -> Stmt:
    """Joins the values of threads into a register of each: by lane and number of lanes; `held` are
    the warp registers used."""
    number, width = place
    first = number // width * width if known(held.shape[0]) != width else index(0)
    start, _ = MEANING[word]
    parts = Region(held, (first, index(0)), (index(width), index(1)))
    whole = Region(into, (index(0),), (index(1),))
    return seq(
        Store(held, (number, index(0)), own),
        Store(into, (index(0),), start(into.dtype)),
        Invoke(lanes_join(word, into.dtype, width, 1).name, (parts, whole)),
    )


# --- weights of few bits --------------------------------------------------------------------------

WORD: Final = 32  # bits of a word that packs several numbers


@lru_cache(maxsize=64)
def restored(bits: int, dtype: DType) -> TensorIntrinsic:
    """The numbers of a word, dequantised by zero point and scale: each of the lower half before the
    corresponding one of the upper half, because pairs lie in a register as they do in the word."""
    a, z, s = buffer("a", (1,), i32), buffer("z", (1,), u8), buffer("s", (1,), dtype)
    c = buffer("c", (WORD // bits,), dtype)

    def restore(at: Mapping[str, ScalarVar]) -> Store:
        number = at["p"] // 2 + at["p"] % 2 * (WORD // bits // 2)
        moved = ShiftRight(a[0], Cast(number, i32) * Lit(bits, i32))
        value = Cast(BitAnd(moved, Lit(2**bits - 1, i32)), f32) - Cast(z[0], f32)
        return Store(c, (at["p"],), Cast(value * Cast(s[0], f32), dtype))

    name = f"cuda.restored_{dtype.name}_{bits}"
    hints = (("bits", bits),)
    return _declared(name, "restored", (a, z, s, c), {"p": WORD // bits}, restore, hints=hints)


@lru_cache(maxsize=64)
def quad_mma(count: tuple[int, int], dtype: DType) -> TensorIntrinsic:
    """Products of a row held by four threads, in a number of groups of terms, with columns held
    likewise: two rows, eight apart, by two columns."""
    a, b = buffer("a", (QUADS, 2, *count), dtype), buffer("b", (2 * QUADS, *count), dtype)
    c = buffer("c", (2, 2), f32)

    def total(at: Mapping[str, ScalarVar]) -> Store:
        t, half, pair, n, e = (at[word] for word in ("t", "half", "pair", "n", "e"))
        right = Cast(b[pair * QUADS + t, n, e], f32)
        return Store(c, (half, pair), c[half, pair] + Cast(a[t, half, n, e], f32) * right)

    extents = {"half": 2, "pair": 2, "t": QUADS, "n": count[0], "e": count[1]}
    name = f"cuda.quad_mma_{dtype.name}_{count[0]}x{count[1]}"
    return _declared(name, "quad_mma", (a, b, c), extents, total, hints=(("columns", 1),))


@lru_cache(maxsize=64)
def quad_mix(dtype: DType) -> TensorIntrinsic:
    """Products of 16 rows, four per thread with eight elements each, with columns held likewise:
    sums over the elements, by two columns."""
    a, b = buffer("a", (QUADS, QUADS, OCTET), dtype), buffer("b", (2 * QUADS, QUADS), dtype)
    c = buffer("c", (OCTET // 2, 2, 2), f32)

    def total(at: Mapping[str, ScalarVar]) -> Store:
        t, k, i, half, pair = (at[word] for word in ("t", "k", "i", "half", "pair"))
        product = Cast(a[t, k, i * 2 + half], f32) * Cast(b[pair * QUADS + t, k], f32)
        return Store(c, (i, half, pair), c[i, half, pair] + product)

    extents = {"i": OCTET // 2, "half": 2, "pair": 2, "t": QUADS, "k": QUADS}
    name = f"cuda.quad_mix_{dtype.name}"
    return _declared(name, "quad_mix", (a, b, c), extents, total, hints=(("columns", 1),))


def _declared(
    name: str,
    word: str,
    buffers: tuple[Buffer, ...],
    extents: Mapping[str, int],
    body: Callable[[Mapping[str, ScalarVar]], Stmt],
    *,
    outputs: int = 1,
    hints: tuple[tuple[str, int | bool], ...] = (),
) -> TensorIntrinsic:
    axes = {extent: axis(extent) for extent in extents}
    whole = body(axes)
    for each in reversed([*extents]):
        size: Scalar = index(extents[each])
        whole = For(axes[each], size, "serial", whole)
    meaning = Kernel((), buffers, len(buffers) - outputs, whole)
    return intrinsic(name, meaning, None, (("cuda", word), *hints))


# --- by name --------------------------------------------------------------------------------------

KINDS: Final = {dtype.name: dtype for dtype in (bf16, f16, f32, f64, i8, i32, i64, u8)}
ALONG: Final = {left + right: (left == "k", right == "k") for left in "km" for right in "kn"}
HOLES: Final = {"T": "|".join(KINDS), "N": r"\d+", "A": "|".join(ALONG)}
"""What names have: dtypes, sizes, and which neighbours in memory are terms."""

# fmt: off
FAMILIES: Final[dict[str, Callable[..., TensorIntrinsic]]] = {
    "mma_T_NxN_A": lambda t, m, n, along: mma(m, n, along, t),
    "mma_T_T_NxN_A": lambda t, u, m, n, along: mma(m, n, along, t, u),
    "mma_few_T_NxN_A": lambda t, m, n, along: mma(m, n, along, t, few=True),
    "group_mma_T_NxN_A": lambda t, m, n, along: group_mma(m, n, along, t),
    "group_mma_T_T_NxN_A": lambda t, u, m, n, along: group_mma(m, n, along, t, u),
    "warp_mma_T_NxN": lambda t, m, n: warp_mma(m, n, t),
    "group_scores_T_NxN": lambda t, m, n: group_scores(m, n, t),
    "group_warp_mma_T_NxN": lambda t, m, n: group_warp_mma(m, n, t),
    "row_max_NxN": row_max, "row_power_NxN": row_power, "row_sum_N": row_sum,
    "restored_T_N": lambda t, bits: restored(bits, t),
    "quad_mma_T_NxN": lambda t, m, n: quad_mma((m, n), t),
    "quad_mix_T": quad_mix,
    **{f"lanes_{word}_T_NxN": partial(lanes_join, word) for word in JOINED},
}
# fmt: on
"""The intrinsics of any size, by their names without a prefix."""


@lru_cache(maxsize=256)
def declared(name: str) -> TensorIntrinsic | None:
    """The intrinsic of a name, which a trace that is read back may have; None of another name.

    >>> [of and of.name for of in map(declared, ("cuda.mma_f16_3x4_kn", "cuda.mma_f16_3x4"))]
    ['cuda.mma_f16_3x4_kn', None]
    """
    for family, declare in FAMILIES.items():
        pattern = re.sub("[TNA]", lambda hole: f"({HOLES[hole[0]]})", family)
        if (match := re.fullmatch(rf"cuda\.{pattern}", name)) is not None:
            own = [KINDS.get(part) or ALONG.get(part) or int(part) for part in match.groups()]
            return declare(*own)
    return None


register_family(declared)
