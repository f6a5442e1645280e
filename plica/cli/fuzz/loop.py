"""`plica fuzz kernel`, `schedule` and `form`: random kernels and stages through schedules, forms,
lowering and code."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from plica.cli.fuzz.kind import FuzzKind, Say, by_template, check_names, option

if TYPE_CHECKING:
    from plica.cli.fuzz.kind import Report


def fuzz_kernel(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Kernels by the code of a target; on a GPU every array has an edge that is looked at."""
    if arguments.target == "cuda":
        from plica.codegen.cuda.fuzz import fuzz as fuzz_on_gpu

        length = arguments.length
        return fuzz_on_gpu(examples, arguments.seed, first=first, length=length, say=say)
    from plica.codegen.fuzz import fuzz
    from plica.codegen.plant import PASSES, wrong_entry
    from plica.codegen.subject import CPU

    return fuzz(
        examples,
        arguments.seed,
        first=first,
        length=arguments.length,
        guard=arguments.guard,
        passes=PASSES.get(arguments.plant, CPU),
        target=arguments.target,
        entry=wrong_entry if arguments.plant == "emitter" else None,
        say=say,
    )


def check_kernel(arguments: argparse.Namespace) -> None:
    """Refuse mistakes and guards that a target has not."""
    if arguments.target == "cuda" and (arguments.plant or arguments.guard):
        message = "--plant and --guard need a CPU target."
        _refuse_plant(message, "--plant" if arguments.plant else "--guard")
    if arguments.plant == "emitter" and arguments.target != "cpu":
        _refuse_plant("A mistake is planted in the emitter of LLVM.", arguments.target)


def _refuse_plant(message: str, found: str) -> NoReturn:
    from plica.runtime.error import Diagnostic, UnsupportedError

    raise UnsupportedError(Diagnostic("unsupported", message, None, "--target cpu", found))


def kernel_summary(report: Report, arguments: argparse.Namespace) -> list[str]:
    """The exercised steps and loops, and those that were not."""
    steps, guarded = report["steps"], ""
    if arguments.guard:
        guarded = ", every array guarded at its end and at its start"
    loops = report["loops"] or report["kinds"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in loops.items())
    return [
        f"{report.examples} kernels, seed {report.seed}, run natively after "
        f"{sum(steps.values())} steps of {len(steps)} kinds{guarded}.",
        f"{'Kinds' if report['kinds'] else 'Loops'}: {kinds or 'none'}.",
        *[f"Not run: {reason} ({times})." for reason, times in report["skipped"].items()],
    ]


KERNEL: Final = FuzzKind(
    "kernel",
    "kernels",
    "kernels through random traces, lowering and LLVM, run natively",
    ("--examples 3000 --guard",
     "--plant bound       plant a wrong bound, which must be found",
     "--plant emitter     plant a mistake in the LLVM IR"),
    fuzz_kernel,
    kernel_summary,
    "All compute what they mean.",
    goal=20_000,
    together=30,
    options=(
        option("--length", type=int, default=6, help="schedule steps per kernel (6)"),
        option("--guard", action="store_true",
               help="put every array next to unmapped memory, first its end, then its start"),
        option("--plant", choices=("bound", "order", "race", "emitter"),
               help="plant a mistake in a lowering pass or the emitter; it must be found"),
        option("--target", default="cpu",
               help="the target: cpu, c, or cuda on the GPU of this machine (cpu)"),
    ),
    check=check_kernel,
    every=lambda: {"loops": ("parallel", "serial", "unrolled", "vectorized")},
    ways=((), ("--guard",)),
    remarks=(
        "Kernels run in processes of their own; a crash is a finding, and the others continue.",
    ),
)  # fmt: skip


def fuzz_schedule(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Kernels through random traces, or default traces with changed numbers."""
    if arguments.decisions:
        from plica.codegen.form_fuzz import fuzz_decisions

        return fuzz_decisions(examples, arguments.seed, first=first, say=say)
    from plica.schedule.fuzz import fuzz

    return fuzz(examples, arguments.seed, first=first, length=arguments.length,
                focus=arguments.focus, say=say)  # fmt: skip


def check_focus(arguments: argparse.Namespace) -> None:
    """Refuse kinds of instructions that are not known."""
    from plica.schedule.instruction import kinds

    check_names(arguments.focus, kinds(), "instruction")


def every_step() -> Mapping[str, Iterable[str]]:
    """All kinds of steps that a walk can take."""
    from plica.schedule.generate.step import untried
    from plica.schedule.instruction import kinds

    return {"taken": [kind for kind in kinds() if kind not in untried()]}


def schedule_summary(report: Report, arguments: argparse.Namespace) -> list[object]:
    """The steps taken, and those refused, by precondition."""
    from rich.table import Table
    from rich.text import Text

    taken, refused = report["taken"], report["refused"]
    done, refusals = sum(taken.values()), sum(refused.values())
    if arguments.decisions:
        reasons = ", ".join(f"{word} {count}" for word, count in refused.items())
        return [
            f"{report.examples} default traces of {len(report['templates'])} templates, seed "
            f"{report.seed}: {done} changed steps kept their meaning, {refusals} changed traces "
            f"were refused ({reasons or 'none'})."
        ]
    counted = (
        f"{report.examples} kernels, seed {report.seed}: {done} steps of {len(taken)} kinds taken, "
        f"{refusals} refused for {len(refused)} preconditions."
    )
    words: dict[str, Counter[str]] = {kind: Counter() for kind in taken}
    for each, times in refused.items():
        kind, _, word = each.partition(": ")
        words.setdefault(kind, Counter())[word] = times
    table = Table("instruction", "taken", "refused", box=None)
    for kind, why in sorted(words.items()):
        reasons = ", ".join(f"{word} {times}" for word, times in why.items())
        table.add_row(kind, str(taken.get(kind, 0)), reasons)
    untried = report.settings["untried"]
    never = [Text(f"Never tried: {', '.join(untried)}", "yellow")] * bool(untried)
    return [counted, table, *never]


SCHEDULE: Final = FuzzKind(
    "schedule",
    "kernels",
    "kernels through random traces of every kind of instruction",
    ("--examples 3000",
     "--focus split --focus fuse --length 12",
     "--decisions --examples 1000"),
    fuzz_schedule,
    schedule_summary,
    "All mean afterwards what they meant before.",
    goal=10_000,
    together=50,
    options=(
        option("--length", type=int, default=8, help="schedule steps per kernel (8)"),
        option("--focus", action="append", default=[], metavar="KIND",
               help="try this kind of step more often; repeatable"),
        option("--decisions", action="store_true",
               help="change the decisions of default traces of random stages; the result "
                    "must be right or refused"),
    ),
    check=check_focus,
    asked=lambda arguments: [("taken", kind) for kind in arguments.focus],
    every=every_step,
    ways=((), (), (), ("--decisions",)),
)  # fmt: skip


def fuzz_form(arguments: argparse.Namespace, first: int, examples: int, say: Say) -> Report:
    """Stages through forms, templates and passes, perhaps with a planted mistake."""
    from plica.codegen.form_fuzz import FormWay, fuzz
    from plica.codegen.form_fuzz.judge import WAYS

    way = WAYS[arguments.plant] if arguments.plant else FormWay()
    return fuzz(examples, arguments.seed, first=first, way=way, say=say)


def every_form() -> Mapping[str, Iterable[str]]:
    """All forms of processors and of GPUs, and all templates."""
    from plica.schedule.default import FORMS
    from plica.schedule.default.choose import TEMPLATES
    from plica.schedule.default.gpu import GPU_FORMS

    return {"forms": [form.name for form in (*FORMS, *GPU_FORMS)], "templates": tuple(TEMPLATES)}


FORM: Final = FuzzKind(
    "form",
    "stages",
    "stages through the forms, trace templates and lowering passes, interpreted",
    ("--examples 2000",
     "--plant form          plant a mistake in a form, which must be found",
     "--plant template      plant a mistake in a template"),
    fuzz_form,
    by_template(
        "{examples} stages of {kinds:kinds} kinds, seed {seed}: {forms:kinds} forms applied "
        "{forms:times} times, {templates:kinds} templates {templates:times} times."
    ),
    "All mean afterwards what they meant before.",
    goal=1_000,
    together=10,
    options=(
        option("--plant", choices=("form", "template", "pass"),
               help="plant a mistake in a form, a template or a lowering pass; "
                    "it must be found and named"),
    ),
    every=every_form,
)  # fmt: skip
