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
from plica.ir.loop.invocation import TensorIntrinsic, register_family
from plica.ir.loop.scalar import (
    BitAnd,
    Buffer,
    Cast,
    Combiner,
    Intrinsic,
    Lit,
    Scalar,
    ScalarVar,
    ShiftRight,
    index,
)
from plica.ir.loop.statement import Invoke, Region, Stmt, Store, seq
from plica.ir.loop.tensor import buffer
from plica.ir.type import DType, bf16, f16, f32, f64, i8, i32, i64, known, u8
from plica.schedule.default.gpu.tensor_core_meaning import (
    OCTET,
    QUADS,
    STEPS,
    declare,
    group_mma,
    joining,
    mma,
)

JOINED: Final[tuple[Combiner, ...]] = ("sum", "prod", "max", "min")
SHUFFLED: Final = (f32, f64, i32, i64)
"""What registers hold as memory does: others are not shuffled."""


@lru_cache(maxsize=64)
def warp_mma(high: int, wide: int, dtype: DType = f16) -> TensorIntrinsic:
    """Products of a warp's registers with 16 rows of a matrix, for a number of squares; with 8 rows
    for f32, odd rows after the even ones."""
    extents = {"i": high, "half": 2, "j": wide, "pair": 2, "h": 2, "t": QUADS, "p": 2}
    left, right = "t i half h p", "j h t.p pair"
    if dtype is f32:
        extents = {word: count for word, count in extents.items() if word != "h"}
        left, right = "t i half p", "j p t pair"
    return joining(
        f"warp_mma_{dtype.name}_{high}x{wide}", "warp_mma", extents,
        (left, right, "i half j pair"), (f32, dtype, f32), narrow=None if dtype is f32 else dtype,
    )  # fmt: skip


@lru_cache(maxsize=64)
def group_scores(high: int, wide: int, dtype: DType = f16) -> TensorIntrinsic:
    """Products of four warps, 64 terms, with sums as threads of a row hold them."""
    extents = {"i": high, "half": 2, "j": wide // OCTET, "o": OCTET, "pair": 2,
               "s": STEPS, "h": 2, "e": OCTET}  # fmt: skip
    places = ("i? half s h e", "j? o pair s h e", "i half j.o pair")
    hints = (("high", high), ("left", True), ("right", True), ("wide", wide))
    name = f"group_scores_{dtype.name}_{high}x{wide}"
    return joining(name, "group_mma", extents, places, (dtype, dtype, f32), hints=hints)


@lru_cache(maxsize=64)
def group_warp_mma(high: int, wide: int, dtype: DType = f16) -> TensorIntrinsic:
    """Products of four warps' registers with 64 rows of a matrix, for a number of squares."""
    extents = {"i": high, "half": 2, "j": wide // OCTET, "o": OCTET, "pair": 2,
               "s": STEPS, "h": 2, "t": QUADS, "p": 2}  # fmt: skip
    places = ("t i half s.h p", "j? s h t.p o pair", "i half j.o pair")
    name = f"group_warp_mma_{dtype.name}_{high}x{wide}"
    return joining(
        name, "group_warp_mma", extents, places, (f32, dtype, f32), narrow=dtype,
        hints=(("high", high), ("wide", wide)),
    )  # fmt: skip


@lru_cache(maxsize=64)
def row_max(high: int, wide: int) -> TensorIntrinsic:
    """The maximum of each row held by four threads, and of the previous value."""
    extents = {"i": high, "half": 2, "t": QUADS, "j": wide, "p": 2}
    places = ("t i half j p", "i half")
    return joining(f"row_max_{high}x{wide}", "row_max", extents, places, (f32, f32), "max")


@lru_cache(maxsize=64)
def row_sum(high: int) -> TensorIntrinsic:
    """The sum of each row held by four threads, added to the previous value."""
    extents, places = {"i": high, "half": 2, "t": QUADS}, ("t i half", "i half")
    return joining(f"row_sum_{high}", "row_sum", extents, places, (f32, f32))


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
    name = f"row_power_{high}x{wide}"
    return declare(name, "row_power", (b, k, a, c), extents, powers, outputs=2)


def lanes_sum(lanes: int, count: int) -> TensorIntrinsic:
    """Sums over a number of adjacent threads, added to the previous value."""
    return lanes_join("sum", f32, lanes, count)


def lanes_max(lanes: int, count: int) -> TensorIntrinsic:
    """Maxima over a number of adjacent threads, and of the previous value."""
    return lanes_join("max", f32, lanes, count)


@lru_cache(maxsize=256)
def lanes_join(word: Combiner, dtype: DType, lanes: int, count: int) -> TensorIntrinsic:
    """The values of adjacent threads of a warp, joined with the previous value."""
    name, extents = f"lanes_{word}_{dtype.name}_{lanes}x{count}", {"t": lanes, "i": count}
    places, hints = ("t? i", "i"), (("lanes", lanes),)
    return joining(name, f"lanes_{word}", extents, places, (dtype, dtype), word, hints=hints)


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

    name, hints = f"restored_{dtype.name}_{bits}", (("bits", bits),)
    return declare(name, "restored", (a, z, s, c), {"p": WORD // bits}, restore, hints)


@lru_cache(maxsize=64)
def quad_mma(count: tuple[int, int], dtype: DType) -> TensorIntrinsic:
    """Products of a row held by four threads, in a number of groups of terms, with columns held
    likewise: two rows, eight apart, by two columns."""
    extents = {"half": 2, "pair": 2, "t": QUADS, "n": count[0], "e": count[1]}
    places, dtypes = ("t half n e", "pair.t n e", "half pair"), (dtype, dtype, f32)
    name = f"quad_mma_{dtype.name}_{count[0]}x{count[1]}"
    return joining(name, "quad_mma", extents, places, dtypes, hints=(("columns", 1),))


@lru_cache(maxsize=64)
def quad_mix(dtype: DType) -> TensorIntrinsic:
    """Products of 16 rows, four per thread with eight elements each, with columns held likewise:
    sums over the elements, by two columns."""
    extents = {"i": OCTET // 2, "half": 2, "pair": 2, "t": QUADS, "k": QUADS}
    places, dtypes = ("t k i.half", "pair.t k", "i half pair"), (dtype, dtype, f32)
    name, hints = f"quad_mix_{dtype.name}", (("columns", 1),)
    return joining(name, "quad_mix", extents, places, dtypes, hints=hints)


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
    for family, of_parts in FAMILIES.items():
        pattern = re.sub("[TNA]", lambda hole: f"({HOLES[hole[0]]})", family)
        if (match := re.fullmatch(rf"cuda\.{pattern}", name)) is not None:
            own = [KINDS.get(part) or ALONG.get(part) or int(part) for part in match.groups()]
            return of_parts(*own)
    return None


register_family(declared)
