"""Model views: all data of the page for a compiled model, as JSON data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plica.codegen.memory_plan import lives_of
from plica.codegen.program import Launch, launches
from plica.ir.graph.expression import Expr, Project
from plica.ir.text.script import from_text
from plica.report.graph_film import GraphFilm, film
from plica.report.kernel_view import assembly, kernels
from plica.report.line_table import LineTable
from plica.report.nest_film import to_data
from plica.report.study import StudiedModel, Study
from plica.report.trace_view import frames_of
from plica.rewrite.fuse import REASONS
from plica.runtime.record import CompilationRecord
from plica.schedule.default import Machine
from plica.schedule.replay import kernel_of
from plica.schedule.trace import Trace


def model_view(
    of: Study,
    timed: int = 0,
    progress: Callable[[str], None] = lambda word: None,
    curves: Sequence[Mapping[str, Any]] = (),
    futures: Sequence[Mapping[str, Any]] = (),
    *,
    costs: bool = True,
    films: int | None = None,
) -> dict[str, Any]:
    """All of a study; of the kernels that take longest this many are timed at every step.

    Expected `costs` of every step take as long as the rest of the page; with `films` only this many
    kernels, those that take longest, are shown at every step and as assembly.
    """
    progress("the graph at every step")
    graph = film(of.model.lowered.derivation)
    table = LineTable()
    progress("the kernels at every step")
    view = {
        "kind": "model",
        "name": of.name,
        "facts": facts(of),
        "graph": {**graph.to_data(), "names": names(of, graph), "passes": passes(of.model)},
        "launches": launch_rows(of, graph),
        "kernels": kernels(of, table, timed, costs, films),
        "assembly": assembly(of, films),
        "plan": plan(of),
        "roof": {"gflops": of.roof.gflops, "levels": [list(level) for level in of.roof.levels]},
        "fusion": [
            [str(decision.producer), str(decision.consumer), int(decision.fused),
             REASONS[decision.reason] + (f" ({decision.because})" if decision.because else "")]
            for decision in of.decisions
        ],
        "passedOver": list(of.passed_over),
        "curves": list(curves),
        "futures": list(futures),
        "choices": [[row.name, row.status, row.why] for row in of.model.lowered.tuning],
    }  # fmt: skip
    view["lines"] = table.lines
    return view


def facts(of: Study) -> list[list[str]]:
    """The figures at the head of the page."""
    return [
        ["a call", f"{of.run * 1e3:.3f} ms"],
        ["kernels launched", str(len(of.rows))],
        ["steps", str(len(of.model.lowered.derivation.steps))],
        ["compiling", f"{of.lowering + of.building:.2f} s"],
        ["weights", f"{of.constants / 1e6:.2f} MB"],
        ["workspace", f"{of.workspace / 1e6:.2f} MB"],
        ["machine at best", f"{of.roof.gflops:.0f} GFLOP/s, {of.roof.levels[-1][1]:.0f} GB/s"],
        ["threads", str(of.threads)],
        ["float contract", of.contract],
        ["target", of.target],
    ]


def passes(of: StudiedModel) -> list[list[object]]:
    """The graph passes that ran: name, why, and the number of steps after each."""
    return [[pass_end.name, pass_end.why, pass_end.steps] for pass_end in of.passes]


def names(of: Study, graph: GraphFilm) -> dict[str, str]:
    """The model's node names, by node number in the film."""
    return {
        str(number): ", ".join(of.nodes[term])
        for term, number in graph.first.items()
        if of.nodes.get(term)
    }


def launch_rows(of: Study, graph: GraphFilm) -> list[dict[str, Any]]:
    """Every launch, with its kernel and the nodes that it joins."""
    program = of.model.lowered.program
    found: list[dict[str, Any]] = []
    for row, launch in zip(of.rows, launches(program), strict=True):
        made_by = _made_by(launch)
        node = None if made_by is None else graph.final.get(made_by)
        found.append({
            "kernel": launch.kernel,
            "name": row.kernel,
            "title": title_of(row.nodes, row.operators),
            "node": node,
            "nodes": list(row.nodes),
            "operators": list(row.operators),
            "rules": list(row.rules),
            "shape": list(row.shape),
            "operations": row.operations,
            "bytes": row.bytes,
            "seconds": row.seconds,
            "spread": row.spread,
            "roof": row.roof,
        })  # fmt: skip
    return found


def title_of(nodes: Sequence[str], operators: Sequence[str]) -> str:
    """A short title of a launch: the first node of the model, and the number of others."""
    words = [operator.removeprefix("nn.") for operator in operators]
    name = nodes[0] if nodes else ""
    rest = " + ".join(words[:3]) + (f" + {len(words) - 3} more" if len(words) > 3 else "")
    return f"{name}: {rest}" if name else rest


def _made_by(launch: Launch) -> Expr | None:
    return launch.term.value if isinstance(launch.term, Project) else launch.term


def plan(of: Study) -> dict[str, Any]:
    """The memory plan: offset, size, first and last step of every value, and who makes it."""
    program = of.model.lowered.program
    steps, lives = lives_of(program)
    numbers = {id(launch): number for number, launch in enumerate(launches(program))}
    maker: dict[int, int] = {}
    for step in steps:
        if isinstance(step, Launch):
            for slot in step.args[program.kernels[step.kernel].inputs :]:
                maker.setdefault(slot, numbers[id(step)])
    order = sorted(lives, key=lambda slot: (lives[slot], slot))  # as the plan has them
    rows = [
        [offset, tenant.size, tenant.born, tenant.last, maker.get(slot)]
        for slot, tenant, offset in zip(order, of.plan.tenants, of.plan.offsets, strict=True)
    ]
    return {"size": of.plan.size, "steps": len(steps), "rows": rows}


# --- artefact views ----------------------------------------------------------------------------


def artefact_view(name: str, record: CompilationRecord, machine: Machine) -> dict[str, Any]:
    """The derivation of an artefact by name, and the film of every kernel that has a trace."""
    table = LineTable()
    kernels: list[dict[str, Any]] = []
    for trace in record.traces:
        if trace.before:
            kernel = kernel_of(from_text(trace.before, trace.kernel))[2]
            frames = frames_of(Trace.from_json(trace.json), kernel, machine, False, True)
            kernels.append(
                {"name": trace.kernel, "film": to_data(frames, table), "trace": trace.python}
            )
    used = Counter(step[0] for step in record.steps)
    return {
        "kind": "artefact",
        "name": name,
        "facts": [
            ["model", record.module], ["compiled", record.result], ["contract", record.contract],
            ["steps", str(len(record.steps))], ["kernels with a trace", str(len(kernels))],
        ],
        "kernels": kernels,
        "stages": [[stage.name, stage.steps, stage.before, stage.after] for stage in record.stages],
        "rules": [[rule.name, rule.kind, rule.contract, used[rule.name]] for rule in record.rules],
        "roof": None,
        "lines": table.lines,
    }  # fmt: skip
