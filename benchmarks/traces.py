"""Which kernels are replayed traces: benchmark networks, drawn operators and the cases of GPUs.

    python benchmarks/traces.py [--networks resnet18,vit] [--operators 300 --seed 1]
                                [--groups memory,products] [--drawn 20] [--targets cpu,cuda]
                                [--versus short-rows,few-columns]
                                [--jobs 2] [--list] [--json FILE]

Each kernel is listed with its form, its template, the number of steps, who made its loops (a trace,
a form, the author of a kernel, or the lowering of open sizes), how many partial folds its form
wrote, and whether its trace, read from JSON in another process, gives the same digest of the
lowered kernel.  Totals come last; the exit status is 1 if a kernel has no trace or is replayed to
other code.  No GPU is needed: nothing is emitted and nothing runs.

Networks are those of `models.py` (`none` for none of them), operators those of `cliffs.py`, groups
those of `gpu_cases.py`, which are for cuda alone; `--versus` takes kinds of `versus.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

GROUPS = ("resnet50", "sequences", "memory", "products", "zoo")
TASKS = 40
"""How many cases processes take before others take their place: what they memoised goes."""


@dataclass(frozen=True)
class Case:
    """A network, an operator or a case of GPUs, for a target."""

    kind: str
    name: str
    target: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.target} {self.kind} {self.name}"


@dataclass(frozen=True)
class Row:
    """One kernel of a case."""

    case: str
    target: str
    source: str
    form: str
    template: str
    steps: int
    loops: str
    folds: int
    code: str
    replayed: bool | None = None
    """Whether another process made the same code; None where there is no trace."""


Traced = tuple[Row, str, str]
"""A kernel, where its trace begins, and the trace, as JSON."""


def module_of(case: Case) -> Any:  # a module
    """What a case compiles."""
    import plica

    warnings.simplefilter("ignore")
    if case.kind == "operator":
        from benchmarks.cliffs import drawn

        return plica.from_onnx(drawn(case.seed, int(case.name))[1])
    if case.kind == "versus":
        from benchmarks.versus_cases import cases as compared

        kind, name = case.name.split(": ", 1)
        return plica.from_onnx(
            next(each.model for each in compared(kind, case.seed, 0) if each.name == name)
        )
    if case.kind == "case":
        import torch

        from benchmarks.gpu_cases import on_host

        network, given, _ = on_host(case.name, case.seed)
        return plica.from_torch(torch.export.export(network, tuple(given)))
    from benchmarks.models import model_of, write
    from plica.frontend import zoo

    if case.name in zoo.NETWORKS:
        return plica.from_onnx(model_of(case.name)[0])
    with TemporaryDirectory() as folder:
        write(case.name, 1, Path(folder) / "network.onnx")
        return plica.from_onnx(str(Path(folder) / "network.onnx"))


def traced(case: Case) -> list[Traced] | str:
    """The kernels of a case, or why it is refused."""
    from plica.codegen.backend import find_target
    from plica.codegen.program_kind import without_loops
    from plica.pipeline.compiled import job_for, pipeline_of
    from plica.runtime.error import PlicaError
    from tests.codegen.traced_kernel import traced_kernels

    target = find_target(case.target)
    try:
        module = without_loops(module_of(case))
        found = traced_kernels(pipeline_of(target), module, job_for(target))
    except PlicaError as refused:  # as where sizes become known while it runs
        return str(refused).splitlines()[0]
    return [
        (
            Row(str(case), case.target, each.source, each.form, each.template, each.steps,
                each.loops, each.folds, each.code),
            each.start,
            each.trace,
        )
        for each in found
    ]  # fmt: skip


def replayed(code: str, start: str, trace: str, target: str) -> bool:
    """Whether a trace gives the same code in this process."""
    from tests.codegen.traced_kernel import replayed_digest

    return replayed_digest(start, trace, target) == code


def cases(asked: argparse.Namespace) -> Iterator[Case]:
    """What is asked for, one target after another."""
    from benchmarks.gpu_cases import cases as named
    from benchmarks.models import names
    from benchmarks.versus_cases import cases as compared

    networks = names(1) if asked.networks is None else asked.networks
    for target in asked.targets:
        for name in networks:
            yield Case("network", name, target)
        for number in range(asked.operators):
            yield Case("operator", str(number), target, asked.seed)
        for kind in asked.versus:
            for each in compared(kind, asked.seed, 0):
                yield Case("versus", f"{kind}: {each.name}", target, asked.seed)
        for group in asked.groups if target == "cuda" else ():
            for name in named(group, asked.seed, asked.drawn):
                yield Case("case", name, target, asked.seed)


def measured(every: Sequence[Case], jobs: int) -> Iterator[tuple[Case, list[Row] | str]]:
    """The kernels of each case; each trace is replayed once, by a process that did not make it."""
    again: dict[tuple[str, str], Future[bool]] = {}
    fresh = get_context("spawn")
    for first in range(0, len(every), TASKS):
        with ProcessPoolExecutor(jobs, fresh) as makers, ProcessPoolExecutor(1, fresh) as replayers:
            some = every[first : first + TASKS]
            for case, making in [(case, makers.submit(traced, case)) for case in some]:
                found = making.result()
                if isinstance(found, str):
                    yield case, found
                    continue
                for row, start, trace in found:
                    key = row.target, row.code
                    if row.loops == "trace" and key not in again:
                        again[key] = replayers.submit(replayed, row.code, start, trace, row.target)
                rows = []
                for row, _, _ in found:
                    same = again[row.target, row.code].result() if row.loops == "trace" else None
                    rows.append(Row(**{**asdict(row), "replayed": same}))
                yield case, rows


def totals(rows: Sequence[Row]) -> Iterator[str]:
    """How many kernels have a trace, and which forms stand in the way, by target."""
    for target in dict.fromkeys(each.target for each in rows):
        mine = [each for each in rows if each.target == target]
        loops = Counter(each.loops for each in mine)
        without = sum(count for word, count in loops.items() if word != "trace")
        folds = sum(each.folds > 0 for each in mine)
        wrong = sum(each.replayed is False for each in mine)
        words = ", ".join(f"{count} by the {word}" for word, count in sorted(loops.items())
                          if word != "trace")  # fmt: skip
        yield (
            f"{target}: {len(mine)} kernels ({len({each.code for each in mine})} distinct), "
            f"{without} without a trace{f' ({words})' if words else ''}, "
            f"{folds} with partial folds of a form, {wrong} replayed to other code"
        )
        for title, some in (
            ("loops by", [each for each in mine if each.loops != "trace"]),
            ("folds by", [each for each in mine if each.folds]),
        ):
            forms = Counter(each.form or each.loops for each in some)
            told = ", ".join(f"{form} {count}" for form, count in forms.most_common())
            yield f"    {title}: {told or 'nobody'}"


def main() -> int:
    """List and count; 1 where a kernel has no trace or is replayed to other code."""
    words = lambda text: [each for each in text.split(",") if each != "none"]  # noqa: E731
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", type=words, help="names of models.py; all, or none")
    parser.add_argument("--operators", type=int, default=0, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--groups", type=words, default=[], help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--versus", type=words, default=[], help="kinds of versus.py")
    parser.add_argument("--drawn", type=int, default=20, help="drawn products")
    parser.add_argument("--targets", type=words, default=["cpu", "cuda"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print each kernel, not totals alone")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: list[Row] = []
    for case, found in measured(tuple(cases(asked)), asked.jobs):
        if isinstance(found, str):
            print(f"{case}: refused: {found}", flush=True)
            continue
        rows += found
        without = sum(each.loops != "trace" for each in found)
        folds = sum(each.folds > 0 for each in found)
        print(f"{case}: {len(found)} kernels, {without} without a trace, {folds} with partial "
              f"folds of a form", flush=True)  # fmt: skip
        for each in found if asked.list else ():
            same = {None: "", True: "replayed", False: "REPLAYED TO OTHER CODE"}[each.replayed]
            made = "" if each.loops == "trace" else f"  loops by the {each.loops}"
            print(f"    {each.form or '-':22} {each.template or '-':18} {each.steps:3d} steps"
                  f"  {each.folds} folds  {same}{made}  {each.code[:12]}  {each.source}",
                  flush=True)  # fmt: skip
    print(*totals(rows), sep="\n")
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    return int(any(each.loops != "trace" or each.replayed is False for each in rows))


if __name__ == "__main__":
    sys.exit(main())
