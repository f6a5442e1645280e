"""Index arithmetic: how many nodes a second the simplifier and the prover take in.

    python benchmarks/index.py [--repeat N]

Each workload is simplified in a fresh context, so nothing is remembered from the last; `again` asks
for the same terms once more, which is what lowering does most of the time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from plica.analysis.index import EMPTY, Context, can_prove, simplify
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.loop.scalar import Eq, Lt, Max, Min, Scalar, ScalarVar, Select
from plica.ir.type.dtype import i64

A, B, C, D, N, M = (ScalarVar(Name(name), i64) for name in "abcdnm")


def nest(last: int) -> Context:
    """Four loops; the last extent makes the context a new one."""
    return EMPTY.loop(A, 32).loop(B, 8).loop(C, 16).loop(D, last)


def affine(a: int) -> Scalar:
    """An offset into a flat buffer."""
    return ((A * 8 + B) * 16 + C) * 4 + D + a


def tiled(a: int) -> Scalar:
    """A fused loop taken apart again: quotients and remainders everywhere."""
    flat = affine(a)
    return (flat // 64) * 64 + (flat % 64) // 4 * 4 + flat % 4 + (flat // 512) % 8


def padded(a: int) -> Scalar:
    """A convolution's index behind its guard."""
    row = A * 2 + C - a % 3
    return Select(Lt(row, 64 + A * 0), Max(Min(row, A + 63), B * 0) * 64 + B, B * 0)


def symbolic(a: int) -> Scalar:
    """The same with dims that are not known."""
    flat = (A * N + B) * M + C
    return flat // M * M + flat % M + a


WORKLOADS: dict[str, tuple[Callable[[int], Scalar], Callable[[int], Context]]] = {
    "affine": (affine, nest),
    "tiled": (tiled, nest),
    "padded": (padded, nest),
    "symbolic": (symbolic, lambda last: EMPTY.loop(A, last).loop(B, N).loop(C, M)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=300, help="terms in each workload")
    count: int = parser.parse_args().repeat
    print(f"{'workload':10} {'nodes':>8} {'nodes/s':>10} {'µs/term':>9} {'again µs':>9}")
    for name, (make, context) in WORKLOADS.items():
        terms = [make(a) for a in range(count)]
        nodes = sum(len(post_order(term)) for term in terms)
        inside = context(5)
        first = timed(terms, inside)
        again = timed(terms, inside)
        row = f"{name:10} {nodes:8d} {nodes / first:10,.0f}"
        print(f"{row} {first / count * 1e6:9.1f} {again / count * 1e6:9.2f}")
    proofs = [Eq(A // a // b, A // (a * b)) for a in range(2, 12) for b in range(2, 12)]
    start = time.perf_counter()
    assert all(map(can_prove, proofs))
    print(
        f"proofs of x // a // b == x // (a*b): {len(proofs) / (time.perf_counter() - start):.0f}/s"
    )


def timed(terms: list[Scalar], context: Context) -> float:
    """Seconds for simplifying all terms."""
    start = time.perf_counter()
    for term in terms:
        simplify(term, context)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
