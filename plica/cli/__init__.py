"""The command line: `plica COMMAND`, each command one function in one file.

>>> main(["--version"])
Traceback (most recent call last):
SystemExit: 0

Wrong usage exits with code 2, a `PlicaError` with 1 (rendered on stderr), different numbers with 3;
a compiler bug is a traceback.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pkgutil import resolve_name
from typing import Any, Final, NoReturn, TextIO

from plica import __version__
from plica.cli.command import OWN_COMMANDS, Command
from plica.runtime.error import Diagnostic, PlicaError

__all__ = ["Command", "commands", "main"]

BROKEN_PIPE_EXIT: Final = 141  # the exit code when the output's reader has gone, as for SIGPIPE
DESCRIPTION: Final = "Plica compiles deep-learning models to native code."

EXAMPLES: Final = """\
examples:
  plica demo                 compile, check and time two networks
  plica bench M.onnx --against onnxruntime   speed and agreement with onnxruntime
  plica explore M.onnx -o page.html       every compilation step on one page
  plica debug M.onnx         the first operator that differs from the interpreter
  plica compile M.py -o M.plica           compile a script
  plica run M.plica --input x=x.npy       run an artefact on arrays from files
  plica verify M.plica                    verify an artefact
  plica doctor               versions, and which targets work here
  plica doctor --json        the same as JSON
  plica rules list           the rule packs
  plica rules check algebra  test or prove every rule of a pack
  plica rules why fast-silu M.onnx        why a rule does not apply
  plica prove logic          prove every rule of a pack for all ranks and sizes
  plica new rule-pack acme-rules          a package of your rules
  plica check ./acme-rules                check everything it adds
  plica targets              all targets
  plica tune M.onnx --trials 256 --db tune.db   search for faster schedules
  plica records export tune.db -o mine.records  export the records
  plica generate M.gguf "Once upon a time"      continue a text with a language model
  plica serve M.gguf         serve it by the OpenAI protocol
  plica fuzz graph           compare random programs with the interpreter
  plica trace show T.json    a schedule trace, as Python
  plica COMMAND --help       all options of a command
"""


class _WholeWords(argparse.ArgumentParser):
    """A parser without option abbreviations: `--n -5` is an error, not `--native -5`; subparsers of
    commands and verbs are the same."""

    # Any: whatever the words of its base are.
    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **{"allow_abbrev": False, **named})

    # Any: whatever the words of its base are.
    def parse_known_args(self, *words: Any, **named: Any) -> Any:
        """The arguments; an unknown one is an error of the command that got it."""
        found, unknown = super().parse_known_args(*words, **named)
        if unknown:
            near = get_close_matches(unknown[0].split("=")[0], self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """The usage, the error, and the most similar valid word."""
        if match := _CHOICE.search(message):
            words = re.findall(r"[\w.:-]+", match[2])
            near = get_close_matches(match[1], words, n=1)
            message += f"; did you mean {near[0]!r}?" if near else ""
        super().error(message)


_CHOICE: Final = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)


def commands() -> tuple[Command, ...]:
    """Every command that can be loaded, in the order of their names."""
    from plica.cli.offered import COMMANDS  # who runs an artefact has nothing of the compiler

    own = [COMMANDS.load(name) for name in COMMANDS.own]
    return tuple(sorted((*own, *COMMANDS.all()), key=lambda each: each.name))


def parser(of: Sequence[Command] = ()) -> argparse.ArgumentParser:
    """The grammar of the command line, of these commands or of all."""
    top = _WholeWords(
        prog="plica",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"plica {__version__}")
    subparsers = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in of or commands():
        sub = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary}.",
            epilog="\n  ".join(("examples:", *command.examples)) if command.examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.configure(sub)
        sub.set_defaults(command=command)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; of Plica's own, no other one is loaded."""
    words = sys.argv[1:] if argv is None else argv
    as_json = False
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            own = [resolve_name(OWN_COMMANDS[name]) for name in words[:1] if name in OWN_COMMANDS]
            arguments = parser(own).parse_args(words)
            as_json = getattr(arguments, "json", False)
            command: Command = arguments.command
            code = command.run(arguments)
        sys.stdout.flush()
        return code
    except PlicaError as error:
        show(error, as_json)
        return 1
    except MemoryError:
        message = "Out of memory."
        show(PlicaError(Diagnostic("no-memory", message, suggestion="Try smaller sizes.")), as_json)
        return 1
    except BrokenPipeError:
        # The reader has gone, as after `| head`: print nothing more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE_EXIT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def show_warning(  # noqa: PLR0917  # as warnings.showwarning
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as one line, without its source location in Plica."""
    print(f"warning: {message}", file=sys.stderr)


def in_shell(of: Diagnostic) -> Diagnostic:
    """A diagnostic whose suggestion can be typed here, where that of the library cannot."""
    if of.suggestion is None:
        return of
    if of.place is not None and of.suggestion.endswith(f"by its name: {of.place.node}=..."):
        return replace(of, suggestion=f"Give it by its name: --input {of.place.node}=FILE.npy")
    if "from_onnx(" not in of.suggestion:
        return of
    from plica.frontend.onnx.node import SAY_DIMS, SAY_VALUES

    words = {
        SAY_DIMS: "Say what the symbolic dims are: --dim NAME=SIZE.",
        SAY_VALUES: "Give values for these inputs, --input NAME=FILE.npy, "
        "or sizes for symbolic dims, --dim NAME=SIZE.",
    }
    return replace(of, suggestion=words.get(of.suggestion, of.suggestion))


def show(error: PlicaError, as_json: bool = False) -> None:
    """Render the error, with the lines of source it points at, on the error stream.

    Who asked for JSON gets the error as JSON, where he looks for it: on the output.
    """
    told = [in_shell(diagnostic) for diagnostic in error.diagnostics]
    if as_json:
        data = {**error.to_data(), "diagnostics": [diagnostic.to_data() for diagnostic in told]}
        print(json.dumps(data, indent=2))
        return
    import linecache

    from rich.console import Console

    from plica.core.diagnostic import render

    shown = PlicaError(told[0], *told[1:])
    for note in getattr(error, "__notes__", ()):
        shown.add_note(note)
    render(shown, Console(stderr=True), line_of=linecache.getline)
