"""Artefact views: the compilation record of an artefact, as JSON data."""

from __future__ import annotations

from collections import Counter
from typing import Any

from plica.ir.text.script import from_text
from plica.report.line_table import LineTable
from plica.report.nest_film import to_data
from plica.report.trace_view import frames_of
from plica.runtime.record import CompilationRecord
from plica.schedule.default import Machine
from plica.schedule.replay import kernel_of
from plica.schedule.trace import Trace


def artefact_view(name: str, record: CompilationRecord, machine: Machine) -> dict[str, Any]:
    """The derivation of an artefact by name, and the film of every kernel that has a trace."""
    table = LineTable()
    kernels: list[dict[str, Any]] = []
    for each in record.traces:
        if each.before:
            kernel = kernel_of(from_text(each.before, each.kernel))[2]
            frames = frames_of(Trace.from_json(each.json), kernel, machine, False, True)
            kernels.append(
                {"name": each.kernel, "film": to_data(frames, table), "trace": each.python}
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
        "stages": [[each.name, each.steps, each.before, each.after] for each in record.stages],
        "rules": [[each.name, each.kind, each.contract, used[each.name]] for each in record.rules],
        "roof": None,
        "lines": table.lines,
    }  # fmt: skip
