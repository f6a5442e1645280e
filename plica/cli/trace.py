"""`plica trace`: show, replay, compare, bisect, minimise, normalise, transport and time traces."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from plica.cli.command import DIFFERS, Command
from plica.cli.option import ending
from plica.cli.program import declarations
from plica.cli.trace_time import configure_time, timed
from plica.core import Malformed
from plica.runtime.error import Diagnostic, InputError, Place, unreadable

if TYPE_CHECKING:
    from plica.ir.graph.module import Module
    from plica.schedule.trace import Trace

TRACE: Final = ending(".json", ".py")

EPILOG: Final = """\
examples:
  plica trace show best.json --program matmul.py
  plica trace replay best.json matmul.py -o scheduled.py
  plica trace diff old.json new.json --program matmul.py
  plica trace bisect best.json matmul.py                 the first step that changes the result
  plica trace bisect best.json matmul.py --bad slow.py:slower
  plica trace minimise best.json matmul.py -o small.json
  plica trace transport best.json other.py -o other.json
  plica trace time best.json matmul.py --against old.json
"""

RAISED: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, OSError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that a user's function may raise by mistake."""

COLOURS: Final = {
    "same": "green", "adapted": "cyan", "dropped": "yellow", "refused": "red",
    "+": "green", "-": "red", "~": "cyan", ">": "magenta", "<": "magenta", "@": "dim",
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """One verb a tool."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    def verb(name: str, about: str, run: Callable[..., int], *files: str) -> Any:
        found = verbs.add_parser(name, help=about, description=f"{about}.")
        for file in files:
            found.add_argument(file)
        if "program" not in files:
            found.add_argument("--program", metavar="FILE.py", help="the script with the kernel")
        found.add_argument("--kernel", help="the kernel, if there are several")
        found.set_defaults(verb=run)
        return found

    def output(sub: Any, what: str, kind: Callable[[str], Path] = TRACE) -> None:
        sub.add_argument("-o", "--output", type=kind, metavar="FILE",
                         help=f"write the {what} there")  # fmt: skip

    shown = verb("show", "Print a trace as Python, with the names of a program if given", show,
                 "trace")  # fmt: skip
    shown.add_argument("--json", action="store_true", help="print JSON")
    output(shown, "trace (.json or .py)")
    replayed = verb("replay", "Apply a trace to a program", replay, "trace", "program")
    replayed.add_argument("--code", metavar="TARGET", help="print its code for a target instead")
    output(replayed, "program or code", Path)
    difference = verb("diff", "Compare two traces, and their effects", diff, "a", "b")
    difference.add_argument("--json", action="store_true", help="print JSON")
    output(verb("merge", "Merge two descendants of one trace", merge, "base", "a", "b"), "trace")
    bisected = verb("bisect", "Find the first step after which a program is bad", bisect,
                    "trace", "program")  # fmt: skip
    bisected.add_argument("--bad", metavar="FILE.py:NAME",
                          help="a function of a module (default: its result is wrong)")  # fmt: skip
    bisected.add_argument("--size", action="append", default=[], metavar="DIM=N",
                          help="a symbolic size, for running the kernel; repeatable")  # fmt: skip
    minimised = verb("minimise", "Find the smallest trace that is still good", minimise,
                     "trace", "program")  # fmt: skip
    minimised.add_argument("--good", metavar="FILE.py:NAME",
                           help="a function of a module (default: the same program)")  # fmt: skip
    output(minimised, "trace")
    output(verb("normalise", "Normalise a trace by the laws", normalise, "trace"), "trace")
    transported = verb("transport", "Adapt a trace to another program, with a report", transport,
                       "trace", "program")  # fmt: skip
    transported.add_argument("--source", metavar="FILE.py",
                             help="the program of the trace: exact splits stay exact")  # fmt: skip
    output(transported, "trace")
    configure_time(verb("time", "Time a kernel under one trace, or alternately under two",
                        time, "trace", "program"))  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the verb."""
    code: int = arguments.verb(arguments)
    return code


def show(arguments: argparse.Namespace) -> int:
    """Print a trace, or write it in the other form."""
    trace = read_trace(arguments.trace)
    program = None if arguments.program is None else read_program(arguments.program)
    if arguments.output is not None:
        return write_trace(trace, arguments.output)
    if arguments.json:
        return _code(trace.to_json(), "json")
    return _code(trace.to_python(program, arguments.kernel), "python")


def replay(arguments: argparse.Namespace) -> int:
    """Print or write the program that a trace makes."""
    from plica.schedule import replay as replayed

    trace, program = read_trace(arguments.trace), read_program(arguments.program)
    module = replayed(trace, program, arguments.kernel)
    if arguments.code is None:
        return _write_program(module, arguments.output)
    from plica.codegen.backend import backend_of, find_target
    from plica.schedule.replay import kernel_of

    target = find_target(arguments.code)
    code = backend_of(target).code_of(kernel_of(module, arguments.kernel)[2], target)
    return _code(code, "text") if arguments.output is None else _write(code, arguments.output)


def diff(arguments: argparse.Namespace) -> int:
    """Prints the hunks, with the effect of each if a program is given; 3 if there are any."""
    from plica.schedule import Effect, diff as compared, effects

    a, b = read_trace(arguments.a), read_trace(arguments.b)
    difference = compared(a, b)
    shown: tuple[Effect | None, ...] = (None,) * len(difference.hunks)
    if arguments.program is not None:
        shown = effects(difference, a, read_program(arguments.program), arguments.kernel)
    if arguments.json:
        rows = [
            {"edits": [str(each) for each in hunk], "effect": effect and list(effect.lines)}
            for hunk, effect in zip(difference.hunks, shown, strict=True)
        ]
        print(json.dumps(rows, indent=2))
        return DIFFERS if rows else 0
    for number, (hunk, effect) in enumerate(zip(difference.hunks, shown, strict=True)):
        _line(f"hunk {number}", "bold")
        for edit in hunk:
            _line(str(edit), COLOURS[str(edit)[0]])
        for line in () if effect is None else effect.text.splitlines():
            _line(f"    {line}", COLOURS.get(line[:1]))
    if not difference.hunks:
        _line(str(difference), "green")
    return DIFFERS if difference.hunks else 0


def merge(arguments: argparse.Namespace) -> int:
    """Print or write the merged trace, or the conflicts; 3 if there are any."""
    from plica.schedule import Conflicts, merge as merged

    base, a, b = (read_trace(each) for each in (arguments.base, arguments.a, arguments.b))
    program = None if arguments.program is None else read_program(arguments.program)
    if isinstance(found := merged(base, a, b, program, arguments.kernel), Conflicts):
        for conflict in found.found:
            _line(str(conflict), "red")
        return DIFFERS
    if program is None:
        print("not replayed; --program FILE.py checks that every step is legal", file=sys.stderr)
    return _give_trace(found, arguments.output)


def bisect(arguments: argparse.Namespace) -> int:
    """Prints the step that makes the program bad; 3 if there is one."""
    from plica.schedule import bisect as bisected
    from plica.schedule.bisect import agree
    from plica.schedule.diff import described
    from plica.schedule.replay import kernel_of

    trace, program = read_trace(arguments.trace), read_program(arguments.program)
    _, name, whole = kernel_of(program, arguments.kernel)
    sizes = dict(_size(each) for each in arguments.size)

    def wrong(module: Module) -> bool:
        return not agree(whole, kernel_of(module, str(name.name))[2], sizes)

    bad = wrong if arguments.bad is None else read_function(arguments.bad)
    if (culprit := bisected(trace, program, bad, arguments.kernel)) is None:
        _line("the program is good after all steps", "green")
        return 0
    _line(f"step {culprit.number} is the first bad one: {described(culprit.step)}", "bold red")
    _line(f"asked {culprit.asked} times, for {len(trace)} steps", "dim")
    for line in culprit.changes:
        _line(f"    {line}", COLOURS.get(line[:1]))
    return DIFFERS


def minimise(arguments: argparse.Namespace) -> int:
    """Print or write the smallest good trace."""
    from plica.core.digest import digest
    from plica.schedule import minimise as minimised, replay as replayed

    trace, program = read_trace(arguments.trace), read_program(arguments.program)
    if arguments.good is None:
        wanted = digest(replayed(trace, program, arguments.kernel))
        found = minimised(trace, program, lambda module: digest(module) == wanted, arguments.kernel)
    else:
        found = minimised(trace, program, read_function(arguments.good), arguments.kernel)
    print(f"{len(trace)} steps, {len(found)} are needed", file=sys.stderr)
    return _give_trace(found, arguments.output)


def normalise(arguments: argparse.Namespace) -> int:
    """Print or write the normal form."""
    from plica.schedule import normalise as normalised

    program = None if arguments.program is None else read_program(arguments.program)
    trace = normalised(read_trace(arguments.trace), program, arguments.kernel)
    return _give_trace(trace, arguments.output)


def transport(arguments: argparse.Namespace) -> int:
    """Print what became of each instruction, and write the new trace."""
    from plica.schedule import transport as transported

    trace, program = read_trace(arguments.trace), read_program(arguments.program)
    source = None if arguments.source is None else read_program(arguments.source)
    moved = transported(trace, program, arguments.kernel, source=source)
    for fate in moved.report.fates:
        _line(str(fate), COLOURS[fate.verdict])
    _line(str(moved.report).splitlines()[-1], "bold")
    return 0 if arguments.output is None else write_trace(moved.trace, arguments.output)


def time(arguments: argparse.Namespace) -> int:
    """Prints the time of the kernel."""
    from plica.schedule.replay import kernel_of

    first, program = read_trace(arguments.trace), read_program(arguments.program)
    name = arguments.against
    other = None if name is None else (Path(name).name, read_trace(name))
    kernel = kernel_of(program, arguments.kernel)[2]
    sizes = dict(_size(each) for each in arguments.size)
    return timed(arguments, (Path(arguments.trace).name, first), other, kernel, sizes)


def read_trace(name: str) -> Trace:
    """The trace in a file, by its suffix."""
    from plica.schedule import Trace

    text = _text(name)
    if name.endswith(".py"):
        return Trace.from_python(text, name)
    try:
        return Trace.from_json(text)
    except Malformed as error:  # a text knows no file
        raise error.placed(Place(file=name)) from None


def write_trace(trace: Trace, path: Path) -> int:
    """Write a trace, by the suffix of the file; 0 as an exit code."""
    text = trace.to_python() if path.suffix == ".py" else f"{trace.to_json()}\n"
    return _write(text, path)


def read_program(name: str) -> Module:
    """The module of a script, or of the declarations in a program."""
    from plica.ir.text.script import from_text

    return from_text(declarations(_text(name)), name)


def read_function(name: str) -> Callable[[Module], bool]:
    """The function that `FILE.py:NAME` means."""
    file, _, word = name.rpartition(":")
    if not file:
        _refuse(name, "The name of the function is missing.", "FILE.py:NAME")
    if not Path(file).is_file():
        raise InputError(unreadable(Path(file), "FILE.py:NAME", "No such file", ".py"))
    # The user's own file, named on the user's command line, is run as Python runs it.
    found: Callable[[Module], bool] | None = runpy.run_path(file).get(word)
    if not callable(found):
        _refuse(name, f"The file has no function {word!r}.", "FILE.py:NAME")
    return partial(_asked, found, name)


def _asked(predicate: Callable[[Module], bool], name: str, module: Module) -> bool:
    """The answer of the user's function; its exceptions are reported as its own."""
    try:
        return bool(predicate(module))
    except RAISED as error:
        lines = traceback.extract_tb(error.__traceback__)
        at = next((line for line in reversed(lines) if name.startswith(line.filename)), lines[-1])
        message = f"The function raises {type(error).__name__}: {error}"
        place = Place(at.filename, at.lineno or 1, 1)
        raise InputError(Diagnostic("input-unknown", message, place, "True or False")) from error


def _write(text: str, path: Path) -> int:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        _refuse(str(path), f"The file cannot be written: {error.strerror}.", "a file to write")
    return 0


def _size(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not name or not number.isdecimal():
        _refuse(text, "A size is given as DIM=N.", "DIM=N")
    return name, int(number)


def _text(name: str) -> str:
    path = Path(name)
    if not path.is_file():
        raise InputError(unreadable(path, "a trace", "No such file", ".json", ".py"))
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        message, expected, found = "The file is not text in UTF-8.", "a .json or .py file", "bytes"
        hint = "Kernels of models are read by plica explore M.plica or exe.trace(name)."
        place = Place(file=name)
        problem = Diagnostic("input-unknown", message, place, expected, found, hint)
        raise InputError(problem) from None


def _refuse(name: str, message: str, expected: str, hint: str | None = None) -> NoReturn:
    raise InputError(Diagnostic("input-unknown", message, Place(file=name), expected, name, hint))


def _give_trace(trace: Trace, output: Path | None) -> int:
    return _code(trace.to_python(), "python") if output is None else write_trace(trace, output)


def _write_program(module: Module, output: Path | None) -> int:
    from plica.ir.text.show import show_module

    source = show_module(module)
    if output is None:
        return _code(source.text, "python")
    if source.constants:
        _refuse(str(output), "The program has constants too large for its text.", "small constants")
    return _write(source.text, output)


def _code(text: str, language: str) -> int:
    """Print code, in colours on a terminal; 0 as an exit code."""
    if not sys.stdout.isatty():
        print(text.rstrip("\n"))
        return 0
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(text.rstrip("\n"), language, background_color="default"))
    return 0


def _line(text: str, style: str | None = None) -> None:
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text, style=style or ""), soft_wrap=True, highlight=False)


COMMAND: Final = Command("trace", "Schedule traces: show, replay, compare, bisect", run, configure)
