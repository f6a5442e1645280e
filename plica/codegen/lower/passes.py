"""The lowering pipeline: from a scheduled kernel of blocks to the emitter's input.

Each is a meaning-preserving pass over kernels; a target takes all that are not specific to others.

>>> print(*LOWERING["cpu"].names[:4])
ordered-sums double-buffer sink-buffers blocks-to-loops
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

from attrs import frozen

from plica.core import did_you_mean, digest, post_order
from plica.core.deadline import check_deadline
from plica.ir.loop.scalar import Cast, dtype_of
from plica.ir.loop.statement import Block, For, Kernel, Stmt, Store, statements
from plica.ir.loop.summation import spelled_within
from plica.ir.passes import Pass, Pipeline, exact_pass
from plica.ir.type import i64
from plica.runtime.error import Diagnostic, InputError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # a kernel that is kept was lowered elsewhere
    from plica.codegen.lower.allreduce import allreduce
    from plica.codegen.lower.barrier import barriers
    from plica.codegen.lower.blocks import blocks_to_loops
    from plica.codegen.lower.buffer_sinking import sink_buffers
    from plica.codegen.lower.common_terms import common_terms
    from plica.codegen.lower.compact import compact
    from plica.codegen.lower.digit import digits
    from plica.codegen.lower.double_buffer import double_buffer
    from plica.codegen.lower.flatten import flatten
    from plica.codegen.lower.guarded_update import guard_updates
    from plica.codegen.lower.hoist import hoist
    from plica.codegen.lower.in_place import in_place
    from plica.codegen.lower.index_narrowing import narrow_indices
    from plica.codegen.lower.lane_narrowing import narrow_lanes
    from plica.codegen.lower.loop_kind import roll, unroll, vectorise
    from plica.codegen.lower.partition import partition, partition_unrolled
    from plica.codegen.lower.pipeline import pipeline
    from plica.codegen.lower.reads_first import reads_first
    from plica.codegen.lower.register_promotion import promote_to_registers
    from plica.codegen.lower.remainder import remainder_tiles
    from plica.codegen.lower.reuse import reuse
    from plica.codegen.lower.single_thread import predicate_single_thread
    from plica.codegen.lower.tidy import tidy
    from plica.codegen.lower.virtual_thread import virtual_threads

Target: TypeAlias = Literal["cpu", "gpu", "accel"]
EVERY: Final[tuple[Target, ...]] = ("cpu", "gpu", "accel")


Rewrite: TypeAlias = Callable[[Kernel], Kernel]


@frozen
class WhereAsked:
    """A pass for kernels in which a loop or block requests it by a note or its kind."""

    word: str
    run: Rewrite

    def __call__(self, kernel: Kernel) -> Kernel:
        """The kernel after the pass; itself where nothing asks."""
        return self.run(kernel) if any(map(self.asks, statements(kernel.body))) else kernel

    def asks(self, stmt: Stmt) -> bool:
        """Whether a statement requests the pass."""
        if isinstance(stmt, For) and stmt.kind == self.word:
            return True
        return isinstance(stmt, For | Block) and self.word in dict(stmt.annotations)


def _in_order_of_runs(kernel: Kernel) -> Kernel:
    """The kernel with the sums in its terms written out in the order that their runs say.

        y[i] = sum((x[i, k] for k in range(32)), runs="row")
          -->  y[i] = f32(sum(f64(sum(x[i, k_1 * 16 + k_2] for k_2 in range(16)))
                              for k_1 in range(2)))

    Sums from stages have that order already (`plica.ir.loop.define`); in a user's kernel, and under
    a guard, it is introduced here.
    """
    spelled = spelled_within(kernel)
    assert isinstance(spelled, Kernel)
    return spelled


def _in_narrow_lanes(kernel: Kernel) -> Kernel:
    """The kernel with numbers of 32 bits in vectors, if it makes any of places: most do not."""
    values = [each.value for each in statements(kernel.body) if isinstance(each, Store)]
    casts = [each for each in post_order(*values) if isinstance(each, Cast)]
    made = any(dtype_of(cast.value) is i64 for cast in casts)
    return narrow_lanes(kernel) if made else kernel


_ASKED: Final[dict[str, str]] = {
    "double-buffer": "double_buffer",
    "pipeline": "software_pipeline_stage",
    "virtual-threads": "virtual",
    "unroll": "unroll_explicit",
}
"""Passes that run on request, and the requesting note."""


def _lower(name: str, why: str, run: Rewrite) -> Pass:
    asked = _ASKED.get(name)
    return exact_pass(name, why, run if asked is None else WhereAsked(asked, run), kind="lower")


LOWER: Final[tuple[Pass, ...]] = (
    _lower(
        "ordered-sums", "Make the order of terms in reassociated sums explicit.", _in_order_of_runs
    ),
    _lower("allreduce", "Lower reductions across threads to trees and shuffles.", allreduce),
    _lower("double-buffer", "Double-buffer blocks that run an iteration ahead.", double_buffer),
    _lower("sink-buffers", "Sink allocations to the innermost loop that needs them.", sink_buffers),
    _lower(
        "blocks-to-loops",
        "Substitute block bindings; turn predicates into branches.",
        blocks_to_loops,
    ),
    _lower(
        "predicate-thread-0", "Predicate redundant stores to thread 0.", predicate_single_thread
    ),
    _lower("digits", "Reduce guards to the high digits of an index.", digits),
    _lower("compact", "Shrink buffers to the region that is touched.", compact),
    _lower("pipeline", "Software-pipeline marked statements.", pipeline),
    _lower("virtual-threads", "Interleave virtual threads in one thread.", virtual_threads),
    _lower("guard-updates", "Guard updates that would combine an identity element.", guard_updates),
    _lower("hoist", "Hoist loop-invariant branches.", hoist),
    _lower("tidy", "Simplify index expressions.", tidy),
    _lower("partition", "Partition loops, so that the middle part has no guard.", partition),
    _lower("remainder-tiles", "Give open remainder tiles a text for each extent.", remainder_tiles),
    _lower("unroll", "Unroll marked loops.", unroll),
    _lower("tidy-again", "Simplify index expressions after partition and unroll.", tidy),
    _lower(
        "register-promotion",
        "Promote buffers of a single thread to registers.",
        promote_to_registers,
    ),
    _lower("reads-first", "Issue a thread's loads before their first use.", reads_first),
    _lower(
        "partition-unrolled",
        "Drop guards of unrolled loops that all threads pass.",
        partition_unrolled,
    ),
    _lower("in-place", "Keep intermediate rows in the memory of the result.", in_place),
    _lower("vectorise", "Resolve vectorised loops to lane counts.", vectorise),
    _lower("roll", "Re-roll unrolled code behind a register tile.", roll),
    _lower("flatten", "Flatten buffers to one dimension.", flatten),
    _lower("reuse", "Let buffers with disjoint live ranges share memory.", reuse),
    _lower(
        "narrow-lanes", "Narrow values computed from indices to 32-bit lanes.", _in_narrow_lanes
    ),
    _lower("common-terms", "Compute terms that neighbouring iterations share once.", common_terms),
    _lower("barriers", "Insert barriers where threads share memory.", barriers),
    _lower("narrow-indices", "Narrow index arithmetic to 32 bits.", narrow_indices),
)

_ONLY: Final[dict[str, Target]] = {
    "allreduce": "gpu",
    "predicate-thread-0": "gpu",
    "digits": "gpu",
    "guard-updates": "gpu",
    "register-promotion": "gpu",
    "reads-first": "gpu",
    "partition-unrolled": "gpu",
    "remainder-tiles": "cpu",
    "in-place": "cpu",
    "roll": "cpu",
    "narrow-lanes": "cpu",
    "common-terms": "cpu",
    "barriers": "gpu",
    "narrow-indices": "gpu",
}
"""The passes that serve one kind of machine."""

LOWERING: Final[dict[Target, Pipeline]] = {
    target: Pipeline(tuple(pass_ for pass_ in LOWER if _ONLY.get(pass_.name, target) == target))
    for target in EVERY
}
"""The lowering passes of each kind of machine, in order."""


def lower(kernel: Kernel, target: Target = "cpu") -> Kernel:
    """The kernel after all passes for a kind of machine."""
    if target not in EVERY:
        message, expected = "Kernels are not lowered for this target.", f"one of {', '.join(EVERY)}"
        hint = did_you_mean(str(target), EVERY)
        raise InputError(Diagnostic("input-unknown", message, None, expected, repr(target), hint))
    return lowered(kernel, LOWERING[target].passes)


LOWERED_DIGESTS: Final[WeakKeyDictionary[Kernel, str]] = WeakKeyDictionary()
"""The digests of live lowered kernels, which key their code."""


def digest_of(kernel: Kernel) -> str:
    """The digest of a lowered kernel, reckoned once."""
    if (known := LOWERED_DIGESTS.get(kernel)) is None:
        known = LOWERED_DIGESTS[kernel] = digest(kernel)
    return known


@frozen(eq=False)
class LoweredKernel:
    """A kernel after some passes, which it remembers."""

    kernel: Kernel
    passes: tuple[Pass, ...]


@frozen
class LowerAll:
    """All passes over kernels as one."""

    passes: tuple[Pass, ...]

    def __call__(self, kernel: Kernel) -> Kernel:
        """The kernel after all passes."""
        return lowered(kernel, self.passes)


def lowered(kernel: Kernel, passes: tuple[Pass, ...]) -> Kernel:
    """The kernel after some passes."""
    for pass_ in passes:
        check_deadline()
        kernel = pass_.run(kernel)
    return kernel
