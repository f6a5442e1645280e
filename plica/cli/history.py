"""`plica history MODEL`: the steps of a compilation: of graph, schedules and lowering."""

from __future__ import annotations

import argparse
from collections import Counter
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from plica.cli.command import Command, json_text
from plica.cli.model import add_model, compile_model
from plica.cli.option import read_arrays
from plica.cli.progress import progress

if TYPE_CHECKING:
    from plica.core import Term
    from plica.ir.loop import Stmt
    from plica.report.study import StudiedModel
    from plica.report.timeline import Timeline, TimelineStep

WIDTH: Final = 100


def run(arguments: argparse.Namespace) -> int:
    """Compiles, and shows the requested view."""
    from plica.report.timeline import Timeline

    given = read_arrays(arguments.input)
    with progress(arguments.model.name, total=2) as say:
        say("compiling")
        timeline = Timeline(compile_model(arguments, given))
        say("collecting the steps")
        steps = timeline.steps
    if arguments.kernel is not None:
        show_kernel_origins(timeline.of, arguments.kernel, arguments.asm)
    elif arguments.fork is not None:
        from plica.cli.impact import difference_data, show_difference
        from plica.report.future import compared

        decision = None if arguments.decision is None else tuple(arguments.decision)
        other = timeline.fork(arguments.fork, rule=arguments.rule, decision=decision)
        difference = compared(timeline.of, other, given)
        if arguments.json:
            print(json_text(difference_data(difference)))
        else:
            show_difference(difference, f"fork at {line(timeline.step(arguments.fork))}")
    elif arguments.step is not None:
        show_step(timeline, arguments.step)
    elif arguments.first is not None:
        first = timeline.first(lambda state: arguments.first in shown(state))
        print("no state has it" if first is None else line(first))
    else:
        chosen = [step for step in steps if arguments.grep is None or arguments.grep in step.name]
        if arguments.json:
            from attrs import asdict

            print(json_text([asdict(step) for step in chosen]))
        elif arguments.grep is not None:
            print("\n".join(map(line, chosen)))
        else:
            show_counts(timeline)
    return 0


def line(step: TimelineStep) -> str:
    """A step in one line."""
    place = f" {step.kernel}" if step.kernel else ""
    same = "" if step.changes else "  (changes nothing)"
    return shorten(f"{step.number:5} {step.level}{place}: {step.name}{same}", WIDTH)


def shown(state: Term) -> str:
    """A state as text."""
    from plica.ir.graph.module import Module
    from plica.ir.loop import Kernel
    from plica.ir.text.show import show_kernel, show_module

    if isinstance(state, Kernel):
        return show_kernel(state, "kernel")
    assert isinstance(state, Module)
    return show_module(state).text


def show_counts(timeline: Timeline) -> None:
    """The number of steps, of effective steps, and of replaced terms."""
    from plica.report.timeline import LEVELS

    counts = Counter(step.level for step in timeline.steps)
    changing = [step for step in timeline.steps if step.changes]
    edits = Counter[str]()
    for step in changing:
        edits[step.level] += len(timeline.edits(step.number))
    print(f"{len(timeline.steps)} steps, {sum(edits.values())} terms replaced")
    for level in LEVELS:
        effective = sum(step.level == level for step in changing)
        print(f"  {level}: {counts[level]} steps, {effective} change something, "
              f"{edits[level]} terms replaced")  # fmt: skip


def show_step(timeline: Timeline, number: int) -> None:
    """The terms a step replaced, and the state after it."""
    from plica.rewrite.rule import term_text

    print(line(timeline.step(number)))
    for before, after in timeline.edits(number):
        print(shorten(f"  {term_text(before)}  -->  {term_text(after)}", 2 * WIDTH))
    print(shown(timeline.at(number)))


def show_kernel_origins(of: StudiedModel, name: str, asm: bool) -> None:
    """Where each loop and store of a kernel is from, and with `asm` each instruction."""
    from plica.ir.loop import For
    from plica.report.impact import assembly_of, why

    impact = why(of, name)
    print(f"{impact.kernel}: nodes {', '.join(impact.nodes) or 'unnamed'}")
    print(f"  rules: {', '.join(impact.rules) or 'none'}")
    names: dict[Stmt, int] = {}
    for number, statement in enumerate(impact.statements):
        stmt = statement.statement
        what = f"for {stmt.var.name}" if isinstance(stmt, For) else f"{stmt.buffer.name} ="
        names[stmt] = number
        steps = ", ".join(shorten(step, 40) for step in statement.steps) or "as it was"
        print(f"  {number:3} {what:14} of {', '.join(statement.blocks)}; {steps}")
    for row in assembly_of(of, impact) if asm else ():
        mark = "" if row.statement is None else names.get(row.statement, "")
        print(f"{mark!s:>4} {row.text.expandtabs(8)}")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser)
    parser.add_argument("--grep", metavar="WORD", help="list the steps with this in their name")
    parser.add_argument("--step", type=int, metavar="N", help="show a step and the state after it")
    parser.add_argument("--first", metavar="TEXT", help="find the first state with this text")
    parser.add_argument("--fork", type=int, metavar="N", help="go on without a step, and compare")
    parser.add_argument("--rule", help="with --fork: the rule to take instead")
    parser.add_argument("--decision", type=int, nargs="+", metavar="NUMBER",
                        help="with --fork: the decision to take instead")  # fmt: skip
    parser.add_argument("--kernel", help="show the origin of each loop and store of a kernel")
    parser.add_argument("--asm", action="store_true", help="with --kernel: of its assembly, too")
    parser.add_argument("--json", action="store_true", help="print steps and comparisons as JSON")


COMMAND: Final = Command(
    "history",
    "Step through a compilation, fork it at any step, and compare the futures",
    run,
    configure,
    (
        "plica history M.onnx --grep conv-scale",
        "plica history M.onnx --step 40",
        "plica history M.onnx --fork 40 --rule conv-bias",
        "plica history M.onnx --kernel nn_conv --asm",
    ),
)
