"""`plica explore MODEL|TRACE|DERIVATION`: a derivation to look around in, as one page."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import Command
from plica.cli.model import add_model, compile_reading, here, read
from plica.cli.option import ending, read_arrays
from plica.cli.progress import progress
from plica.cli.trace import read_program, read_trace
from plica.runtime.error import Diagnostic, InputError, Place

if TYPE_CHECKING:
    from plica.ir.loop.statement import Kernel
    from plica.report.serve import Answer
    from plica.report.study import StudiedModel
    from plica.schedule.default import Machine

PAGE: Final = "explore.html"


def run(arguments: argparse.Namespace) -> int:
    """Collects the views; writes the page, or serves it."""
    from plica.report import page
    from plica.runtime import archive

    if arguments.serve and arguments.output is not None:
        message = "-o and --serve exclude each other."
        raise InputError(Diagnostic("input-unknown", message, None, "-o or --serve", "both"))
    output = arguments.output or Path(PAGE)
    if not arguments.serve:
        archive.destination(output)  # before the work rather than after it
    views, answers = subject(arguments)
    if arguments.serve:
        return serve(views, answers, arguments.port)
    text = page(views).encode()
    archive.write(output, text)
    print(f"{output}: {len(text) / 1e6:.2f} MB, opens in any browser, needs no network")
    return 0


def subject(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Answer]]:
    """The subject of the page, and the queries it answers while served."""
    path: Path = arguments.model
    if path.suffix == ".plica":
        return [_artefact(path)], {}
    if path.suffix == ".json" or (path.suffix == ".py" and arguments.program is not None):
        return _traces(arguments)
    return _model(arguments)


def _artefact(path: Path) -> dict[str, Any]:
    from plica.report.model_view import artefact_view
    from plica.runtime.load import load

    return artefact_view(path.stem, load(path).artefact.record(), _machine())


def _machine() -> Machine:
    from plica.codegen.backend import backend_of
    from plica.schedule.default import Machine

    found = backend_of(here()).machine(here())
    assert isinstance(found, Machine)  # this processor
    return found


def _traces(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Answer]]:
    from plica.report.trace_view import trace_view, without_step
    from plica.schedule.replay import kernel_of

    if arguments.program is None:
        message = "A trace needs the kernel that it schedules."
        place = Place(file=str(arguments.model))
        hint = "Give its script: --program K.py."
        raise InputError(Diagnostic("input-missing", message, place, suggestion=hint))
    _, name, kernel = kernel_of(read_program(arguments.program), arguments.kernel)
    traces = {arguments.model.name: read_trace(str(arguments.model))}
    for each in arguments.against:
        title = Path(each).name
        traces[title if title not in traces else each] = read_trace(each)
    first = next(iter(traces.values()))
    for number in arguments.fork:
        if not 0 <= number < len(first):
            message = f"The trace has no step {number}."
            expected = f"a number from 0 to {len(first) - 1}"
            raise InputError(Diagnostic("input-unknown", message, None, expected, str(number)))
        left, fell = without_step(first, kernel, number)
        more = f", {len(fell)} more fell" if fell else ""
        traces[f"without step {number}{more}"] = left
    machine = _machine()
    view = trace_view(str(name.name), kernel, traces, machine, _roof(), timed=not arguments.untimed)

    def replay(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        return replayed(str(asked.get("trace", "")), kernel, machine)

    return [view], {"replay": replay}


def replayed(text: str, kernel: Kernel, machine: Machine) -> dict[str, Any]:
    """The steps of a kernel under a user's trace; a trace is read, never executed."""
    from plica.report.line_table import LineTable
    from plica.report.nest_film import to_data, work_of
    from plica.report.trace_view import frames_of
    from plica.schedule.trace import Trace

    table = LineTable()
    frames = frames_of(Trace.from_python(text, "the page"), kernel, machine, True, True)
    film = to_data(frames, table)
    return {"film": film, "lines": table.lines, "work": list(work_of(kernel)), "refused": ""}


def _roof() -> dict[str, Any]:
    """What one core of this machine does at best, by a program that does nothing else."""
    import numpy as np

    from plica.bench.roof import roof_of
    from plica.ir.text.script import from_text
    from plica.pipeline import compile

    source = (
        "import plica\nfrom plica.script import Tensor, f32\n\n@plica.function\n"
        "def main(x: Tensor[(1,), f32]) -> Tensor[(1,), f32]:\n    return x + 1.0\n"
    )
    tiny = compile(from_text(source), threads=1)
    roof = roof_of(tiny.profile(np.ones(1, np.float32), runs=1))
    return {"gflops": roof.gflops, "levels": [list(level) for level in roof.levels]}


def _model(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Answer]]:
    from plica.report import examine, model_view
    from plica.report.future import check_step, future

    given = read_arrays(arguments.input)
    with progress(arguments.model.name, total=5 + len(arguments.fork)) as say:
        say("compiling")
        made = compile_reading(arguments, read(arguments.model, arguments.dim, given), arguments.db)
        for step in arguments.fork:
            check_step(step, len(made.lowered.derivation.steps))
        study = examine(made, given, say)
        futures = [future(made, step, given, say) for step in arguments.fork]
        curves = tuning_curves(made, arguments.db)
        timed = 0 if arguments.untimed else arguments.timed
        view = model_view(study, timed, say, curves, futures)

    def forked(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        return future(made, whole(asked, "step"), given)

    def replay(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        origins = made.lowered.program.origins
        number = whole(asked, "kernel")
        origin = origins[number] if 0 <= number < len(origins) else None
        if origin is None:
            message = "This kernel has no trace to edit."
            raise InputError(Diagnostic("input-unknown", message, None, "a kernel with a trace"))
        return replayed(str(asked.get("trace", "")), origin.kernel, _machine())

    return [view], {"fork": forked, "replay": replay}


def whole(asked: Mapping[str, Any], name: str) -> int:
    """A number that the page was to send."""
    found = asked.get(name)
    if type(found) is not int:
        message = f"The request lacks the number {name!r}."
        raise InputError(Diagnostic("input-type", message, None, "a whole number", repr(found)))
    return found


def tuning_curves(of: StudiedModel, database: Path | None) -> list[dict[str, Any]]:
    """What every trial of a tuning database took, kernel by kernel."""
    if database is None:
        return []
    from plica.search.record import Database
    from plica.search.target import tuning_of
    from plica.search.task import tasks_of

    machine = tuning_of(of.target).fingerprint(of.target)
    found: list[dict[str, Any]] = []
    with Database(database) as known:
        for task in tasks_of(of.lowered.final, of.target, of.contract):
            trials = sorted(known.all(task.key, machine), key=lambda each: each.trial)
            if any(trial.cost is not None for trial in trials):
                costs = [trial.cost for trial in trials]
                found.append({"name": task.name, "weight": task.weight, "costs": costs})
    return found


def serve(views: Sequence[Mapping[str, Any]], answers: Mapping[str, Answer], port: int) -> int:
    """Serves the page until interrupted."""
    from plica.report.serve import LOOPBACK, server

    with server(views, answers, port) as serving:
        print(f"http://{LOOPBACK}:{serving.server_address[1]}/ (Ctrl-C ends it)", flush=True)
        serving.serve_forever()
    return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser)
    parser.add_argument("-o", "--output", type=ending(".html"), metavar="PAGE.html",
                        help=f"the page to write ({PAGE})")  # fmt: skip
    parser.add_argument("--serve", action="store_true",
                        help="serve the page on this machine, with live forks")  # fmt: skip
    parser.add_argument("--port", type=int, default=0, help="the port to serve on (any)")
    parser.add_argument("--fork", type=int, action="append", default=[], metavar="STEP",
                        help="also compile without this step; repeatable")  # fmt: skip
    parser.add_argument("--program", metavar="K.py", help="the script with the kernel of a trace")
    parser.add_argument("--kernel", help="the kernel, if there are several")
    parser.add_argument("--against", action="append", default=[], metavar="TRACE",
                        help="another trace of the same kernel, side by side")  # fmt: skip
    parser.add_argument("--db", type=Path, metavar="TUNE.db",
                        help="a tuning database: its curves, and its schedules")  # fmt: skip
    parser.add_argument("--timed", type=int, default=1, metavar="N",
                        help="kernels to time at every step, slowest first (1)")  # fmt: skip
    parser.add_argument("--untimed", action="store_true", help="do not time schedule steps")


COMMAND: Final = Command(
    "explore",
    "Show graph, loops and assembly at every compilation step, on one page",
    run,
    configure,
    (
        "plica explore M.onnx -o page.html",
        "plica explore M.onnx --fork 12 --db tune.db",
        "plica explore M.onnx --serve",
        "plica explore best.json --program matmul.py --against default.json",
        "plica explore M.plica",
    ),
)
