"""A schedule engineer's hour: a kernel written, scheduled, run, and carried to another size."""

from __future__ import annotations

import numpy as np

import plica
from plica.schedule import (
    Trace,
    block,
    diff,
    do,
    loops,
    reorder,
    replay,
    split,
    trace_of,
    transport,
    vectorize,
)


def matmul(m: int, n: int, k: int):
    """A product of matrices, as a text with sizes."""
    return plica.from_text(f"""
@plica.kernel
def matmul(A: Buffer[({m}, {k}), f32], B: Buffer[({k}, {n}), f32], C: Buffer[({m}, {n}), f32]):
    for i, j, k in grid({m}, {n}, {k}):
        with block("C", spatial=(i, j), reduce=(k,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[k, j]
""")


def tiled(rows: int, columns: int):
    """Tiles of so many rows and columns, whose columns are a vector."""

    @do
    def schedule():
        c = yield block("C")
        i, j, k = yield loops(c)
        i0, i1 = yield split(i, (None, rows))
        j0, j1 = yield split(j, (None, columns))
        yield reorder(i0, j0, k, i1, j1)
        yield vectorize(j1)

    return schedule


def main() -> None:
    """Schedule a product, run it beside numpy, and put its trace on another size."""
    program = matmul(64, 64, 64)
    trace = trace_of(tiled(4, 16), program)
    other = trace_of(tiled(2, 8), program)
    print(diff(trace, other))
    exe = plica.compile(replay(trace, program), cache=False)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((64, 64), np.float32) for _ in range(2))
    assert np.allclose(exe(a, b), a @ b, atol=1e-3)
    print(plica.time(exe, a, b, against=np.matmul, rounds=3))
    assert Trace.from_json(trace.to_json()) is trace
    moved = transport(trace, matmul(48, 80, 32))
    print(moved.report)
    small = plica.compile(moved.module, cache=False)
    assert np.allclose(small(a[:48, :32], np.tile(b[:32], 2)[:, :80]),
                       a[:48, :32] @ np.tile(b[:32], 2)[:, :80], atol=1e-3)  # fmt: skip


if __name__ == "__main__":
    main()
