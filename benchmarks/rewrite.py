"""Rewriting throughput: a hundred rules on a hundred thousand nodes, beside tinygrad.

    python benchmarks/rewrite.py [--nodes 100000] [--repeat 3] [--against tinygrad]
    python benchmarks/rewrite.py --inference

The same forests of index expressions are rewritten to normal form by Plica's index rules and by
tinygrad's `symbolic` rule set, in turns, in one process: `quiet`, where no rule applies, and
`busy`, where about every third node is simplified away.  `--inference` says how much of compiling
ResNet-50's graph, without native code, is type inference.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from attrs import frozen
from rich.console import Console
from rich.table import Table

from plica.analysis.index import INDEX_RULES
from plica.analysis.index.rules import SUMS
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.type.dtype import i64
from plica.rewrite import pack, rewrite

# Without the three rules that bring whole sums into polynomial form, which tinygrad has not.
RULES = pack("index", (each for each in INDEX_RULES if each not in SUMS), version="1")


@frozen(eq=False)
class Forest(Term):
    """Many expressions, one term."""

    trees: tuple[Scalar, ...]


def quiet(v: Callable[[int], Any], i: int) -> Any:
    """An expression in normal form: 8 nodes that no rule changes."""
    return v(i) * v(i + 1) + v(i + 2) * v(i + 3)


def busy(v: Callable[[int], Any], i: int) -> Any:
    """An expression that several rules change."""
    return ((v(i) + 0) * 1 + (v(i + 1) * 4) // 4) + (v(i + 2) * 0)


def ours(tree: Callable[[Callable[[int], Any], int], Any], count: int, name: str) -> Term:
    variables = [ScalarVar(Name(f"{name}{i}"), i64) for i in range(count + 4)]
    return Forest(tuple(tree(variables.__getitem__, i) for i in range(count)))


def theirs(tree: Callable[[Callable[[int], Any], int], Any], count: int, name: str) -> Any:
    from tinygrad.uop.ops import UOp

    variables = [UOp.variable(f"{name}{i}", 0, 10) for i in range(count + 4)]
    return UOp.sink(*[tree(variables.__getitem__, i) for i in range(count)])


def against_tinygrad(console: Console, nodes: int, repeat: int) -> bool:
    """Rewriting the same forests, in turns; whether Plica is not slower."""
    from tinygrad.uop.ops import graph_rewrite
    from tinygrad.uop.symbolic import symbolic

    shown = f"µs per node; {len(RULES)} rules of Plica, {len(symbolic.patterns)} of tinygrad"
    table = Table(title=shown)
    for column in ("forest", "nodes", "Plica", "tinygrad", "min ratio", "median ratio"):
        table.add_column(column, justify="left" if column == "forest" else "right")
    good = True
    for tree in (quiet, busy):
        each = len(post_order(ours(tree, 100, "size"))) / 100
        count = round(nodes / each)
        total = len(post_order(ours(tree, count, "size")))
        mine: list[float] = []
        other: list[float] = []
        for turn in range(repeat):
            for times, build, run in (
                (mine, ours, lambda term: rewrite(term, RULES)),
                (other, theirs, lambda term: graph_rewrite(term, symbolic)),
            ):
                gc.collect()
                term = build(tree, count, f"turn{turn}_")
                start = time.process_time()
                result = run(term)
                times.append(time.process_time() - start)
                del term, result
        ratios = [b / a for a, b in zip(mine, other, strict=True)]  # above 1: Plica is faster
        good = good and statistics.median(ratios) >= 1.0
        table.add_row(
            tree.__name__,
            f"{total:,}",
            f"{min(mine) / total * 1e6:.2f}",
            f"{min(other) / total * 1e6:.2f}",
            f"{min(other) / min(mine):.2f}",
            f"{statistics.median(ratios):.2f}",
        )
    console.print(table)
    return good


def alone(console: Console, nodes: int, repeat: int) -> None:
    """Rewriting forests, and nothing beside it."""
    for tree in (quiet, busy):
        each = len(post_order(ours(tree, 100, "size"))) / 100
        times = []
        for turn in range(repeat):
            term = ours(tree, round(nodes / each), f"turn{turn}_")
            start = time.process_time()
            rewrite(term, RULES)
            times.append(time.process_time() - start)
        best = min(times) / nodes * 1e6
        console.print(f"{tree.__name__}: {best:.2f} µs a node, {len(RULES)} rules")


def inference_share(console: Console) -> float:
    """The share of type inference in compiling ResNet-50's graph, native code left out."""
    from plica import pipeline
    from plica.frontend.zoo import resnet
    from plica.ir.type.infer import infer as original
    from plica.rewrite import history

    spent = 0.0

    def timed(*args: Any, **named: Any) -> Any:
        nonlocal spent
        start = time.process_time()
        try:
            return original(*args, **named)
        finally:
            spent += time.process_time() - start

    network = resnet(50, image=64, width=0.125)
    pipeline.lower(resnet(18, image=64, width=0.125))  # packs are loaded, operators prepared
    patched = [each for each in (history.INFER, *pipeline.PASSES) if each.run is original]
    pipeline.infer = timed  # type: ignore[assignment]
    for each in patched:
        object.__setattr__(each, "run", timed)
    start = time.process_time()
    pipeline.lower(network)
    total = time.process_time() - start
    share = spent / total
    console.print(f"ResNet-50 to kernels: {total:.2f} s, type inference {share:.1%} of it")
    return share


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--against", choices=("tinygrad",))
    parser.add_argument("--inference", action="store_true", help="its share on ResNet-50")
    options = parser.parse_args()
    console = Console()
    if options.inference:
        return 0 if inference_share(console) < 0.2 else 1
    if options.against:
        return 0 if against_tinygrad(console, options.nodes, options.repeat) else 1
    alone(console, options.nodes, options.repeat)
    return 0


if __name__ == "__main__":
    sys.exit(main())
