"""schedule: instructions, traces, replay, and tools that work on traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily, require_name_in_plica

require_name_in_plica(__name__)

__all__ = [
    "Conflict", "Conflicts", "Culprit", "Difference", "Effect", "Fate", "Handle", "Instruction",
    "Problem", "Sampling", "ScheduleRefused", "Share", "Step", "Trace", "TransportReport",
    "Transported", "adapter", "add_unit_loop", "annotate", "apply", "bind", "bisect", "blame",
    "block", "blockize", "cache_inplace", "cache_read", "cache_write", "child_blocks", "compute_at",
    "compute_inline", "consumers", "decided", "decompose_padding", "decompose_reduction", "diff",
    "do", "effects", "enter_postproc", "fuse", "kinds", "loop_partition", "loops", "merge",
    "merge_loops", "minimise", "narrow_sum", "normalise", "output_blocks", "overlap_split",
    "pad_einsum", "pad_fold", "parallel", "peel_init", "producers", "read_at", "reader_loop",
    "record", "reindex", "reorder", "reorder_block_iter_var", "replay", "resample",
    "reverse_compute_at", "reverse_compute_inline", "rfactor", "sample_categorical",
    "sample_compute_location", "sample_partitioned_tile", "sample_perfect_tile", "sample_tile",
    "sample_tuple", "set_scope", "spell", "split", "storage_align", "tensorize", "term",
    "trace_of", "transform_block_layout", "transform_layout", "transport", "transpose_tile",
    "unannotate", "undecided", "unroll", "vectorize", "without_postproc", "write_at",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.schedule.adapt import adapter
    from plica.schedule.bisect import Culprit, bisect
    from plica.schedule.diff import Difference, Effect, apply, diff, effects
    from plica.schedule.do import decided, do, record, trace_of
    from plica.schedule.handle import Handle
    from plica.schedule.instruction import Instruction, Sampling, kinds
    from plica.schedule.merge import Conflict, Conflicts, merge
    from plica.schedule.minimise import Share, blame, minimise
    from plica.schedule.normalise import normalise
    from plica.schedule.primitive import (
        add_unit_loop,
        annotate,
        bind,
        block,
        blockize,
        cache_inplace,
        cache_read,
        cache_write,
        child_blocks,
        compute_at,
        compute_inline,
        consumers,
        decompose_padding,
        decompose_reduction,
        enter_postproc,
        fuse,
        loop_partition,
        loops,
        merge_loops,
        narrow_sum,
        output_blocks,
        overlap_split,
        pad_einsum,
        pad_fold,
        parallel,
        peel_init,
        producers,
        read_at,
        reader_loop,
        reindex,
        reorder,
        reorder_block_iter_var,
        reverse_compute_at,
        reverse_compute_inline,
        rfactor,
        sample_categorical,
        sample_compute_location,
        sample_partitioned_tile,
        sample_perfect_tile,
        sample_tile,
        sample_tuple,
        set_scope,
        split,
        storage_align,
        tensorize,
        transform_block_layout,
        transform_layout,
        transpose_tile,
        unannotate,
        unroll,
        vectorize,
        write_at,
    )
    from plica.schedule.problem import Problem, ScheduleRefused
    from plica.schedule.python_text import term
    from plica.schedule.replay import replay
    from plica.schedule.resample import resample, undecided, without_postproc
    from plica.schedule.spelling import spell
    from plica.schedule.trace import Step, Trace
    from plica.schedule.transport import Fate, Transported, TransportReport, transport
else:
    lazily(__name__)
