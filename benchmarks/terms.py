"""How fast terms are: nodes per second of every walk over them, at three sizes.

python benchmarks/terms.py [--sizes 10000,100000,1000000] [--rows WORD] [--against tinygrad]

A rate that falls by more than 1.5x from the smallest to the largest size is marked.  With
`--against tinygrad` the same DAGs are built and rewritten (x + 0 -> x at every node) in tinygrad's
terms, in the same run and in turns.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from plica.core.binding import free_vars, substitute
from plica.core.collector import paused
from plica.core.digest import digest
from plica.core.encode import from_json, to_json
from plica.core.fold import fold, map_bottom_up, post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.expression import Apply, Expr, Function, Let, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import Add, Lit, Mul, Scalar, ScalarVar
from plica.ir.type.dtype import f32, i64
from plica.ir.type.term import FuncType, TupleType, tensor

WORST: Final = 1.5
ZERO: Final = Lit(0, i64)
VECTOR: Final = tensor((2,), f32)


# --- what is walked ------------------------------------------------------------------------------


def scalar_chain(count: int, name: str = "x") -> Scalar:
    """`((x + 0) + 0) + ..`, about `count` nodes."""
    term: Scalar = ScalarVar(Name(name), i64)
    for _ in range(count):
        term = Add(term, ZERO)
    return term


def scalar_wide(count: int, name: str = "x") -> Scalar:
    """A DAG 1000 wide: each node is the sum of two of the row before, plus 0."""
    width = min(1000, max(2, count // 20))
    x = ScalarVar(Name(name), i64)
    row: list[Scalar] = [Add(x, Lit(i + 1, i64)) for i in range(width)]
    made = 0
    while made < count:
        row = [Add(Add(row[i], row[i - 1]), ZERO) for i in range(width)]
        made += 2 * width
    total = row[0]
    for each in row[1:]:
        total = Add(total, each)
    return total


def main_of(params: tuple[Var, ...], body: Expr, ret: Any) -> Module:
    name = Var(Name("main"), FuncType((), (), tuple(each.type for each in params), ret))  # type: ignore[misc]
    return module({name: Function((), (), params, ret, body)}, name)


def graph_lets(count: int) -> Module:
    """`x1 = x0 + x0; x2 = x1 + x1; ..; xn`: three nodes each."""
    variables = [Var(Name("x", i), VECTOR) for i in range(count // 3 + 1)]
    body: Expr = variables[-1]
    for i in range(len(variables) - 1, 0, -1):
        body = Let(variables[i], Apply("multiply", (variables[i - 1], variables[0])), body)
    return main_of((variables[0],), body, VECTOR)


def graph_wide(count: int) -> Module:
    """A DAG of sums without lets, 100 wide."""
    x = Var(Name("x"), VECTOR)
    width = 100
    row: list[Expr] = [Apply("add", (x, const([i, i], f32))) for i in range(width)]
    made = 0
    while made < count:
        row = [Apply("maximum", (row[i], row[i - 1])) for i in range(width)]
        made += width
    ret = TupleType((VECTOR,) * width)
    return main_of((x,), Tuple(tuple(row)), ret)


def graph_doubling(depth: int) -> Module:
    x = Var(Name("x"), VECTOR)
    body: Expr = x
    for _ in range(depth):
        body = Apply("maximum", (body, body))
    return main_of((x,), body, VECTOR)


# --- walks ---------------------------------------------------------------------------------------


class Walk(NamedTuple):
    """Something done to a term: `prepare` is not timed, what it returns is called and timed."""

    name: str
    build: Callable[[int], Any]
    prepare: Callable[[Any, int], Callable[[], Any]]
    most: int = 10**9


def drop_zero(node: Term) -> Term:
    if node.__class__ is Add and node.right is ZERO:  # type: ignore[attr-defined]
        return node.left  # type: ignore[attr-defined,no-any-return]
    return node


def count_nodes(node: Term, kids: tuple[int, ...]) -> int:
    return 1 + max(kids, default=0)


def same(node: Term) -> Term:
    return node


def to_product(node: Term) -> Term:
    """A change at every node, so that everything is built anew."""
    if node.__class__ is Add:
        return Mul(node.left, node.right)  # type: ignore[attr-defined]
    return node


def core_walks() -> Iterator[Walk]:
    for name, build in (("chain", scalar_chain), ("wide", scalar_wide)):
        yield Walk(f"construct new, {name}", build, lambda t, n, b=build: _paused(b, n, "new"))
        yield Walk(
            f"construct new, collector on, {name}", build, lambda t, n, b=build: lambda: b(n, "new")
        )
        yield Walk(f"construct again, {name}", build, lambda t, n, b=build: lambda: b(n))
        yield Walk(f"post_order, {name}", build, lambda t, n: lambda: post_order(t))
        yield Walk(f"fold, {name}", build, lambda t, n: lambda: fold(count_nodes, t))
        yield Walk(
            f"map_bottom_up, same, {name}", build, lambda t, n: lambda: map_bottom_up(same, t)
        )
        yield Walk(
            f"map_bottom_up, all new, {name}",
            build,
            lambda t, n: lambda: map_bottom_up(to_product, t),
        )
        yield Walk(
            f"map_bottom_up, x+0 -> x, {name}",
            build,
            lambda t, n: lambda: map_bottom_up(drop_zero, t),
        )
        yield Walk(f"substitute, {name}", build, lambda t, n: lambda: substitute(t, _away(t)))
        yield Walk(f"digest, {name}", build, lambda t, n: lambda: digest(t))
        yield Walk(f"to_json, {name}", build, lambda t, n: lambda: to_json(t))
        yield Walk(f"from_json, {name}", build, _reading)
    yield Walk("digest, lets", graph_lets, lambda t, n: lambda: digest(t))
    yield Walk("substitute, lets", graph_lets, lambda t, n: lambda: _inline(t))


def _paused(build: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """As the library's own loops build: with the collector of cycles paused."""

    def run() -> Any:
        with paused():
            return build(*args)

    return run


def _reading(term: Term, count: int) -> Callable[[], Any]:
    text = to_json(term)
    return lambda: from_json(text)


def _away(term: Term) -> dict[Term, Term]:
    return {each: Lit(7, i64) for each in free_vars(term)}


def _inline(of: Module) -> Term:
    function = of.main_function()
    return substitute(function.body, {function.params[0]: Var(Name("other"), VECTOR)})


def graph_walks() -> Iterator[Walk]:
    """Rooms above core: what they need is imported here, late."""
    import numpy as np

    import plica.ir.op  # noqa: F401  # loads the operators
    from plica.ir.interpret.interpreter import interpret
    from plica.ir.text.script import from_text
    from plica.ir.text.show import show_module
    from plica.ir.type.infer import infer

    ones = np.ones(2, np.float32)
    for name, build in (("lets", graph_lets), ("wide", graph_wide)):

        def run(of: Module) -> Any:
            return interpret(of, *(ones for _ in of.main_function().params))

        def read(of: Module, n: int) -> Callable[[], Any]:
            source = show_module(of)
            return lambda: from_text(source.text, constants=source.constants)

        yield Walk(f"infer, {name}", build, lambda t, n: lambda: infer(_untyped(t)))
        yield Walk(f"print, {name}", build, lambda t, n: lambda: show_module(t))
        yield Walk(f"read, {name}", build, read)
        yield Walk(f"interpret, {name}", build, lambda t, n: lambda: run(t))


def _untyped(of: Module) -> Module:
    """The module without the types of its lets: a new term each time, so nothing is remembered."""
    _untyped.count = count = getattr(_untyped, "count", 0) + 1  # type: ignore[attr-defined]
    function = of.main_function()
    kept = set(function.params)

    def bare(node: Term) -> Term:
        if node.__class__ is Var and node not in kept:
            return Var(Name(f"{node.name.hint}{count}", node.name.index), None)  # type: ignore[attr-defined]
        return node

    body: Any = map_bottom_up(bare, function.body)
    name = Var(Name(f"main{count}"), None)
    return module({name: Function((), (), function.params, None, body)}, name)


# --- timing --------------------------------------------------------------------------------------


def seconds(run: Callable[[], Any], repeat: int) -> float:
    """CPU seconds, the best of a few; what a run returns dies outside the time."""
    times = []
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
        del result
    return min(times)


def rates(walk: Walk, sizes: list[int]) -> list[float | None]:
    """Nodes per second at each size."""
    found: list[float | None] = []
    for size in sizes:
        term = walk.build(size)
        nodes = len(post_order(term))
        run = walk.prepare(term, size)
        found.append(nodes / seconds(run, 5 if size <= 10_000 else 3 if size <= 100_000 else 2))
        del term, run
        gc.collect()
    return found


def print_rates(console: Console, sizes: list[int], wanted: str) -> bool:
    """The table; whether every rate holds."""
    table = Table(title="nodes per second", caption=f"ratio: {sizes[0]:,} to {sizes[-1]:,} nodes")
    table.add_column("walk")
    for size in sizes:
        table.add_column(f"{size:,}", justify="right")
    table.add_column("ratio", justify="right")
    good = True
    for walk in [*core_walks(), *graph_walks()]:
        if wanted not in walk.name:
            continue
        found = rates(walk, sizes)
        known = [each for each in found if each is not None]
        ratio = known[0] / known[-1]
        good = good and ratio <= WORST
        cells = [f"{each:,.0f}" if each is not None else "" for each in found]
        mark = f"[red]{ratio:.2f}[/red]" if ratio > WORST else f"{ratio:.2f}"
        table.add_row(walk.name, *cells, mark)
    console.print(table)
    return good


def print_fixed(console: Console) -> None:
    """The two shapes that must never be a problem."""
    from plica.ir.text.script import from_text
    from plica.ir.text.show import show_module
    from plica.ir.type.infer import infer

    table = Table(title="seconds")
    table.add_column("walk")
    shapes = {"20,000 lets": graph_lets(60_000), "60-deep doubling": graph_doubling(60)}
    for name in shapes:
        table.add_column(name, justify="right")
    walks: dict[str, Callable[[Module], Any]] = {
        "digest": digest,
        "substitute": _inline,
        "json and back": lambda m: from_json(to_json(m)),
        "infer": lambda m: infer(_untyped(m)),
        "print": show_module,
        "read": lambda m: from_text(show_module(m).text),
    }
    for name, walk in walks.items():
        cells = [f"{seconds(lambda w=walk, m=m: w(m), 1):.3f}" for m in shapes.values()]
        table.add_row(name, *cells)
    console.print(table)


# --- tinygrad ------------------------------------------------------------------------------------


def print_against_tinygrad(console: Console, repeat: int) -> bool:
    """Building and rewriting the same DAGs, in turns; whether Plica is not slower."""
    from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat, graph_rewrite

    rule = PatternMatcher([(UPat.var("x") + 0, lambda x: x)])
    unit = UOp.variable("x", 0, 10)
    kind = unit.dtype
    zero = UOp.const(0, kind)

    def their_chain(count: int, name: str) -> Any:
        term = UOp.variable(name, 0, 10)
        for _ in range(count):
            term = UOp(Ops.ADD, kind, (term, zero))
        return term

    def their_wide(count: int, name: str) -> Any:
        width = 1000
        x = UOp.variable(name, 0, 10)
        row = [UOp(Ops.ADD, kind, (x, UOp.const(i + 1, kind))) for i in range(width)]
        made = 0
        while made < count:
            row = [
                UOp(Ops.ADD, kind, (UOp(Ops.ADD, kind, (row[i], row[i - 1])), zero))
                for i in range(width)
            ]
            made += 2 * width
        total = row[0]
        for each in row[1:]:
            total = UOp(Ops.ADD, kind, (total, each))
        return total

    table = Table(title="µs per node, min of the runs; ratio below 1: Plica is faster")
    for column in ("DAG", "what", "Plica", "tinygrad", "min ratio", "median ratio"):
        table.add_column(column, justify="left" if column in ("DAG", "what") else "right")
    good = True
    cases = [
        ("chain", 100_000, scalar_chain, their_chain),
        ("wide", 1_000_000, scalar_wide, their_wide),
    ]
    for name, count, ours, theirs in cases:
        nodes = len(post_order(ours(count, "size")))
        mine: dict[str, list[float]] = {"new": [], "existing": [], "rewrite": []}
        other: dict[str, list[float]] = {"new": [], "existing": [], "rewrite": []}
        for turn in range(repeat):
            for times, build, rewrite in (
                (mine, ours, lambda t: map_bottom_up(drop_zero, t)),
                (other, theirs, lambda t: graph_rewrite(t, rule)),
            ):
                gc.collect()
                start = time.process_time()
                term = build(count, f"turn{turn}_")
                times["new"].append(time.process_time() - start)
                start = time.process_time()
                again = build(count, f"turn{turn}_")
                times["existing"].append(time.process_time() - start)
                assert again is term
                del again
                start = time.process_time()
                result = rewrite(term)
                times["rewrite"].append(time.process_time() - start)
                del term, result
        for times in (mine, other):
            pairs = zip(times["new"], times["rewrite"], strict=True)
            times["build and rewrite"] = [sum(pair) for pair in pairs]
        for what, times in mine.items():
            ratios = [a / b for a, b in zip(times, other[what], strict=True)]
            best = min(times) / min(other[what])
            if what == "build and rewrite":
                good = good and statistics.median(ratios) <= 1.0
            table.add_row(
                f"{name}, {nodes:,} nodes",
                what,
                f"{min(times) / nodes * 1e6:.2f}",
                f"{min(other[what]) / nodes * 1e6:.2f}",
                f"{best:.2f}",
                f"{statistics.median(ratios):.2f}",
            )
    console.print(table)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--rows", default="", help="only walks whose name has this word in it")
    parser.add_argument("--against", choices=("tinygrad",))
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    console = Console()
    if given.against:
        return 0 if print_against_tinygrad(console, given.repeat) else 1
    good = print_rates(console, [int(size) for size in given.sizes.split(",")], given.rows)
    if not given.rows:
        print_fixed(console)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
