"""Every target that is registered: what passes on it, and how fast it is beside `cpu`.

    python benchmarks/targets.py [cpu c ...] [--kernels 300] [--examples 1] [--full]
                                 [--seconds 600] [--part 1/4] [--results FILE] [--anew]

A row for each target, those of other packages too.  *operators*: every operator of the registry on
small random arguments, held to the interpreter; *kernels*: random kernels, in the same way, with
random schedules where code of one kernel runs here, else as the target itself schedules them;
*networks*: five networks held to the interpreter (quantised for a target of integers), and the
geometric mean of their times beside `cpu` on one thread (above 1: faster than `cpu`).  What a
target refuses with a reason is counted apart; anything wrong ends the run with a failure.

Every trial is a line of the file of results, with the fingerprint of the code it was made by: a
run goes on where one before it ended, on the same code, and several may share the work.  A target
whose tools are missing has a row that says what would install them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, assert_never

import numpy as np
from attrs import asdict, frozen
from hypothesis import HealthCheck, Phase, given, settings
from rich.console import Console
from rich.table import Table

import plica
from plica.codegen.backend import TARGETS, backend_named
from plica.codegen.fuzz import fuzz
from plica.codegen.llvm.unit import fingerprint
from plica.codegen.subject import FuzzSubject, differs, margins, meaning, subject
from plica.codegen.target import OTHERS
from plica.core.name import Name
from plica.frontend import zoo
from plica.frontend.zoo.layer import sizes
from plica.ir.graph.expression import Call, Function, Tuple, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.value import Array
from plica.ir.op import names
from plica.ir.type.term import tensor
from plica.rewrite.fuzz.judge import CRASHES
from plica.runtime.error import EvaluationError, PlicaError, UnsupportedError
from tests.codegen.native import assert_close
from tests.codegen.test_operator import applied, module_of
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

MOST_SECONDS: Final = 5.0
"""After which no burst begins: an emulator is slow."""

BATCH: Final = 20
"""Random kernels of one trial."""

CORES: Final = ("micro:cortex-m3", "micro:cortex-m55", "micro:rv32imc")
"""Other microcontrollers than the usual one."""

COMPANY: Final = 16
"""Operators of one module, where code runs elsewhere."""

Kind: TypeAlias = Literal["operator", "kernels", "network"]
Outcome: TypeAlias = Literal["passed", "refused", "wrong"]


@frozen
class Trial:
    """One thing that is tried on a target."""

    target: str
    kind: Kind
    name: str


@frozen
class TrialResult:
    """What came of a trial on some code."""

    outcome: Outcome
    said: str = ""
    """Why it is refused, or what is wrong."""
    count: int = 1
    ratio: float | None = None
    """The time of `cpu` over that of the target."""


def missing(name: str) -> str:
    """Why code of a target cannot run here; nothing where it can."""
    kind, _, other = name.partition(":")
    try:
        backend = backend_named(kind)
        target = backend.parse(backend.spellings[0] if backend.spellings and not other else name)
        if why := backend.why_not(target):
            return why
        if kind != "cpu":  # of processors that are not this one QEMU is asked
            backend.check_here(backend.settled(target))
    except PlicaError as error:
        return str(error)
    return backend.missing()


def trials(target: str, kernels: int) -> Iterator[Trial]:
    """All that is tried on a target, the dearest first."""
    yield from [Trial(target, "network", name) for name in SMALL]
    yield from [Trial(target, "kernels", str(at)) for at in range(-(-kernels // BATCH))]
    yield from [Trial(target, "operator", name) for name in names()]


def result_of(of: Trial, examples: int, full: bool) -> TrialResult:
    """What comes of a trial, now and here."""
    try:
        match of.kind:
            case "operator":
                _try_operator(of.name, of.target, examples)
                return TrialResult("passed")
            case "kernels":
                return _try_kernels(of.target, int(of.name))
            case "network":
                return TrialResult("passed", ratio=_try_network(of.name, of.target, full))
            case _:
                assert_never(of.kind)
    except UnsupportedError as error:
        return TrialResult("refused", error.diagnostics[0].message)
    except CRASHES as error:
        lines = [type(error).__name__, *map(str.strip, str(error).splitlines())]
        return TrialResult("wrong", "; ".join(islice(filter(None, lines), 5))[:400])


def _cases(name: str, count: int) -> list[Any]:  # Any: hypothesis gives a case
    """The first cases of an operator, always the same."""
    found: list[Any] = []

    @settings(
        max_examples=count, database=None, derandomize=True, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(CASES[name])
    def drawn(case: Any) -> None:
        found.append(case)

    drawn()
    return found


def _try_operator(name: str, target: str, examples: int) -> None:
    """So many cases that the target takes; a case that it refuses is drawn again, a few times."""
    passed = 0
    refused: list[UnsupportedError] = []
    for case in _cases(name, examples + TRIES):
        if passed == examples:
            return
        program = module_of(name, case)
        try:
            found: Any = plica.compile(program, target=target, cache=False)(*case.args)
        except UnsupportedError as error:
            refused.append(error)
            continue
        _check_operator(program, case, found)
        passed += 1
    if not passed:
        raise refused[0]


def _check_operator(program: Module, case: Any, found: Any) -> None:
    found, meant = leaves(found), _meant(program, case)
    for ours, expected in zip(found, meant, strict=True):
        assert_close(ours, expected, case.args)


def _meant(program: Module, case: Any) -> list[Any]:
    with np.errstate(all="ignore"):
        return leaves(plica.interpret(program, *case.args))


def leaves(of: Any) -> list[Any]:  # Any: arrays, and tuples of them
    """The arrays of a result, tuples of tuples being one."""
    return [leaf for each in of for leaf in leaves(each)] if isinstance(of, tuple) else [of]


def operators_passed(of: Sequence[str], target: str) -> list[str]:
    """Those of some operators that pass, one case of each, in modules of several: a program that
    is linked, started or sent elsewhere takes long whatever it holds.  The others are to be tried
    alone: they are refused, wrong, or in company with such."""
    cases = [_cases(name, 1)[0] for name in of]
    programs = [module_of(name, case) for name, case in zip(of, cases, strict=True)]
    parts = [
        applied(name, case, f"x{at}") for at, (name, case) in enumerate(zip(of, cases, strict=True))
    ]
    params = tuple([param for own, _ in parts for param in own])
    body = Tuple(tuple([each for _, each in parts]))
    main = Var(Name("main"), None)
    whole = module({main: Function((), (), params, None, body)}, main)
    try:
        made = plica.compile(whole, target=target, cache=False)
        found = iter(leaves(made(*[arg for case in cases for arg in case.args])))
        for program, case in zip(programs, cases, strict=True):
            for expected in _meant(program, case):
                assert_close(next(found), expected, case.args)
    except CRASHES:
        half = len(of) // 2
        if not half:
            return []
        return [*operators_passed(of[:half], target), *operators_passed(of[half:], target)]
    return list(of)


def _try_kernels(target: str, batch: int) -> TrialResult:
    """Random kernels with random schedules beside the interpreter; as the target schedules them
    where it makes no code of one kernel."""
    backend = backend_named(target.partition(":")[0])
    if backend.entry is None:
        return _try_programs(target, batch)
    # Only what is loaded into this process could end it.
    isolated = bool(backend.here(backend.settled(backend.parse(target))))
    together = 1 if isolated else BATCH
    report = fuzz(BATCH, seed=batch, target=target, isolated=isolated, together=together)
    if report.finding is None:
        return TrialResult("passed", count=report.examples)
    found = report.finding
    return TrialResult("wrong", f"seed {batch}, kernel {found.case}: {found.reason}", found.case)


def _try_programs(target: str, batch: int) -> TrialResult:
    """Random kernels as programs of a target: of one program, and alone where that is not right."""
    drawn: dict[int, tuple[FuzzSubject, tuple[Array, ...]]] = {}
    for number in range(2 * BATCH):  # some are ill formed, or have no value
        if len(drawn) < BATCH and (one := subject(batch, number)) is not None:
            with suppress(EvaluationError):
                drawn[number] = one, meaning(one.kernel, one.arrays)
    try:
        if all(each is None for each in _kernels_differ(list(drawn.values()), target)):
            return TrialResult("passed", count=len(drawn))
    except CRASHES:
        pass  # somebody's own failure is told below
    for ran, (number, of) in enumerate(drawn.items()):
        (wrong,) = _kernels_differ([of], target)
        if wrong is not None:
            return TrialResult("wrong", f"seed {batch}, kernel {number}: {wrong}", ran)
    return TrialResult("passed", count=len(drawn))


def _kernels_differ(
    of: Sequence[tuple[FuzzSubject, tuple[Array, ...]]], target: str
) -> Iterator[str | None]:
    """Where each of some kernels of one program gives something else than it means."""
    names = [Var(Name("kernel", at), None) for at in range(len(of))]
    own = [
        tuple([Var(Name(f"x{at}", i), tensor(x.shape, x.dtype)) for i, x in enumerate(each.arrays)])
        for at, (each, _) in enumerate(of)
    ]
    calls = [Call(name, params) for name, params in zip(names, own, strict=True)]
    params = tuple([param for each in own for param in each])
    main = Var(Name("main"), None)
    whole = module(
        {
            **{name: each.kernel for name, (each, _) in zip(names, of, strict=True)},
            main: Function((), (), params, None, Tuple(tuple(calls))),
        },
        main,
    )
    made = plica.compile(whole, target=target, cache=False)
    found = iter(leaves(made(*[array for each, _ in of for array in each.arrays])))
    for each, expected in of:
        results = tuple(islice(found, len(expected)))
        yield differs(each.kernel, results, expected, margins(each, expected))


def inputs_of(network: Module) -> list[Any]:
    """An input for a network: words where it takes integers."""
    random = np.random.default_rng(0)
    return [
        random.integers(0, WORDS, sizes(each)) if "i64" in str(each.type)
        else random.standard_normal(sizes(each), np.float32)
        for each in network.main_function().params
    ]  # fmt: skip


@frozen
class KnownNetwork:
    """A network with an input, what it means, and what it is timed beside."""

    network: Module
    inputs: list[Any]
    meant: Any
    beside: Callable[[], object]


@lru_cache(maxsize=8)
def known_network(name: str, full: bool, shifts: bool) -> KnownNetwork:
    """A network; of integers whose scales are powers of two where `shifts`."""
    made = zoo.NETWORKS[name]() if full else SMALL[name]()
    inputs = inputs_of(made)
    if shifts:
        made = plica.quantise(made, [inputs], power_of_two=True)
    beside = plica.compile(made, target="cpu", threads=1, cache=False)
    meant = beside(*inputs) if full else plica.interpret(made, *inputs)
    return KnownNetwork(made, inputs, meant, partial(beside, *inputs))


def _try_network(name: str, target: str, full: bool) -> float:
    """The time of `cpu` over that of the target; a wrong result is an assertion."""
    known = known_network(name, full, backend_named(target.partition(":")[0]).shifts)
    made = plica.compile(known.network, target=target, cache=False)
    found = np.asarray(made(*known.inputs))
    apart = float(np.abs(found - np.asarray(known.meant)).max())
    most = 1e-3 * max(1.0, float(np.abs(np.asarray(known.meant)).max()))
    assert apart <= most, f"{name}: apart by {apart:.1e}"
    return _ratio(known.beside, partial(made, *known.inputs))


def _ratio(one: Callable[[], object], two: Callable[[], object]) -> float:
    """The shortest time of one over that of the other, in turns."""
    least = [float("inf"), float("inf")]
    end = time.perf_counter() + MOST_SECONDS
    for _ in range(ROUNDS):
        if time.perf_counter() > end:
            break
        for at, call in enumerate((one, two)):
            for _ in range(3):
                begin = time.perf_counter()
                call()
                least[at] = min(least[at], time.perf_counter() - begin)
    return least[0] / least[1]


Results: TypeAlias = dict[Trial, TrialResult]


def results_in(path: Path, code: str) -> Results:
    """What a file holds of some code; the last word on a trial counts."""
    found: Results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        row = json.loads(line)
        if row["code"] == code:
            found[Trial(**row["trial"])] = TrialResult(**row["result"])
    return found


def noted(path: Path, code: str, of: Trial, result: TrialResult) -> None:
    """A line more in the file, whole even where others write as well."""
    row = {"code": code, "trial": asdict(of), "result": asdict(result)}
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, (json.dumps(row) + "\n").encode())
    finally:
        os.close(file)


def show(targets: list[str], lacking: dict[str, str], results: Results, kernels: int) -> None:
    """The table, then what was refused and what is wrong."""
    console = Console(width=150)
    table = Table(title="Targets (passed + refused with a reason, of all)", title_justify="left")
    table.add_column("target")
    for column in ("operators", "kernels", "networks", "x cpu", "wrong", "left"):
        table.add_column(column, justify="right")
    for name in targets:
        if lacking[name]:
            table.add_row(name, f"not here: {lacking[name]}")
            continue
        asked = list(trials(name, kernels))
        own = {each: results[each] for each in asked if each in results}
        counts = Counter[tuple[Kind, Outcome]]()
        for trial, result in own.items():
            counts[trial.kind, result.outcome] += result.count
        ratios = [each.ratio for each in own.values() if each.ratio is not None]
        table.add_row(
            name,
            f"{counts['operator', 'passed']} + {counts['operator', 'refused']} of {len(names())}",
            str(counts["kernels", "passed"]),
            f"{counts['network', 'passed']} + {counts['network', 'refused']} of {len(SMALL)}",
            f"{statistics.geometric_mean(ratios):.2g}" if ratios else "-",
            str(sum(each.outcome == "wrong" for each in own.values())),
            str(len(asked) - len(own)),
        )
    console.print(table)
    for name in targets:
        own = {each: result for each, result in results.items() if each.target == name}
        reasons = Counter(each.said for each in own.values() if each.outcome == "refused")
        for reason, times in sorted(reasons.items()):
            console.print(f"{name} refuses {times}: {reason}", highlight=False, markup=False)
        for trial, result in own.items():
            if result.outcome == "wrong":
                said = f"{name} is WRONG: {trial.kind} {trial.name}: {result.said}"
                console.print(said, highlight=False, markup=False)


def _results(
    of: Trial, left: Sequence[Trial], examples: int, full: bool
) -> Iterator[tuple[Trial, TrialResult]]:
    """What comes of a trial, and of those behind it that are tried in its company."""
    backend = backend_named(of.target.partition(":")[0])
    company = [
        each for each in islice(left, COMPANY) if (each.kind, each.target) == (of.kind, of.target)
    ]
    here = backend.here(backend.settled(backend.parse(of.target)))
    if of.kind == "operator" and examples == 1 and len(company) > 1 and not here:
        passed = operators_passed([each.name for each in company], of.target)
        for each in company:
            known = each.name in passed
            yield each, TrialResult("passed") if known else result_of(each, examples, full)
    else:
        yield of, result_of(of, examples, full)


def main() -> int:
    """Print the table; 1 where anything is wrong, 2 where something is left to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="all that are registered, unless some are named")
    parser.add_argument("--kernels", type=int, default=300, help="random kernels for each target")
    parser.add_argument("--examples", type=int, default=1, help="cases of each operator")
    parser.add_argument("--full", action="store_true", help="networks at their usual sizes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then stop")
    parser.add_argument("--part", default="1/1", help="2/4: the second of four shares of the work")
    parser.add_argument("--results", type=Path, default=Path("build/targets.jsonl"))
    parser.add_argument("--anew", action="store_true", help="try again what was tried")
    asked = parser.parse_args()
    targets = asked.targets or [*sorted(TARGETS.points()), *OTHERS, *CORES]
    code = f"{fingerprint()[:16]} {asked.examples} {'full' if asked.full else 'small'}"
    results = results_in(asked.results, code)
    lacking = {name: missing(name) for name in targets}
    end = time.monotonic() + asked.seconds
    todo = [
        each
        for name in targets if not lacking[name]
        for each in trials(name, asked.kernels)
    ]  # fmt: skip
    share, shares = map(int, asked.part.split("/"))
    todo = [each for each in todo[share - 1 :: shares] if asked.anew or each not in results]
    tried: set[Trial] = set()
    for number, trial in enumerate(todo, 1):
        if time.monotonic() > end:
            break
        if trial in results and not (asked.anew and trial not in tried):
            continue  # in company with one before it
        begin = time.perf_counter()
        for each, result in _results(trial, todo[number - 1 :], asked.examples, asked.full):
            results[each] = result
            tried.add(each)
            noted(asked.results, code, each, result)
        took, said = time.perf_counter() - begin, results[trial].outcome
        word = f"{trial.target} {trial.kind} {trial.name}: {said}, {took:.1f} s"
        print(f"[{number}/{len(todo)}] {word}", file=sys.stderr, flush=True)
    show(targets, lacking, results, asked.kernels)
    if any(each.outcome == "wrong" for trial, each in results.items() if trial.target in targets):
        return 1
    return 0 if all(each in results for each in todo) else 2


if __name__ == "__main__":
    sys.exit(main())
