"""Replaying traces: sixty steps on a convolution, which bounds the speed of a search.

    python benchmarks/schedule.py [--repeat 20]

`replayed`: the same trace again.  `new decisions`: the same steps with other tiles, recorded, as a
search does.  `a kernel never seen`: the first time.  Goal: under 100 ms for sixty steps, replayed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from plica.analysis.site import map_of
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var
from plica.ir.graph.module import module
from plica.ir.loop.stages import kernel_of
from plica.ir.loop.statement import Kernel
from plica.ir.op import find
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule import (
    Trace,
    block,
    cache_read,
    compute_at,
    do,
    loops,
    parallel,
    reorder,
    replay,
    reverse_compute_at,
    sample_tile,
    split,
    trace_of,
    unroll,
    vectorize,
)
from plica.schedule.do import Body

GOAL = 0.1


def convolution(channels: int, size: int) -> Kernel:
    """A 3x3 convolution with a relu, as one kernel of blocks."""
    conv, relu = find("nn.conv"), find("nn.relu")
    assert conv is not None
    assert relu is not None
    x = Var(Name("x"), tensor((1, channels, size, size), "f32"))
    w = Var(Name("w"), tensor((channels, channels, 3, 3), "f32"))
    main = Var(Name("main"), None)
    body = relu(conv(x, w, padding=1))
    whole = infer(module({main: Function((), (), (x, w), None, body)}, main))
    return kernel_of(to_stages(whole.main_function()).stages)


@do
def tiled(names: tuple[str, ...]) -> Body:
    """Tiles, packs and orders the convolution: a long but ordinary schedule."""
    sums, last = names[-2], names[-1]
    c = yield block(sums)
    n, o, h, w, i, kh, kw = yield loops(c)
    o0, o1, o2 = yield split(o, sample_tile(3, max_inner=16))
    h0, h1 = yield split(h, sample_tile(2, max_inner=7))
    w0, w1, w2 = yield split(w, sample_tile(3, max_inner=14))
    i0, i1 = yield split(i, sample_tile(2, max_inner=16))
    yield reorder(n, o0, h0, w0, o1, i0, kh, kw, i1, h1, w1, o2, w2)
    weights = yield cache_read(c, 1, "global")
    data = yield cache_read(c, 0, "global")
    for each in (weights, data):
        inside = yield loops(each)
        outer, inner = yield split(inside[1], (None, 4))
        yield reorder(outer, *inside[2:], inner)
        yield unroll(inner)
    r = yield block(last)
    yield reverse_compute_at(r, w0)
    around = yield loops(r)
    _, rest = yield split(around[-1], (None, 8))
    yield unroll(rest)
    yield compute_at(data, n)
    yield unroll(w2)
    yield vectorize(o2)
    yield parallel(o0)
    for _ in range(6):  # handles are looked up over and over by sketches that are composed
        again = yield block(sums)
        yield loops(again)
        tail = yield block(last)
        yield loops(tail)


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=20)
    repeat = parser.parse_args().repeat
    kernel = convolution(64, 56)
    names = tuple(str(label) for label in map_of(kernel).blocks)
    trace: Trace = trace_of(tiled(names), kernel)
    warm = [seconds(lambda: replay(trace, kernel)) for _ in range(repeat)]
    fresh = [
        seconds(lambda seed=seed: trace_of(tiled(names), kernel, seed=seed))  # type: ignore[misc]
        for seed in range(1, repeat + 1)
    ]
    other = convolution(96, 28)
    cold = [seconds(lambda: trace_of(tiled(names), other))]
    looks = sum(type(step.instruction).pure for step in trace.steps)
    table = Table(title=f"{len(trace)} steps, {looks} of them look-ups; ms of CPU")
    for column in ("what", "min", "median"):
        table.add_column(column, justify="left" if column == "what" else "right")
    rows = (("replayed", warm), ("new decisions", fresh), ("a kernel never seen", cold))
    for name, times in rows:
        table.add_row(name, f"{min(times) * 1e3:.1f}", f"{statistics.median(times) * 1e3:.1f}")
    Console().print(table)
    return 0 if statistics.median(warm) * 60 / len(trace) < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
