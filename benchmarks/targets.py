"""Every target that is registered: what passes on it, and how fast it is beside `cpu`.

    python benchmarks/targets.py [cpu c ...] [--kernels 300] [--examples 1] [--full] [--json FILE]

A row for each target, those of other packages too.  *operators*: every operator of the registry on
small random arguments, held to the interpreter; *kernels*: random kernels with random schedules, in
the same way, where code of one kernel runs here; *networks*: five networks held to the interpreter,
and the geometric mean of their times beside `cpu` on one thread (above 1: faster than `cpu`).  What
a target refuses with a reason is counted apart; anything wrong ends the run with a failure.

A target whose tools are missing has a row that says what would install them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from shutil import which
from typing import Any, Final

import numpy as np
from attrs import asdict, evolve, frozen
from hypothesis import HealthCheck, Phase, given, settings
from rich.console import Console
from rich.table import Table

import plica
from plica.codegen.backend import TARGETS, backend_named
from plica.codegen.fuzz import fuzz
from plica.frontend import zoo
from plica.frontend.zoo.layer import sizes
from plica.ir.graph.module import Module
from plica.ir.op import names
from plica.runtime.cross import CROSS
from plica.runtime.error import PlicaError, UnsupportedError
from tests.codegen.native import assert_close
from tests.codegen.test_operator import module_of
from tests.ir.reference.case import CASES

SMALL: Final[dict[str, Callable[[], Module]]] = {
    "mlp": partial(zoo.mlp, (64, 96, 10)),
    "resnet18": partial(zoo.resnet, 18, image=32, width=0.125, classes=10),
    "mobilenet_v2": partial(zoo.mobilenet, 2, image=32, width=0.25, classes=10),
    "transformer": partial(zoo.transformer, words=64, width=32, layers=1, heads=2, steps=8),
    "lstm_lm": partial(zoo.lstm_lm, words=32, hidden=16, layers=1, steps=4),
}
"""The five networks, so small that the interpreter runs them at once."""

WORDS: Final = 32
"""What numbers of words are below, in networks that take words."""

TRIES: Final = 6
"""Cases of an operator that a target may refuse before the operator is one that it refuses."""

ROUNDS: Final = 7
"""Bursts of calls that each of two executables gets in turn."""


@frozen
class TargetRow:
    """What was found of a target."""

    name: str
    missing: str = ""
    operators: int = 0
    operators_refused: int = 0
    kernels: int | None = None
    networks: int = 0
    networks_refused: int = 0
    speed: float | None = None
    """The time of `cpu` over that of the target, the geometric mean of the networks."""
    wrong: tuple[str, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()
    """Why something was refused, and how often."""


EMULATED: Final = ("cpu:aarch64", "cpu:armv7", "cpu:riscv64", "micro:cortex-m3", "micro:rv32imc")
"""Other machines of registered targets, which QEMU runs."""


def missing(name: str) -> str:
    """Why code of a target cannot run here; nothing where it can."""
    kind, _, other = name.partition(":")
    if kind == "cpu" and other in CROSS:
        tools = CROSS[other]
        lacking = [each for each in (tools.compiler, tools.emulator) if which(each) is None]
        return f"apt-get install {tools.package}" if lacking else ""
    try:
        backend = backend_named(kind)
        spelled = backend.spellings[0] if backend.spellings and not other else name
        target = backend.settled(backend.parse(spelled))
        backend.check_here(target)
    except PlicaError as error:
        return str(error)
    return backend.missing()


def operators(of: TargetRow, examples: int) -> TargetRow:
    """Every operator of the registry on small arguments, beside the interpreter."""
    passed, refused, wrong, reasons = 0, 0, list(of.wrong), Counter(dict(of.reasons))
    for name in names():
        try:
            _try_operator(name, of.name, examples)
        except UnsupportedError as error:
            refused += 1
            reasons[_reason(error)] += 1
        except (AssertionError, PlicaError) as error:
            wrong.append(f"{name}: {_first(error)}")
        else:
            passed += 1
    return evolve(of, operators=passed, operators_refused=refused, wrong=tuple(wrong),
                  reasons=tuple(sorted(reasons.items())))  # fmt: skip


def _try_operator(name: str, target: str, examples: int) -> None:
    """So many cases that the target takes; a case that it refuses is drawn again, a few times."""
    passed = 0
    refused: list[UnsupportedError] = []

    @settings(
        max_examples=examples + TRIES, database=None, derandomize=True, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(CASES[name])
    def agrees(case: Any) -> None:  # Any: hypothesis gives a case
        nonlocal passed
        if passed == examples:
            return
        module = module_of(name, case)
        try:
            found: Any = plica.compile(module, target=target, cache=False)(*case.args)
        except UnsupportedError as error:
            refused.append(error)
            return
        with np.errstate(all="ignore"):
            meant: Any = plica.interpret(module, *case.args)
        if not isinstance(found, tuple):
            found, meant = (found,), (meant,)
        for ours, expected in zip(found, meant, strict=True):
            assert_close(ours, expected, case.args)
        passed += 1

    agrees()
    if not passed:
        raise refused[0]


def kernels(of: TargetRow, count: int) -> TargetRow:
    """Random kernels with random schedules, beside the interpreter."""
    backend = backend_named(of.name.partition(":")[0])
    if backend.entry is None or not count or ":" in of.name:
        return of
    # Only what is loaded into this process could end it.
    isolated = bool(backend.here(backend.parse(of.name)))
    report = fuzz(count, seed=1, target=of.name, isolated=isolated)
    wrong = of.wrong
    if report.finding is not None:
        wrong += (f"kernel {report.finding.case}: {report.finding.reason}",)
    return evolve(of, kernels=report.examples, wrong=wrong)


def inputs_of(module: Module) -> list[Any]:
    """An input for a network: words where it takes integers."""
    random = np.random.default_rng(0)
    return [
        random.integers(0, WORDS, sizes(each)) if "i64" in str(each.type)
        else random.standard_normal(sizes(each), np.float32)
        for each in module.main_function().params
    ]  # fmt: skip


def networks(of: TargetRow, full: bool) -> TargetRow:
    """Five networks beside the interpreter, and their times beside `cpu`."""
    passed, refused, ratios = 0, 0, []
    wrong, reasons = list(of.wrong), Counter(dict(of.reasons))
    for name, make in SMALL.items():
        module = zoo.NETWORKS[name]() if full else make()
        given_ = inputs_of(module)
        beside = plica.compile(module, target="cpu", threads=1, cache=False)
        meant = beside(*given_) if full else plica.interpret(module, *given_)
        try:
            made = plica.compile(module, target=of.name, cache=False)
            found = made(*given_)
        except UnsupportedError as error:
            refused += 1
            reasons[_reason(error)] += 1
            continue
        apart = float(np.abs(np.asarray(found) - np.asarray(meant)).max())
        if not apart <= 1e-3 * max(1.0, float(np.abs(np.asarray(meant)).max())):
            wrong.append(f"{name}: apart by {apart:.1e}")
            continue
        passed += 1
        ratios.append(_ratio(partial(beside, *given_), partial(made, *given_)))
    speed = statistics.geometric_mean(ratios) if ratios else None
    return evolve(of, networks=passed, networks_refused=refused, speed=speed, wrong=tuple(wrong),
                  reasons=tuple(sorted(reasons.items())))  # fmt: skip


def _ratio(one: Callable[[], object], two: Callable[[], object]) -> float:
    """The shortest time of one over that of the other, in turns."""
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for at, call in enumerate((one, two)):
            for _ in range(3):
                begin = time.perf_counter()
                call()
                least[at] = min(least[at], time.perf_counter() - begin)
    return least[0] / least[1]


def _reason(error: PlicaError) -> str:
    return error.diagnostics[0].message


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(islice(lines, 4))[:300]


def row_of(name: str, count: int, examples: int, full: bool) -> TargetRow:
    """All that is tried on a target."""
    row = TargetRow(name)
    if why := missing(name):
        return evolve(row, missing=why)
    row = operators(row, examples) if examples else row
    return networks(kernels(row, count), full)


def show(rows: list[TargetRow]) -> None:
    """The table, then what was refused and what is wrong."""
    console = Console(width=150)
    table = Table(title="Targets (passed + refused with a reason, of all)", title_justify="left")
    table.add_column("target")
    for column in ("operators", "kernels", "networks", "x cpu", "wrong"):
        table.add_column(column, justify="right")
    for row in rows:
        if row.missing:
            table.add_row(row.name, f"not here: {row.missing}")
            continue
        table.add_row(
            row.name,
            f"{row.operators} + {row.operators_refused} of {len(names())}",
            "-" if row.kernels is None else str(row.kernels),
            f"{row.networks} + {row.networks_refused} of {len(SMALL)}",
            "-" if row.speed is None else f"{row.speed:.2f}",
            str(len(row.wrong)),
        )
    console.print(table)
    for row in rows:
        for reason, times in row.reasons:
            console.print(f"{row.name} refuses {times}: {reason}", highlight=False, markup=False)
        for said in row.wrong:
            console.print(f"{row.name} is WRONG: {said}", highlight=False, markup=False)


def main() -> int:
    """Print the table; 1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="all that are registered, unless some are named")
    parser.add_argument("--kernels", type=int, default=300, help="random kernels for each target")
    parser.add_argument("--examples", type=int, default=1, help="cases of each operator")
    parser.add_argument("--full", action="store_true", help="networks at their usual sizes")
    parser.add_argument("--json", type=Path, help="write the rows there as well")
    asked = parser.parse_args()
    rows = []
    for name in asked.targets or [*sorted(TARGETS.points()), *EMULATED]:
        begin = time.perf_counter()
        rows.append(row_of(name, asked.kernels, asked.examples, asked.full))
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    show(rows)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
