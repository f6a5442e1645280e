"""Post-processors: what is done to a schedule after its last decision, as records.

    PostProcessor ::= PostProcessor(name, why, rewrite) | PostProcessor(name, why, reject)

One that rewrites appends steps to a trace, each of them checked like any other, so that what a
kernel means stays; a step that is refused is left out.  One that rejects looks at the scheduled
kernel and says why it will not do; it changes nothing.  `postprocessed` runs some of them in order,
after `enter_postproc`, so that no decision follows and `without_postproc` undoes them all.

>>> print(*POSTPROCESSORS)
tensorize rewrite-layout decompose-reductions parallel-vectorize-unroll bind-unbound \
cooperative-fetch verify-gpu verify-capacity disallow-dynamic-loops disallow-async-strided-copy
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.access import Access, accesses
from plica.analysis.dependence import scope_of
from plica.analysis.index import simplify
from plica.analysis.site import Site, map_of
from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.limit import check
from plica.codegen.lower.passes import lower
from plica.core import Term, did_you_mean, free_vars
from plica.ir.loop import statement as st
from plica.ir.loop.index_map import index_map
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Load, Scalar
from plica.ir.type import known
from plica.runtime.error import Diagnostic, InputError
from plica.schedule import primitive as pr
from plica.schedule.dataflow import stages
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.do import Body, DoBlock, do, record
from plica.schedule.handle import Handle
from plica.schedule.order import reduce_loops
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace

Rewrite: TypeAlias = Callable[[st.Kernel], DoBlock]
Reject: TypeAlias = "Callable[[st.Kernel], str | None]"

THREADS_A_BLOCK: Final = 128
LANES: Final = 16  # iterations of an innermost loop that become lanes, at most
WRITTEN_OUT: Final = 8
"""Iterations of an innermost loop of a reduction that are written out, at most."""


@frozen
class PostProcessor:
    """A name, a reason, and either steps for a kernel or why a kernel is rejected."""

    name: str
    why: str
    rewrite: Rewrite | None = None
    reject: Reject | None = None


@frozen
class Rejected:
    """Which post-processor rejects a schedule, and why."""

    by: str
    reason: str


def postprocessed(
    trace: Trace, kernel: st.Kernel, names: Sequence[str] | None = None
) -> Trace | Rejected:
    """The trace with the steps of post-processors behind it, all of them where none are named."""
    chosen = [_named(each) for each in (POSTPROCESSORS if names is None else names)]
    whole = trace
    if not any(step.instruction.ends_sampling for step in trace.steps):
        whole = _then(trace, kernel, ENDING)
    for processor in chosen:
        now = scheduled(whole, kernel)
        reason = None if processor.reject is None else processor.reject(now)
        if reason is not None:
            return Rejected(processor.name, reason)
        if processor.rewrite is not None:
            whole = _then(whole, kernel, processor.rewrite(now))
    return whole


def _named(name: str) -> PostProcessor:
    if name not in POSTPROCESSORS:
        message, known_ = "No post-processor has this name.", tuple(POSTPROCESSORS)
        hint = did_you_mean(name, known_)
        raise InputError(
            Diagnostic("input-unknown", message, None, ", ".join(known_), repr(name), hint)
        )
    return POSTPROCESSORS[name]


def _then(trace: Trace, kernel: st.Kernel, more: DoBlock) -> Trace:
    """A trace with the steps of a do-block behind it."""

    @do
    def both() -> Body:
        for step in trace.steps:  # noqa: UP028  # each yield is answered, which a tuple cannot hear
            yield step
        yield more

    return record(both, kernel).trace


@do
def _ending() -> Body:
    yield pr.enter_postproc()


ENDING: Final = _ending


def _each(
    kernel: st.Kernel, wanted: Callable[[Site[st.Block]], bool]
) -> Iterator[tuple[str, Site[st.Block]]]:
    """Blocks that hold no others, by name."""
    for label, site in map_of(kernel).blocks.items():
        inner = [each for each in st.statements(site.node.body) if isinstance(each, st.Block)]
        if not inner and wanted(site):
            yield str(label), site


def _tried(*asked: object) -> Body:
    """Steps as far as they are legal: what a refused one would give is None."""
    given = None
    for each in asked:
        try:
            given = yield each  # type: ignore[misc]  # an instruction
        except ScheduleRefused:
            return None
    return given


# --- those that rewrite ---------------------------------------------------------------------------


def tensorize(kernel: st.Kernel) -> DoBlock:
    """Blocks annotated with `tensor_intrinsic`, done by the intrinsic of that name."""

    @do
    def steps() -> Body:
        for label, site in map_of(kernel).blocks.items():
            name = dict(site.node.annotations).get("tensor_intrinsic")
            if name is not None:
                yield from _tried(pr.tensorize((yield pr.block(str(label))), str(name)))

    return steps


def rewrite_layout(kernel: st.Kernel) -> DoBlock:
    """Inputs copied to the order in which the loops of a block read their axes."""

    @do
    def steps() -> Body:
        for label, site in _each(kernel, lambda each: bool(each.loops)):
            inputs = stages(scope_of(kernel, site))[site.node.label].inputs
            reads = {access.buffer: access for access in accesses(site.node) if not access.written}
            for number, buffer in enumerate(inputs):
                order = _loop_order(reads[buffer], site.loops)
                if buffer in kernel.params and order != sorted(order):
                    swap = index_map(partial(_permuted, order), len(order))
                    handle = yield pr.block(label)
                    yield from _tried(pr.transform_layout(handle, "read", number, swap))

    return steps


def _loop_order(of: Access, loops: Sequence[st.For]) -> list[int]:
    """The axes of what is read, those of outer loops first; as they are where a start is not
    known."""
    depth = {loop.var: at for at, loop in enumerate(loops)}
    if any(scalar is None for scalar in of.starts):
        return list(range(len(of.starts)))
    deepest = [
        max((depth.get(var, -1) for var in free_vars(start)), default=-1)  # type: ignore[arg-type, call-overload]  # all starts are known
        for start in of.starts
    ]
    return sorted(range(len(deepest)), key=lambda axis: deepest[axis])


def _permuted(order: Sequence[int], *at: Scalar) -> tuple[Scalar, ...]:
    return tuple([at[axis] for axis in order])


def decompose_reductions(kernel: st.Kernel) -> DoBlock:
    """The init of each reduction in loops of its own, before the loops of its updates."""

    @do
    def steps() -> Body:
        for label, site in _each(kernel, lambda each: each.node.init is not None):
            if reducing := reduce_loops(site):
                handle = yield pr.block(label)
                around = yield pr.loops(handle)
                at = site.loops.index(reducing[0])
                yield from _tried(pr.decompose_reduction(handle, around[at]))

    return steps


def parallel_vectorize_unroll(kernel: st.Kernel) -> DoBlock:
    """The outermost loop of each nest on all cores, short innermost ones as lanes or written out."""

    @do
    def steps() -> Body:
        for label, site in _each(kernel, lambda each: bool(each.loops) and _is_serial(each)):
            around = yield pr.loops((yield pr.block(label)))
            last = known(site.loops[-1].extent) or LANES + 1
            if len(around) > 1 and last <= LANES:
                made = yield from _checked(pr.vectorize(around[-1]))
                if not made and last <= WRITTEN_OUT:
                    yield from _tried(pr.unroll(around[-1]))
            yield from _tried(pr.parallel(around[0]))

    return steps


def _checked(asked: object) -> Body:
    """Whether a step is legal: then it was taken."""
    try:
        yield asked  # type: ignore[misc]  # an instruction
    except ScheduleRefused:
        return False
    return True


def bind_unbound(kernel: st.Kernel) -> DoBlock:
    """Blocks that no thread runs on threads of a grid: their spatial loops as one, cut in two."""

    @do
    def steps() -> Body:
        for label, site in _each(kernel, lambda each: bool(each.loops) and _is_serial(each)):
            handle = yield pr.block(label)
            around = yield pr.loops(handle)
            inner = reduce_loops(site)
            free = [h for h, loop in zip(around, site.loops, strict=True) if loop not in inner]
            yield from _on_threads(free, ("blockIdx.x", "threadIdx.x"))

    return steps


def cooperative_fetch(kernel: st.Kernel) -> DoBlock:
    """Copies into memory that a block of threads shares, done by all of these together."""

    def fetches(site: Site[st.Block]) -> bool:
        writes = [access.buffer for access in accesses(site.node) if access.written]
        return bool(writes) and all(write.scope == "shared" for write in writes)

    @do
    def steps() -> Body:
        for label, site in _each(kernel, fetches):
            around = yield pr.loops((yield pr.block(label)))
            own = [
                handle
                for handle, loop in zip(around, site.loops, strict=True)
                if loop.kind == "serial" and not _holds_other(loop, site.node)
            ]
            yield from _on_threads(own, (None, "threadIdx.x"))

    return steps


def _on_threads(free: Sequence[Handle], tags: tuple[str | None, str]) -> Body:
    """Loops fused, cut in two, and the parts bound."""
    if not free:
        return
    whole = free[0]
    if len(free) > 1:
        fused = yield from _tried(pr.fuse(*free))
        if fused is None:
            return
        whole = fused
    parts = yield from _tried(pr.split(whole, (None, THREADS_A_BLOCK)))
    if parts is None:
        return
    for part, tag in zip(parts, tags, strict=True):
        if tag is not None:
            yield from _tried(pr.bind(part, tag))


def _is_serial(site: Site[st.Block]) -> bool:
    around = [stmt for stmt, _ in site.above if isinstance(stmt, st.For)]
    return all(loop.kind == "serial" for loop in around)


def _holds_other(loop: st.For, own: st.Block) -> bool:
    inside = [each for each in st.statements(loop.body) if isinstance(each, st.Block)]
    return any(block is not own for block in inside)


# --- those that reject ----------------------------------------------------------------------------


def beyond_a_gpu(kernel: st.Kernel) -> str | None:
    """Why a GPU cannot run a kernel for threads: its limits, or that it cannot be lowered."""
    if not any(
        isinstance(each, st.For) and each.kind in st.THREADS for each in st.statements(kernel.body)
    ):
        return None
    try:
        check(fold(lower(kernel, "gpu"), "kernel").launches, Gpu(), "kernel")
    except LoweringRefused as refused:
        return refused.reason
    return None


def dynamic_loop(kernel: st.Kernel) -> str | None:
    """The first loop whose extent is not known when it is compiled."""
    for statement in st.statements(kernel.body):
        if isinstance(statement, st.For) and known(statement.extent) is None:
            return f"The extent of the loop {statement.var.name} is not a number."
    return None


def beyond_capacity(kernel: st.Kernel) -> str | None:
    """The first memory scope, VTCM or a scratch-pad, whose buffers do not fit at once."""
    stack: list[tuple[st.Stmt, Counter[str]]] = [(kernel.body, Counter())]
    while stack:
        stmt, used = stack.pop()
        if isinstance(stmt, st.Alloc):
            name, sizes = stmt.buffer.scope, [known(dim) for dim in stmt.buffer.shape]
            capacity = scope(name).capacity
            if capacity is not None and None in sizes:
                return f"The size of {stmt.buffer.name} in {name} is not a number."
            used = used + Counter(
                {name: stmt.buffer.dtype.bytes * prod([size or 0 for size in sizes])}
            )
            if capacity is not None and used[name] > capacity:
                return f"Buffers in {name} take {used[name]} bytes of {capacity}."
        stack.extend([(substatement, used) for substatement in st.substatements(stmt)])
    return None


def async_strided_copy(kernel: st.Kernel) -> str | None:
    """The first copy of a software pipeline that skips elements: no asynchronous copy does that."""
    for site in map_of(kernel).blocks.values():
        pipelined = any("software_pipeline_stage" in dict(e.annotations) for e in site.loops)
        match site.node.body:
            case st.Store(target, place, Load(source, origin)) if pipelined and place and origin:
                last, free = place[-1], free_vars(place[-1]) & set(site.node.vars)
                step = simplify(last - origin[-1])
                outer = frozenset[Term]().union(*map(free_vars, (*place[:-1], *origin[:-1])))
                if free & (free_vars(step) | outer):
                    return f"The copy of {source.name} to {target.name} is strided."
    return None


# fmt: off
_ALL: Final = (
    PostProcessor("tensorize", "Instructions do the blocks that name one.", rewrite=tensorize),
    PostProcessor("rewrite-layout", "Inputs lie in the order in which they are read.", rewrite=rewrite_layout),
    PostProcessor("decompose-reductions", "Sums begin in loops of their own.", rewrite=decompose_reductions),
    PostProcessor("parallel-vectorize-unroll", "Plain nests use cores and lanes.", rewrite=parallel_vectorize_unroll),
    PostProcessor("bind-unbound", "Every block has threads.", rewrite=bind_unbound),
    PostProcessor("cooperative-fetch", "Threads fetch together what they share.", rewrite=cooperative_fetch),
    PostProcessor("verify-gpu", "A GPU can launch it.", reject=beyond_a_gpu),
    PostProcessor("verify-capacity", "Buffers fit into their scopes.", reject=beyond_capacity),
    PostProcessor("disallow-dynamic-loops", "Every extent is a number.", reject=dynamic_loop),
    PostProcessor("disallow-async-strided-copy", "Copies that run ahead take whole rows.", reject=async_strided_copy),
)
# fmt: on
# ruff: noqa: E501  # a row is a line

POSTPROCESSORS: Final = {processor.name: processor for processor in _ALL}
"""By name, in the order in which they run."""
