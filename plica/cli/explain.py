"""`plica explain MODEL -o report.html`: what compiling did to a model, as one page.

`plica explain --passes` prints the pipelines of the targets, and `plica explain MODEL
--time-passes` each pass that ran for a model, with digests of its input and output, and its time.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from plica.cli.command import Command, counted, json_text
from plica.cli.model import add_model, compile_model
from plica.cli.option import ending, read_arrays
from plica.cli.progress import progress, stdout_console
from plica.runtime.error import Diagnostic, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plica.ir.passes import Pipeline
    from plica.report.study import Study


def run(arguments: argparse.Namespace) -> int:
    """Compile, run, and write the page, or print what it would say as JSON."""
    if arguments.passes:
        return print_passes(arguments)
    if arguments.model is None:
        message = "There is no model to explain."
        hint = "Give a model, or --passes to print the pipelines."
        raise InputError(Diagnostic("input-missing", message, suggestion=hint))
    if arguments.time_passes:
        return print_pass_times(arguments)
    if arguments.target is not None or arguments.effort != "default":
        from plica.pipeline import pipeline_of, target_of

        target, effort = arguments.target or "cpu", arguments.effort
        pipeline_of(target_of(target), effort)  # which may be unknown
        message = "Models are explained by running them on this CPU."
        hint = "--target and --effort go with --passes and --time-passes."
        found = f"--target {target} --effort {effort}"
        raise InputError(Diagnostic("unsupported", message, None, "neither", found, hint))
    from plica.report import examine, model_view, page
    from plica.runtime import archive
    from plica.runtime.timing import busy, load

    before = load()
    if arguments.output is not None:
        archive.destination(arguments.output)  # before the work rather than after it
    with progress(arguments.model.name, total=4) as say:
        say("compiling")
        given = read_arrays(arguments.input)
        study = examine(compile_model(arguments, given), given, say)
        say("drawing")
        if arguments.output is not None:
            archive.write(arguments.output, page([model_view(study)]).encode())
    if arguments.json:
        print(json_text(to_data(study)))
    elif arguments.output is not None:
        fused = sum(decision.fused for decision in study.decisions)
        print(
            f"{arguments.output}: {counted(len(study.rows), 'kernel')}, "
            f"{counted(len(study.stages), 'stage')}, {fused} of "
            f"{counted(len(study.decisions), 'edge')} fused, {study.run * 1e3:.3f} ms a call"
        )
    else:
        show(study, busy(before))
    return 0


def pipelines(target: str | None, effort: str) -> Iterator[tuple[str, Pipeline]]:
    """The pipelines of a target, or of all that are installed, with their names."""
    from plica.codegen.backend import TARGETS, backend_named, backend_of, find_target

    every = [*map(backend_named, sorted(TARGETS.own)), *TARGETS.all()]
    named = [backend_of(find_target(target))] if target else every
    for backend in named:
        yield backend.name, backend.pipeline(effort)
        if (dynamic := backend.with_objects()) is not None:
            yield f"{backend.name}, programs with data and recursion", dynamic.pipeline(effort)


def print_passes(arguments: argparse.Namespace) -> int:
    """Print the pipelines of targets."""
    found = list(pipelines(arguments.target, arguments.effort))
    if arguments.json:
        print(json_text({
            name: [{
                "pass": pass_.name, "kind": pass_.kind, "why": pass_.why,
                "contract": None if pass_.takes_contract else str(pass_.contract),
            } for pass_ in pipeline]
            for name, pipeline in found
        }))  # fmt: skip
        return 0
    print("\n\n".join(f"{name}\n{pipeline.table()}" for name, pipeline in found))
    return 0


def print_pass_times(arguments: argparse.Namespace) -> int:
    """Run the pipeline of a target on a model, and print each pass."""
    from time import perf_counter

    from plica.cli.model import check_sizes, packs_of, read
    from plica.codegen.backend import backend_of
    from plica.codegen.compilation import emitted, lowered
    from plica.codegen.pass_run import KernelCount, PassLog
    from plica.codegen.program_kind import static_form, without_loops
    from plica.pipeline import (
        compile,
        contract_of,
        job_for,
        packs_of as allowed,
        pipeline_of,
        target_of,
    )

    module = read(arguments.model, arguments.dim, read_arrays(arguments.input)).module
    check_sizes(module)
    target = target_of(arguments.target or "cpu")
    backend = backend_of(target)
    module = without_loops(module)
    static = static_form(module) if backend.objects else module
    pipeline = pipeline_of(target, arguments.effort, objects=static is None)
    contract = contract_of(arguments.contract)
    seen = backend.with_threads(target, arguments.threads)
    native = compile if backend.native else None
    packs = allowed(packs_of(arguments), contract)
    job = job_for(seen, contract, packs, threads=arguments.threads, native=native)
    log, kernels = PassLog(perf_counter), KernelCount()
    arranged = lowered(pipeline, module if static is None else static, job, (log, kernels))
    emitted(pipeline, arranged, job, (log, kernels))
    if arguments.json:
        rows = [run.to_data() for run in log.runs]
        print(json_text({"passes": rows, "built": kernels.built, "emitted": kernels.emitted}))
        return 0
    print(log)
    total = sum(run.seconds for run in log.runs)
    print(f"{len(log.runs)} passes of {len(log.kinds)} kinds, {1e3 * total:.0f} ms; {kernels}")
    return 0


def to_data(of: Study) -> dict[str, Any]:
    """The study as JSON data, without pictures."""
    return {
        "model": of.name,
        "target": of.target,
        "threads": of.threads,
        "contract": of.contract,
        "seconds": {"lowering": of.lowering, "building": of.building, "run": of.run},
        "constants": of.constants,
        "workspace": of.workspace,
        "roof": {"gflops": of.roof.gflops, "levels": of.roof.levels},
        "stages": [
            {"name": stage.name, "operators": dict(stage.operators), "rules": dict(stage.rules)}
            for stage in of.stages
        ],
        "fusion": [
            {
                "from": str(decision.producer),
                "to": str(decision.consumer),
                "fused": decision.fused,
                "reason": decision.reason,
                "because": decision.because,
            }
            for decision in of.decisions
        ],
        "kernels": [row.to_data() for row in of.rows],
        "passed over": list(of.passed_over),
        "joined": list(of.joined),
    }


def show(of: Study, warning: str) -> None:
    """The study in a few tables, where no page was asked for."""
    from rich.table import Table

    from plica.cli.bench import SHOWN, show_rows

    console = stdout_console()
    stages = Table("stage", "operators", "rules", title=of.name, title_justify="left")
    for stage in of.stages:
        stages.add_row(
            stage.name,
            ", ".join(f"{count} {name}" for name, count in stage.operators[:6]),
            ", ".join(f"{name} ({count})" for name, count in stage.rules[:4]),
        )
    console.print(stages)
    show_rows(console, of.rows, SHOWN, warning)
    for join in of.joined:
        console.print(f"joined: {join}", markup=False)
    for refusal in of.passed_over:
        console.print(f"passed over: {refusal}", markup=False)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser, optional=True)
    parser.add_argument(
        "--passes", action="store_true", help="print the pipelines of passes instead"
    )
    parser.add_argument("--time-passes", "--road", action="store_true",
                        help="print each pass that ran, with input, output and time")  # fmt: skip
    parser.add_argument("--target", help="the target of --passes (all) and --time-passes (cpu)")
    parser.add_argument("--effort", default="default", help="fast, default or max")
    parser.add_argument("-o", "--output", type=ending(".html"), metavar="FILE.html",
                        help="the page to write")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


COMMAND: Final = Command(
    "explain",
    "Show passes, fusion, kernels and memory as tables or as one page",
    run,
    configure,
    (
        "plica explain M.onnx -o report.html",
        "plica explain M.onnx --threads 2 --packs algebra",
        "plica explain M.onnx --json",
        "plica explain M.onnx --time-passes --target cuda:sm_90",
        "plica explain --passes --target cpu",
    ),
)
