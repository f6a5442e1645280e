"""`plica fuzz`: random programs through passes, packs and schedules, held to the interpreter."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from plica.cli.command import Command
from plica.cli.fuzz_form import configure as configure_form
from plica.cli.fuzz_onnx import configure as configure_onnx
from plica.cli.fuzz_open import configure as configure_open
from plica.cli.named_pack import named_contract, named_packs, named_pass
from plica.cli.progress import progress
from plica.cli.rules import count, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plica.codegen.fuzz import KernelFuzzReport as KernelReport
    from plica.ir.graph.module import Module
    from plica.ir.type.term import Type
    from plica.rewrite.contract import Contract
    from plica.rewrite.fuzz import GraphFuzzReport, Stage
    from plica.rewrite.pack import Pack
    from plica.schedule.fuzz import ScheduleFuzzReport as ScheduleReport

EPILOG: Final = """\
examples:
  plica fuzz graph --examples 2000
  plica fuzz graph --rules my_rules.py --seed 7
  plica fuzz graph --pass my_pass.py:PASS
  plica fuzz graph --plant              a wrong rule is planted, and must be found
  plica fuzz graph --plant pass         as is a mistake in a pass
  plica fuzz graph --compiled           native code, not rules, is held to the interpreter
"""
SCHEDULE_EPILOG: Final = """\
examples:
  plica fuzz schedule --examples 3000
  plica fuzz schedule --focus split --focus fuse --length 12
"""
KERNEL_EPILOG: Final = """\
examples:
  plica fuzz kernel --examples 3000 --guard
  plica fuzz kernel --plant bound       a wrong bound is planted, and must be found
  plica fuzz kernel --plant emitter     as is one in the text of LLVM

Kernels run in processes of their own: one that dies is a finding, and the rest goes on.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """`plica fuzz graph`, `schedule`, `kernel`, `form`, `onnx` and `open`."""
    verbs = parser.add_subparsers(metavar="WHAT", required=True)
    graph = verbs.add_parser(
        "graph",
        help="modules through the passes and rule packs of the graph language",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    graph.add_argument("--examples", type=count, default=200, help="how many modules (200)")
    graph.add_argument("--seed", type=int, default=0,
                       help="the same seed, the same modules, one after another")  # fmt: skip
    graph.add_argument("--rules", action="append", default=[], metavar="PACK|FILE.py",
                       help="one more pack, by name or in a Python file; repeatable")  # fmt: skip
    graph.add_argument("--pass", action="append", default=[], dest="passes",
                       metavar="NAME|FILE.py:NAME",
                       help="try this pass alone, by name or in a file; repeatable")  # fmt: skip
    graph.add_argument("--contract", default="exact",
                       help="rules within this float contract are used (exact)")  # fmt: skip
    graph.add_argument("--native", type=int, default=0, metavar="K",
                       help="compile and run every K-th module too (0: none)")  # fmt: skip
    graph.add_argument("--compiled", action="store_true",
                       help="compile and run every module, closures, data and recursion too, "
                            "at the sizes of its inputs, and try nothing else")  # fmt: skip
    graph.add_argument("--plant", nargs="?", choices=("rule", "pass"), const="rule",
                       help="plant a wrong rule, or a mistake in a pass: "
                            "it must be found and named (rule)")  # fmt: skip
    graph.add_argument("--json", action="store_true", help="print JSON")
    graph.set_defaults(verb=fuzz_graph)
    schedule = verbs.add_parser(
        "schedule",
        help="kernels through random traces of every kind of instruction",
        epilog=SCHEDULE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    schedule.add_argument("--examples", type=count, default=200, help="how many kernels (200)")
    schedule.add_argument("--seed", type=int, default=0, help="the same seed, the same kernels")
    schedule.add_argument("--length", type=count, default=8, help="steps tried for each (8)")
    schedule.add_argument("--focus", action="append", default=[], metavar="KIND",
                          help="try this kind of instruction more often; repeatable")  # fmt: skip
    schedule.add_argument("--json", action="store_true", help="print JSON")
    schedule.set_defaults(verb=fuzz_schedule)
    kernel = verbs.add_parser(
        "kernel",
        help="kernels through random traces, lowering and LLVM, run natively",
        epilog=KERNEL_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kernel.add_argument("--examples", type=count, default=200,
                        help="how many kernels run (200)")  # fmt: skip
    kernel.add_argument("--seed", type=int, default=0, help="the same seed, the same kernels")
    kernel.add_argument("--length", type=count, default=6, help="steps tried for each (6)")
    kernel.add_argument("--guard", action="store_true",
                        help="put every array next to memory that is not there, "
                             "first its end, then its start")  # fmt: skip
    kernel.add_argument("--plant", choices=("bound", "order", "race", "emitter"),
                        help="plant a mistake in a lowering pass or in the emitter: "
                             "it must be found and blamed")  # fmt: skip
    kernel.add_argument("--target", default="cpu",
                        help="the target whose code runs: cpu, c, or cuda on the GPU of "
                             "this machine (cpu)")  # fmt: skip
    kernel.add_argument("--json", action="store_true", help="print JSON")
    kernel.set_defaults(verb=fuzz_kernel)
    configure_form(verbs)
    configure_onnx(verbs)
    configure_open(verbs)


def fuzz_graph(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a module is changed in meaning, ill formed or refused by a pass."""
    from plica.rewrite.fuzz import fuzz
    from plica.rewrite.fuzz.plant import with_wrong_pass, wrong_rule

    contract = named_contract(arguments.contract)
    extra = [pack for name in arguments.rules for pack in named_packs(name)]
    if arguments.plant == "rule":
        extra.append(wrong_rule())
    passes = [named_pass(each) for each in arguments.passes]
    through = () if arguments.compiled else tuple(passes) or stages(contract, extra)
    if arguments.plant == "pass":
        through = with_wrong_pass(through)
    every = 1 if arguments.compiled else arguments.native
    run_native = compiled if arguments.compiled else native
    with progress("modules", arguments.examples) as say:
        report = fuzz(
            through,
            arguments.examples,
            arguments.seed,
            contract=contract,
            native=run_native if every > 0 else None,
            whole=arguments.compiled,
            every=every,
            focus=[rule for pack in extra for rule in pack.within(contract)],
            say=say,
        )
    _say_unused(extra, contract)
    idle = [each.name for each in passes if not report.fired.get(each.name)]
    if arguments.json:
        print(json.dumps(report.to_data(), indent=2))
    else:
        _print(report)
        for name in idle:
            print(f"NOT TESTED: none of {report.examples} modules was changed by {name}. "
                  "Give its Pass patterns to look for: looks_for=(op.exp(x),).")  # fmt: skip
    return 0 if report.finding is None and not idle else 1


def _say_unused(extra: Sequence[Pack], contract: Contract) -> None:
    """Say on the error stream which rules were asked for and are not within the contract."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    for pack in extra:
        names = ", ".join(rule.name for rule in pack if not rule.contract <= contract)
        if names:
            hint = f"Try --contract '{pack.contract}'."
            console.print(f"Not within {contract}, so not used, of {pack.name}: {names}. {hint}")


def fuzz_schedule(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a trace changes what a kernel means, crashes, or is refused in silence."""
    from plica.core.diagnostic import did_you_mean
    from plica.runtime.error import Diagnostic, InputError
    from plica.schedule.fuzz import fuzz
    from plica.schedule.instruction import kinds

    for each in arguments.focus:
        if each not in kinds():
            message = f"There is no instruction {each!r}."
            hint = did_you_mean(each, kinds())
            raise InputError(Diagnostic("unbound-name", message, suggestion=hint))
    report = fuzz(
        arguments.examples, arguments.seed, length=arguments.length, focus=arguments.focus
    )
    if arguments.json:
        print(json.dumps(report.to_data(), indent=2))
    else:
        _print_schedule(report)
    return 0 if report.finding is None else 1


def fuzz_kernel(arguments: argparse.Namespace) -> int:
    """Exit code 1 where native code gives another result, leaves an array, or dies."""
    if arguments.target == "cuda":
        return _fuzz_on_gpu(arguments)
    from plica.codegen.fuzz import fuzz
    from plica.codegen.plant import PASSES, wrong_entry
    from plica.codegen.subject import CPU

    if arguments.plant == "emitter" and arguments.target != "cpu":
        _refuse_plant("A mistake is planted in the emitter of LLVM.", arguments.target)
    report = fuzz(
        arguments.examples,
        arguments.seed,
        length=arguments.length,
        guard=arguments.guard,
        passes=PASSES.get(arguments.plant, CPU),
        target=arguments.target,
        entry=wrong_entry if arguments.plant == "emitter" else None,
    )
    if arguments.json:
        print(json.dumps(report.to_data(), indent=2))
    else:
        _print_kernel(report)
    return 0 if report.finding is None else 1


def _fuzz_on_gpu(arguments: argparse.Namespace) -> int:
    """The same on a GPU, where every array has an edge that is looked at."""
    from plica.codegen.cuda.fuzz import fuzz

    if arguments.plant or arguments.guard:
        message = "Mistakes are planted, and arrays guarded by pages, on processors."
        _refuse_plant(message, "--plant" if arguments.plant else "--guard")
    report = fuzz(arguments.examples, arguments.seed, length=arguments.length)
    if arguments.json:
        print(json.dumps(report.to_data(), indent=2))
        return 1 if report.findings else 0
    ran = ", ".join(f"{count} {kind}" for kind, count in report.kinds.items())
    print(f"{report.examples} kernels, seed {report.seed}, run on the GPU: {ran}.")
    for reason, times in report.skipped.items():
        print(f"Not run: {reason} ({times}).")
    print("\n".join(report.findings) or "All compute what they mean.")
    return 1 if report.findings else 0


def _refuse_plant(message: str, found: str) -> NoReturn:
    from plica.runtime.error import Diagnostic, UnsupportedError

    raise UnsupportedError(Diagnostic("unsupported", message, None, "--target cpu", found))


def stages(contract: Contract, extra: Sequence[Pack]) -> tuple[Stage, ...]:
    """The stages of the pipeline, then every structural pass, then the packs it does not use."""
    from plica.ir.passes import Pass
    from plica.rewrite.graph import PASSES
    from plica.rewrite.optimise import OPTIMISE
    from plica.rewrite.packs import OWN, find_pack
    from plica.rewrite.rule_pass import Setting, packs_of

    setting = Setting(contract, tuple(extra))
    first: list[Stage] = []
    for each in OPTIMISE:
        first += packs_of(each, setting) if each.kind == "rules" else [each]
    used = {each.name for each in first}
    others = [find_pack(name) for name in sorted(OWN) if name not in used]
    found = [*first, *(each for each in PASSES if each.name not in used), *others, *extra]
    kept = [each if isinstance(each, Pass) else each.within(contract) for each in found]
    return tuple(each for each in kept if isinstance(each, Pass) or len(each))


def native(module: Module, inputs: tuple[Any, ...]) -> Any:
    """What native code gives; None where the module can't be compiled for now.

    Modules and kernels are checked after every pass on the way.
    """
    from plica.codegen.dynamic.decide import static_form
    from plica.codegen.road_check import StateChecks
    from plica.pipeline import compile, lower, target_of
    from plica.runtime.error import UnsupportedError

    try:
        made = compile(module, cache=False)
        static = static_form(module)
        lower(module if static is None else static, target=target_of("cpu"),
              objects=static is None, checks=StateChecks())  # fmt: skip
    except UnsupportedError:
        return None
    return shaped(made(*inputs), module)


def compiled(module: Module, inputs: tuple[Any, ...]) -> Any:
    """What native code over objects gives for a module at the sizes of its inputs.

    None where there is none: a function among the outputs, a polymorphic one as a value, or an
    operator that has no meaning at these sizes, which the program never comes to.
    """
    from plica.core.diagnostic import EvaluationError, IllTyped
    from plica.ir.graph.shape_specialisation import sized, sizes_of
    from plica.pipeline import build, lower, target_of
    from plica.rewrite.contract import exact
    from plica.runtime.error import UnsupportedError

    try:
        if module.main_function().dims:
            module = sized(module, sizes_of(module, [each.shape for each in _arrays(inputs)]))
        here = target_of("cpu")
        made = build(lower(module, exact, (), here, objects=True), here, objects=True)
    except (UnsupportedError, IllTyped, EvaluationError):
        return None
    return shaped(made(*inputs), module)


def shaped(found: Any, module: Module) -> Any:
    """What an executable gives, in the tuples its type says."""
    from plica.ir.type.term import TupleType

    of = module.main_function().ret
    return _nested(iter(found if isinstance(of, TupleType) else (found,)), of)


def _arrays(inputs: tuple[Any, ...]) -> Iterator[Any]:
    """The arrays in some inputs, from left to right."""
    for each in inputs:
        if isinstance(each, tuple):
            yield from _arrays(each)
        else:
            yield each


def _nested(flat: Iterator[Any], of: Type | None) -> Any:
    """The tensors of a flat result in the tuples their type says."""
    from plica.ir.type.term import TupleType

    if isinstance(of, TupleType):
        return tuple(_nested(flat, item) for item in of.items)
    return next(flat)


def _print(report: GraphFuzzReport) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    uses = sum(report.fired.values())
    console.print(
        f"{report.examples} modules under the contract {report.contract}, seed {report.seed}: "
        f"{len(report.fired)} rules used {uses} times, {report.undefined} without a value, "
        f"{report.rounded} differ by rounding alone, {report.compiled} compiled."
    )
    found = report.finding
    if found is None:
        console.print("[green]All mean afterwards what they meant before.[/]")
        return
    name = f"the rule {found.rule} of {found.stage}" if found.rule else found.stage
    console.print(f"[red]Wrong:[/] {escape(name)}: {escape(found.reason)}")
    console.print("A smallest case, as a test:\n")
    print(found.pytest)


def _print_schedule(report: ScheduleReport) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    done = sum(report.taken.values())
    words = sum(map(len, report.refused.values()))
    console.print(
        f"{report.examples} kernels, seed {report.seed}: {done} steps of {len(report.taken)} kinds "
        f"taken, {sum(sum(each.values()) for each in report.refused.values())} refused "
        f"for {words} preconditions."
    )
    table = Table("instruction", "taken", "refused", box=None)
    for kind in sorted({*report.taken, *report.refused}):
        why = ", ".join(f"{word} {n}" for word, n in report.refused.get(kind, {}).items())
        table.add_row(kind, str(report.taken.get(kind, 0)), why)
    console.print(table)
    if report.untried:
        console.print(f"[yellow]Never tried:[/] {', '.join(report.untried)}")
    found = report.finding
    if found is None:
        console.print("[green]All mean afterwards what they meant before.[/]")
        return
    console.print(f"[red]Wrong:[/] {found.step} in case {found.case}: ", end="")
    print(found.reason)
    print("\n".join(found.trace))
    console.print("A smallest case, as a test:\n")
    print(found.pytest)


def _print_kernel(report: KernelReport) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    loops = ", ".join(f"{n} {kind}" for kind, n in report.loops.items())
    guarded = ", every array guarded at its end and at its start" if report.guard else ""
    console.print(
        f"{report.examples} kernels, seed {report.seed}, run natively after "
        f"{sum(report.steps.values())} steps of {len(report.steps)} kinds{guarded}."
    )
    console.print(f"Loops: {loops or 'none'}.")
    for reason, times in report.skipped.items():
        console.print(f"Not run: {reason} ({times}).")
    found = report.finding
    if found is None:
        console.print("[green]All compute what they mean.[/]")
        return
    console.print(f"[red]Wrong ({found.kind}):[/] case {found.case}: {found.guilty}: ", end="")
    print(found.reason)
    console.print("A smallest case, as a test:\n")
    print(found.pytest)


COMMAND: Final = Command("fuzz", "Random programs, held against the interpreter", run, configure)
