"""Parts of pipelines that targets share: from an optimised graph to a program and its memory plan.

>>> GROUP.names
('infer', 'resolve', 'decompose', 'fuse')

Before fusion come the machine's profitable rules: `WINOGRAD` depends on the job's vectors and
caches. After it come the kernels in order, and memory planning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from attrs import evolve

from plica.codegen.compilation import GroupByGroup, Job
from plica.codegen.lower.candidate import (
    FormedGroup,
    Groups,
    GroupState,
    StagedGroup,
    TracedGroup,
    formed,
    lowerable,
    traced,
)
from plica.codegen.lower.decompose import decompose
from plica.codegen.lower.graph_flattening import flatten_graph
from plica.codegen.lower.group import Group, groups_of, ready
from plica.codegen.lower.launch_memory import launch_memory
from plica.codegen.lower.linearise import linearised
from plica.codegen.lower.scheduled import Scheduled
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.program import Program
from plica.core import Term, post_order
from plica.ir.contract import reassociates
from plica.ir.graph import Apply, Module
from plica.ir.passes import Pass, Pipeline, exact_pass, renamed
from plica.ir.type import TensorType, f32, i32, infer, type_of
from plica.rewrite.fuse import FusionLimits, fuse
from plica.rewrite.graph import find_pass
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.history import History
from plica.rewrite.pack import Pack
from plica.rewrite.packs import find_pack, may_apply
from plica.rewrite.packs.winograd import MAX_WEIGHT_BYTES, Costs, winograd_for
from plica.rewrite.rule_pass import Setting, rules
from plica.rewrite.strategy import innermost
from plica.runtime.late import lazy_imports
from plica.schedule.default.machine import Machine

with lazy_imports(__name__):
    from plica.codegen.lower.byte_rules import bytes_on, floats_on, windows_on
    from plica.codegen.open_memory_plan import AnyPlan, plan_open_memory
    from plica.rewrite.byte_table import with_byte_tables
    from plica.rewrite.layout.byte_channels import byte_channels_last


SLOW: Final = frozenset(
    (
        "exp", "log", "log1p", "tanh", "erf", "power", "sin", "cos", "nn.sigmoid", "nn.silu",
        "nn.gelu", "nn.mish", "nn.elu", "nn.celu", "nn.selu", "nn.softplus",
    )
)  # fmt: skip
"""Operators that take longer than to look a byte up."""


def winograd_on(setting: Setting, *, soon: bool = False) -> Sequence[Pack]:
    """Convolutions by Winograd, where they pay on the processor that the job is for."""
    machine = setting.machine if isinstance(setting, Job) else None
    if not isinstance(machine, Machine):
        return ()
    rates = machine.rates
    return (winograd_for(Costs(machine.lanes(f32), machine.cache(2), rates.fma, rates.far, soon)),)


BYTES: Final = rules(
    "bytes", "Compute int8 products on the integer instructions.", bytes_on,
    about=("cast", "multiply"),
)  # fmt: skip
"""What must see how a model restores bytes, before constants are computed."""

WINDOWS: Final = rules(
    "byte-windows", "Compute int8 windows of open image sizes as rows of a product.", windows_on,
    about=("cast",),
)  # fmt: skip
"""Leaves casts in place where a product reads bytes: no later rule moves them."""


def tabled(module: Module) -> Module:
    """The module with tables for functions of one byte that take long."""
    names = {node.op for node in post_order(module) if isinstance(node, Apply)}
    if "cast" not in names or names.isdisjoint(SLOW):
        return module
    return with_byte_tables(module, SLOW)


BYTE_TABLES: Final = exact_pass(
    "byte-tables", "Replace functions of one byte by tables of 256 results.", tabled
)
"""Slow byte functions become lookup tables."""


def with_channels_last(history: History, setting: Setting) -> History:
    """Byte convolutions with channels last, if the processor multiplies four contiguous ones at
    once.

    Integer sums keep their order; a float reduction behind them may be reordered.
    """
    machine = setting.machine if isinstance(setting, Job) else None
    if not isinstance(machine, Machine) or machine.dot is None or setting.contract < reassociates:
        return history
    if not any(map(_is_of_integers, post_order(history.module))):
        return history
    return history.made(BYTE_LAYOUT, byte_channels_last(history.module), reassociates)


def _is_of_integers(node: Term) -> bool:
    if not isinstance(node, Apply) or node.op != "nn.conv":
        return False
    found = type_of(node)
    return isinstance(found, TensorType) and found.dtype is i32


BYTE_LAYOUT: Final = Pass(
    "byte-layout", "Lay out int8 dot products in groups of four channels.",
    with_channels_last, kind="rules",
)  # fmt: skip
"""What bytes should be neighbours, once all convolutions are what they will be."""

FLOATS: Final = rules(
    "byte-floats", "Compute channels-first int8 windows in floats.", floats_on,
    about=("cast",),
)  # fmt: skip
"""Operations left unchanged by the choice of layouts."""

WIDE: Final = Pipeline((
    rules("scale-widened", "Fold norms of f16 and bf16 products into weights.", "wide-scale"),
    rules("widen", "Multiply f16 and bf16 in f32.", "wide"),
    renamed(
        find_pass("fold-constants"),
        "fold-widened",
        "Fold casts of weights.",
        if_changed="widen",
    ),
))  # fmt: skip
"""Rules for machines that multiply no narrow floats."""

WINOGRAD: Final = Pipeline((
    rules("winograd", "Rewrite 3x3 convolutions to Winograd where that pays.", winograd_on),
    exact_pass(
        "fold-winograd",
        "Fold the transforms of Winograd weights.",
        partial(fold_constants, limit=MAX_WEIGHT_BYTES),
        if_changed="winograd",
    ),
))  # fmt: skip
"""Rules that pay on a machine, and what they leave to compute."""

WINOGRAD_BASELINE: Final = rules(
    "winograd",
    "Small convolutions take fewer products where that pays, and their weights are soon made.",
    partial(winograd_on, soon=True),
)
"""The same rules where code is wanted soon."""

SCATTER: Final = rules("scatter", "Scatter updates in one pass over them.", "scatter")
"""Scatters for processors that handle values one by one."""


def with_selection(history: History, setting: Setting) -> History:
    """The greatest elements one by one, where the processor that the job is for goes through rows
    by a form: plain loops would compare each with each."""
    machine = setting.machine if isinstance(setting, Job) else None
    if not isinstance(machine, Machine) or not may_apply("selection", history.module):
        return history
    return history.under(find_pack("selection").within(setting.contract), by=innermost)


SELECTION: Final = Pass(
    "selection", "Select the top k of a row in one pass.",
    with_selection, kind="rules",
)  # fmt: skip
"""What pays where elements are gone through one by one, and each is compared with few."""

GROUP: Final = Pipeline(
    (
        exact_pass("infer", "Infer types.", infer, after=("inferred",)),
        exact_pass(
            "resolve",
            "Resolve calls, lets and tuples statically.",
            flatten_graph,
            before=("inferred",),
            after=("resolved",),
        ),
        exact_pass(
            "decompose",
            "Decompose operators without a tensor definition.",
            decompose,
            requires=("resolve",),
            before=("resolved",),
            after=("resolved", "primitive"),
        ),
        exact_pass(
            "fuse",
            "Fuse operators into kernels.",
            fuse,
            requires=("decompose",),
            before=("resolved", "primitive"),
            after=("primitive", "fused"),
        ),
    )
)
"""From any static module to one of primitive functions."""


WHOLE: Final = FusionLimits(joins=False)  # for devices: what joins tensors is a kernel


def grouping(limits: FusionLimits) -> Pipeline:
    """The same with functions as large as limits let them be."""
    fused = tuple([evolve(each, run=partial(fuse, limits=limits)) if each.name == "fuse" else each
                   for each in GROUP])  # fmt: skip
    return Pipeline(fused)


def linearise(module: Module, job: Job, *, parts: bool = True) -> Program:
    """The program of a module: its kernels scheduled for the machine of the job, in order.

    Without `parts` every value has memory of its own.
    """
    if job.scheduled is None:
        made = ready(module, job)
    else:
        made = {n: e for n, e in job.scheduled.items() if isinstance(e, Scheduled)}
    return linearised(module, evolve(job.scheduler, ready=made), job.built, parts=parts)


def linearise_baseline(module: Module, job: Job) -> Program:
    """The same, with kernels whose loops are known without a schedule where there are such.

    Who asks for no machine has plain loops, however soon they are wanted.
    """
    return linearise(module, _baseline(job))


def _baseline(job: Job) -> Job:
    """The job for a machine whose code is wanted soon."""
    return evolve(job, machine=None if job.machine is None else evolve(job.machine, soon=True))


def staged_groups(module: Module, job: Job) -> Groups:
    """The groups of a module as the stages that forms are asked about."""
    scheduler = job.scheduler
    found: dict[Group, GroupState] = {}
    for group in groups_of(module, scheduler):
        chosen = scheduler.chosen(*group)
        if scheduler.steps is None:
            found[group] = scheduler.schedule(*group, chosen)
        else:
            found[group] = scheduler.steps.stages(scheduler.steps, *group, chosen)
    return found


def baseline_groups(module: Module, job: Job) -> Groups:
    """The same, with plain loops for what needs no schedule."""
    return staged_groups(module, _baseline(job))


def formed_groups(groups: Groups) -> Groups:
    """Groups in their first forms."""
    return {n: formed(e) if isinstance(e, StagedGroup) else e for n, e in groups.items()}


def traced_groups(groups: Groups) -> Groups:
    """Groups with the traces of their first candidates."""
    return {n: traced(e) if isinstance(e, FormedGroup) else e for n, e in groups.items()}


def lowerable_groups(groups: Groups) -> Groups:
    """Groups as the kernels of the first candidates that can be lowered."""
    return {n: lowerable(e) if isinstance(e, TracedGroup) else e for n, e in groups.items()}


def plan_memory(program: Program, *, branches: bool = False) -> AnyPlan:
    """Where each value of a program lies; steps that are `branches` may run at once."""
    if program.dims:
        return plan_open_memory(program)
    return workspace_plan(program, branches=branches)


STAGES: Final = Pass(
    "stages", "Translate fused operators to stages, or look up a tuned schedule.",
    staged_groups, kind="stages",
)  # fmt: skip

STAGES_BASELINE: Final = evolve(
    STAGES, why="Fused operators are stages over axes, or loops that need no schedule.",
    run=baseline_groups,
)  # fmt: skip

CANDIDATES: Final = Pipeline((
    STAGES,
    Pass("forms", "Try forms (padding, packing, splitting) in the order of estimated cost.",
         formed_groups, requires=("stages",), kind="forms"),
    Pass("template", "Record a trace by a template and replay it.",
         traced_groups, requires=("forms",), kind="template"),
    exact_pass("lowerable", "Take the first candidate that can be lowered.",
               lowerable_groups, requires=("template",), kind="template"),
))  # fmt: skip
"""From fused operators to their scheduled kernels; where nobody watches, the pass `schedule` takes
each group through all of them, on as many processes as there are."""


def _scheduled(before: Pipeline, run: Callable[[Module, Job], Program]) -> Pipeline:
    """From fused operators to a program."""
    whole = GroupByGroup(run, before.passes)
    why = "Linearise the graph into launches; assign each value a slot."
    return before + Pipeline((Pass("schedule", why, whole, kind="schedule"),))


SCHEDULED: Final = _scheduled(CANDIDATES, linearise)  # from fused operators to a program
APART: Final = _scheduled(CANDIDATES, partial(linearise, parts=False))
"""The same for devices whose buffers begin where they are told to."""

BASELINE: Final = _scheduled(CANDIDATES.replace("stages", STAGES_BASELINE), linearise_baseline)
"""The same where code is wanted soon."""

LAUNCH_MEMORY: Final = exact_pass(
    "launch-memory", "Put large buffers of kernels into the arena.",
    launch_memory, kind="plan",
)  # fmt: skip

PLAN: Final = exact_pass(
    "plan-memory", "Plan one arena; values with disjoint live ranges share it.",
    plan_memory, kind="plan",
)  # fmt: skip
