"""Studies: everything that is worth telling about a compiled model, as data.

>>> row = LaunchRow(0, "k0", "add", (2,), ("add_0",), ("add",), (), 2_000, 100, 1e-6, 0.5)
>>> row.gflops, row.intensity
(2.0, 20.0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import median
from time import perf_counter
from typing import Any

from attrs import asdict, frozen

from plica.analysis.memory import MemoryPlan
from plica.bench.roof import Roof, roof_of
from plica.bench.sample import sample
from plica.codegen.backend import AnyTarget, backend_of
from plica.codegen.compilation import scheduled_from
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.operation_count import operations
from plica.codegen.program import kernel_name, launches
from plica.frontend.onnx.origin import OnnxReading
from plica.ir.contract import Contract
from plica.ir.graph.expression import Apply, Expr
from plica.ir.passes import Pass, Pipeline
from plica.ir.type import infer
from plica.pipeline import Lowered, build, job_for, pipeline_of
from plica.report.origin import Names, origins
from plica.report.stage import ModuleStage, stages
from plica.rewrite.fuse import EdgeDecision, explain
from plica.rewrite.history import History, begun
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.rewrite.rule_pass import through
from plica.runtime.executable import Executable
from plica.runtime.late import late
from plica.runtime.port import Array
from plica.schedule.trace import Trace
from plica.search.choice import Records

RUNS: int = 10
NO_SCHEDULES: Mapping[str, Trace] = {}


@frozen
class LaunchRow:
    """One launch: its operators, origin, and cost per call."""

    number: int
    kernel: str
    source: str
    shape: tuple[int, ...]
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    rules: tuple[str, ...]
    operations: int
    bytes: int
    seconds: float
    """The median of the runs."""
    roof: float | None
    """The fraction of the machine's limit, from 0 to 1; None if the machine was busy.

    Data in a cache smaller than any measured one is compared with that one's limit.
    """
    spread: float = 0.0
    """How far apart the middle half of the runs is, as a part of the median."""

    @property
    def gflops(self) -> float:
        """Operations on floats, 10^9 a second."""
        return self.operations / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        """Operations a byte of its inputs and outputs."""
        return self.operations / self.bytes if self.bytes else 0.0

    def to_data(self) -> dict[str, Any]:
        """The row as JSON data."""
        return {**asdict(self), "gflops": self.gflops, "intensity": self.intensity}


@frozen(eq=False)
class Study:
    """The analysis of one model; times are in seconds."""

    name: str
    target: str
    threads: int
    contract: str
    lowering: float
    building: float
    run: float
    stages: tuple[ModuleStage, ...]
    decisions: tuple[EdgeDecision, ...]
    rows: tuple[LaunchRow, ...]
    plan: MemoryPlan
    steps: tuple[str, ...]
    constants: int
    workspace: int
    roof: Roof
    nodes: Names
    model: StudiedModel
    passed_over: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    """Concatenations: which parts are written in place, and why others are not."""
    """Schedules that promised more but could not be lowered, by kernel, and why."""

    def _repr_html_(self) -> str:
        """The explorer in a frame, as a notebook shows it."""
        text = late("plica.report.page:page")([late("plica.report.model_view:model_view")(self)])
        return f'<iframe srcdoc="{escape(text)}" style="width:100%;height:900px;border:0"></iframe>'


@frozen(eq=False)
class PassEnd:
    """A graph pass that ran, why, and how many steps the derivation had after it."""

    name: str
    why: str
    steps: int


@frozen(eq=False)
class StudiedModel:
    """A model being studied: its lowered form and executable."""

    name: str
    lowered: Lowered
    executable: Executable
    target: AnyTarget
    threads: int
    contract: Contract
    lowering: float
    building: float
    nodes: Names
    passes: tuple[PassEnd, ...] = ()
    records: Records | None = None
    packs: Sequence[Pack] = ()


class PassEnds:
    """An instrument of the driver that notes where passes end in the derivation."""

    def __init__(self) -> None:
        self.ends: list[PassEnd] = []

    def before(self, each: Pass, state: History) -> None:
        """Nothing is noted before a pass."""

    def after(self, each: Pass, state: History) -> None:
        """A pass has run."""
        self.ends.append(PassEnd(each.name, each.why, len(state.derivation.steps)))


def compiled(
    name: str,
    read: OnnxReading,
    target: AnyTarget,
    *,
    threads: int = 1,
    contract: Contract = DEFAULT_CONTRACT,
    packs: Sequence[Pack] = (),
    records: Records | None = None,
    pipeline: Pipeline | None = None,
    history: History | None = None,
    schedules: Mapping[str, Trace] = NO_SCHEDULES,
) -> StudiedModel:
    """A model made ready, and how long each part of that took.

    A custom `pipeline` replaces the target's, and a `history` the model's initial one: the pipeline
    continues from there. `schedules` are traces of kernels.
    """
    start = perf_counter()
    seen = backend_of(target).with_threads(target, threads)
    used = pipeline or pipeline_of(seen)
    job = job_for(seen, contract, packs, records, given=schedules)
    begun_with = begun(infer(read.module)) if history is None else history
    ends = PassEnds()
    grouped = through(used.of("graph", "rules"), begun_with, job, (ends,))
    lowered = scheduled_from(used, grouped, job)
    middle = perf_counter()
    executable = build(lowered, target, threads)
    end = perf_counter()
    times = middle - start, end - middle
    return StudiedModel(
        name, lowered, executable, target, threads, contract, *times, read.nodes,
        tuple(ends.ends), records, tuple(packs),
    )  # fmt: skip


def examine(
    of: StudiedModel,
    inputs: Mapping[str, Array] | None = None,
    progress: Callable[[str], None] = lambda word: None,
) -> Study:
    """Runs a model and collects its analysis."""
    lowered = of.lowered
    progress("timing every kernel")
    arrays = sample(of.executable.inputs, inputs)
    rows, run, roof = measured(of, arrays)
    progress("tracing the stages")
    through = stages(lowered.derivation)
    before = [module_stage for module_stage in through if module_stage.name != "fuse"][-1]
    whole, program = lowered.plan, lowered.program
    assert isinstance(whole, WorkspacePlan)  # a report is of sizes that are known
    return Study(
        name=of.name,
        target=str(of.target),
        threads=of.threads,
        contract=str(of.contract),
        lowering=of.lowering,
        building=of.building,
        run=run,
        stages=through,
        decisions=explain(before.module),
        rows=rows,
        plan=whole.memory,
        steps=tuple([launch.source for launch in launches(program)]),
        constants=sum(slot.bytes for slot in program.space("constant")),
        workspace=whole.size,
        roof=roof,
        nodes=of.nodes,
        model=of,
        passed_over=program.passed_over,
        joined=program.joined,
    )


def measured(
    of: StudiedModel, arrays: Sequence[Array], runs: int = RUNS
) -> tuple[tuple[LaunchRow, ...], float, Roof]:
    """Every launch with its time, the seconds of a whole call, and the roof of the machine."""
    program = of.lowered.program
    profile = of.executable.profile(*arrays, runs=runs)
    roof = roof_of(profile)
    is_quiet = not profile.warning
    rows: list[LaunchRow] = []
    for number, (launch, origin, timed) in enumerate(
        zip(launches(program), origins(of.lowered, of.nodes), profile.rows, strict=True)
    ):
        work = operations(program.kernels[launch.kernel])
        touched = sum(program.slots[slot].bytes for slot in launch.args)
        rows.append(
            LaunchRow(
                number=number,
                kernel=kernel_name(launch.kernel, program),
                source=launch.source,
                shape=program.slots[launch.args[-1]].fixed,
                nodes=origin.nodes,
                operators=tuple(dict.fromkeys(map(_operator, origin.operators))),
                rules=origin.rules,
                operations=work,
                bytes=touched,
                seconds=float(timed.median),
                roof=roof.share(work, touched, timed.least) if is_quiet else None,
                spread=timed.spread,
            )
        )
    return tuple(rows), median(profile.times), roof


def _operator(of: Expr) -> str:
    return of.op if isinstance(of, Apply) else type(of).__name__.lower()
