"""Checking a package: every record that it offers is held to what its group promises.

    packs            each rule is proved, or tested on instances
    operators        their meaning against a reference, their gradients against differences
    passes           random programs before and after, interpreted (kernels for those that lower)
    forms            random stages before and after, interpreted
    instructions     random kernels through random traces in which they are frequent, interpreted
    schedule_rules   every sketch that they make of some work, interpreted
    targets          random programs compiled for them, and the programs of the interpreter
    accelerators     an integer layer of several sizes on them, and on this processor
    cost_models      the same twice over, and finite

What was never reached is untested, and that is no good verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core import Name
from plica.core.extension import FAILURES, ExtensionGroup, ExtensionPoint, said
from plica.extending.package import ExtensionPackage, ExtensionVerdict, Word, find_package
from plica.ir.graph import Expr, Function, Module, Var, const, main_module
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import Stages, evaluate_stages, stages
from plica.ir.loop.tensor import reduce
from plica.ir.op import find
from plica.ir.type import f32, infer, tensor
from plica.rewrite.check.verdict import Proved, Refuted, Tested, Untested, Verdict
from plica.runtime.error import PlicaError, UnsupportedError
from plica.runtime.late import late
from plica.schedule.default import Machine
from plica.schedule.form import Facts
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.schedule.unlowered import run_unlowered
from plica.search.feature.packs import Packs
from plica.search.feature.store import WIDTH
from plica.search.sketch_rule import Query, hoisted_kernel

MACHINE: Final = Machine(256, 16)


def works() -> tuple[Stages, ...]:
    """Something for each element, and a product of matrices; small ones."""
    x = placeholder("x", (3, 5), f32)
    a, b = placeholder("a", (4, 6), f32), placeholder("b", (6, 8), f32)
    product = stage("c", (4, 8), lambda i, j: reduce("sum", (6,), lambda k: a[i, k] * b[k, j]))
    return (
        stages((x,), (stage("y", (3, 5), lambda i, j: x[i, j] * 2),)),
        stages((a, b), (product,)),
    )


def check_schedule_rule(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    """Whatever a rule makes of some work means what the work means."""
    group, made = "plica.schedule_rules", 0
    for work in works():
        arrays = _whole_numbers(work, seed)
        wanted = np.asarray(evaluate_stages(work, arrays))
        facts = Facts((False,) * len(work.inputs))
        try:
            for form, formed in of.forms(Query(work, facts), MACHINE):
                kernel = hoisted_kernel(formed, facts.constant).kernel
                for word, trace in of.traces(kernel, MACHINE):
                    array = run_unlowered(scheduled(trace, kernel), arrays, {})[0]
                    made += 1
                    if not np.array_equal(array.ravel(), wanted.ravel()):
                        why = f"the schedule {name}/{form}/{word} computes something else"
                        yield ExtensionVerdict(group, name, "refuted", why, str(trace))
                        return
        except ScheduleRefused as refused:
            yield ExtensionVerdict(group, name, "refuted", f"a trace is refused: {refused}")
            return
        except FAILURES as error:
            yield ExtensionVerdict(group, name, "refuted", f"it fails: {said(error)}", str(work))
            return
    if not made:
        yield ExtensionVerdict(group, name, "untested", "it has no schedule for a product or a map")
    else:
        yield ExtensionVerdict(group, name, "tested", f"{made} schedules of {len(works())} works")


def _whole_numbers(work: Stages, seed: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return [
        random.integers(-4, 5, [int(size.value) for size in each.shape]).astype(np.float32)  # type: ignore[attr-defined]  # all are literals
        for each in work.inputs
    ]


def check_cost_model(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    """A model that has learned is the same again, and thinks something of every candidate."""
    group = "plica.cost_models"
    random = np.random.default_rng(seed)
    count = max(8, min(examples, 64))
    packs = Packs.of([random.uniform(0, 4, (2, WIDTH)) for _ in range(count)])
    costs = random.uniform(1e-6, 1e-3, count)
    try:
        first, second = (of.fitted(packs, costs).scores(packs) for _ in range(2))
    except FAILURES as error:
        yield ExtensionVerdict(group, name, "refuted", f"it fails: {said(error)}")
        return
    if np.shape(first) != (count,) or not np.all(np.isfinite(first)):
        why = f"it gives {np.shape(first)} for {count} candidates, or what is no number"
        yield ExtensionVerdict(group, name, "refuted", why)
    elif not np.array_equal(first, second):
        why = "it thinks something else of the same candidates when it has learned the same again"
        yield ExtensionVerdict(group, name, "refuted", why)
    else:
        yield ExtensionVerdict(group, name, "tested", f"on {count} candidates")


SIZES: Final = ((8, 8, 8), (16, 16, 16), (16, 24, 16))
"""Rows, depth and columns of a layer, the smallest first: the first that differs is smallest."""


def check_accelerator(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    """A dense layer of bytes, of several sizes, on the machine and on this processor."""
    from plica.pipeline import compile
    from plica.quantising import quantise

    group, target = "plica.accelerators", f"accel:{name}"
    random = np.random.default_rng(seed)
    done, why = 0, ""
    for rows, depth, columns in SIZES:
        shapes = (columns, depth), (8, columns)
        weights = [random.standard_normal(shape).astype(np.float32) / 4 for shape in shapes]
        x = random.standard_normal((rows, depth)).astype(np.float32)
        small = quantise(_layers(rows, weights), [x], power_of_two=True)
        size = f"a layer of {rows}x{depth} by {columns}"
        try:
            executable = compile(small, target=target, cache=False)
            array = np.asarray(executable(x))
        except UnsupportedError as refused:  # no layer of this size fits the machine
            why = str(refused.diagnostics[0].found)
            continue
        except FAILURES as error:
            yield ExtensionVerdict(group, name, "refuted", f"{size} fails: {said(error)}")
            return
        done += 1
        wanted = np.asarray(compile(small, cache=False)(x))
        if not np.array_equal(array, wanted):
            at = tuple(int(each) for each in np.argwhere(array != wanted)[0])
            why = f"{size}: element {at} is {array[at]!r}, on this processor {wanted[at]!r}"
            yield ExtensionVerdict(group, name, "refuted", why, str(small))
            return
    if not done:
        yield ExtensionVerdict(group, name, "untested", f"no layer was offloaded: {why}")
    else:
        why = f"{done} of {len(SIZES)} layers ran on it and agree"
        yield ExtensionVerdict(group, name, "tested", why)


def _layers(rows: int, weights: Sequence[np.ndarray[Any, Any]]) -> Module:
    """`relu(x V^T) W^T`: what comes out of the first layer becomes bytes again."""
    first, second = weights
    x = Var(Name("x"), tensor((rows, first.shape[1]), f32))
    dense, relu = find("nn.dense"), find("nn.relu")
    assert dense is not None
    assert relu is not None
    body: Expr = dense(relu(dense(x, const(first))), const(second))
    return infer(main_module(Function((), (), (x,), None, body)))


# Any: a record is of the class of its group.
Check: TypeAlias = Callable[[str, Any, int, int], Iterator[ExtensionVerdict]]


def check_package(
    of: str | Path | ExtensionPackage, examples: int = 100, seed: int = 0
) -> Iterator[ExtensionVerdict]:
    """A verdict on each record of a package, as soon as it is there."""
    package = of if isinstance(of, ExtensionPackage) else find_package(of)
    with package.tried():
        for point in package.points:
            yield from _point(point, examples, seed)


def _point(point: ExtensionPoint, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    group = group_named(point.group)
    try:
        group.points()  # whether somebody else offers the name
        records = group.records(point)
    except PlicaError as broken:
        yield ExtensionVerdict(point.group, point.name, "broken", str(broken))
        return
    for record in records:
        name = point.name if group.named is None else group.named(record)
        yield from CHECKS[point.group](name, record, examples, seed)


def group_named(name: str) -> ExtensionGroup[Any]:  # Any: of each group its own
    """The group of that name."""
    from pkgutil import resolve_name

    from plica.core.extension import WHERE

    found = resolve_name(WHERE[name])
    assert isinstance(found, ExtensionGroup)
    return found


def told(group: str, verdict: Verdict, name: str = "") -> ExtensionVerdict:
    """What a check of rules or operators says."""
    word: Word
    match verdict:
        case Proved(_, why):
            word, example = "proved", ""
        case Tested():
            word, why, example = "tested", f"on {verdict.cases} instances", ""
        case Untested(_, why):
            word, example = "untested", ""
        case Refuted(_, found):
            word, why, example = "refuted", found.reason, found.pytest
    return ExtensionVerdict(group, name or verdict.rule, word, why, example)


def _pack(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    from plica.rewrite.check.run import check

    for rule in of:
        yield told("plica.packs", check(rule, examples, seed), f"{name}: {rule.name}")


def _operator(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    from plica.ir.graph.operator import load_namespace
    from plica.rewrite.check.operator import check_operator

    load_namespace(name.partition(".")[0])
    for verdict in check_operator(of, examples, seed):
        yield told("plica.operators", verdict)


def _pass(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    group = "plica.passes"
    if of.kind == "lower":
        from plica.codegen.fuzz import fuzz as fuzz_kernels
        from plica.codegen.subject import CPU

        wrong = fuzz_kernels(examples, seed, passes=(*CPU, of)).finding
        yield _found(group, name, examples, wrong, {name: examples})
        return
    if of.kind not in ("graph", "rules"):
        why = f"there is no fuzzer for passes of the kind {of.kind}"
        yield ExtensionVerdict(group, name, "untested", why)
        return
    from plica.ir.contract import exact
    from plica.rewrite.fuzz import fuzz

    declared = exact if of.takes_contract else of.contract
    report = fuzz((of,), examples, seed, contract=declared)
    yield _found(group, name, report.examples, report.finding, report["fired"])


def _found(
    group: str, name: str, count: int, finding: Any, fired: Mapping[str, int]
) -> ExtensionVerdict:
    """What a fuzzer says of something that should have been used."""
    if finding is not None:
        return ExtensionVerdict(group, name, "refuted", finding.reason, finding.pytest)
    if not (times := fired.get(name, 0)):
        return ExtensionVerdict(group, name, "untested", f"none of {count} random cases it changed")
    return ExtensionVerdict(group, name, "tested", f"on {count} random cases, {times} changed")


def _form(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    from plica.codegen.form_fuzz import FormWay, fuzz

    report = fuzz(examples, seed, way=FormWay(forms=(of,), gpu_forms=()))
    if (wrong := report.finding) is not None:
        why = f"the {wrong.kind} {wrong.guilty} {wrong.reason}"
        yield ExtensionVerdict("plica.forms", name, "refuted", why, wrong.pytest)
        return
    yield _found("plica.forms", name, report.examples, None, report["forms"])


def _instruction(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    from plica.schedule.fuzz import fuzz
    from plica.schedule.generate.argument import argument, fields_of

    group = "plica.instructions"
    if unknown := [field for field in fields_of(of) if argument(name, field) is None]:
        why = f"no random value is known for its {' and '.join(unknown)}"
        yield ExtensionVerdict(group, name, "untested", why)
        return
    report = fuzz(examples, seed, length=6, focus=(name,))
    wrong = report.finding
    if wrong is not None and wrong.step == name:
        yield ExtensionVerdict(group, name, "refuted", wrong.reason, wrong.pytest)
    else:
        yield _found(group, name, report.examples, None, report["taken"])


def _target(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    from plica.ir.contract import exact
    from plica.pipeline import compile
    from plica.rewrite.fuzz import fuzz
    from plica.runtime.error import UnsupportedError

    group = "plica.targets"

    def native(module: Any, inputs: Any) -> Any:
        try:
            found = compile(module, target=name, cache=False, contract=exact)(*inputs)
        except UnsupportedError:  # some programs are compiled when they know their sizes
            return None
        return late("plica.cli.fuzz.graph:shaped")(found, module)

    report = fuzz((), examples, seed, native=native, every=1)
    if (wrong := report.finding) is not None:
        yield ExtensionVerdict(group, name, "refuted", wrong.reason, wrong.pytest)
    elif not (compiled := report.number("compiled")):
        yield ExtensionVerdict(group, name, "untested", f"none of {examples} programs compiled")
    else:
        why = f"{compiled} of {report.examples} random programs compiled and agree"
        yield ExtensionVerdict(group, name, "tested", why)


def _front_end(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    why = f"it loads, and reads {' '.join(of.suffixes)}; its own tests say whether rightly"
    yield ExtensionVerdict("plica.frontends", name, "tested", why)


def _command(name: str, of: Any, examples: int, seed: int) -> Iterator[ExtensionVerdict]:
    late("plica.cli:parser")((of,))
    why = "it loads, and its options stand beside one another; its own tests say what it does"
    yield ExtensionVerdict("plica.commands", name, "tested", why)


CHECKS: Final[Mapping[str, Check]] = {
    "plica.packs": _pack,
    "plica.operators": _operator,
    "plica.passes": _pass,
    "plica.forms": _form,
    "plica.instructions": _instruction,
    "plica.schedule_rules": check_schedule_rule,
    "plica.cost_models": check_cost_model,
    "plica.targets": _target,
    "plica.accelerators": check_accelerator,
    "plica.frontends": _front_end,
    "plica.commands": _command,
}
"""How the records of each group are checked."""
