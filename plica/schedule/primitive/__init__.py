"""The primitives, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "add_unit_loop", "annotate", "bind", "block", "blockize", "cache_inplace", "cache_read",
    "cache_write", "child_blocks", "compute_at", "compute_inline", "consumers", "decompose_padding",
    "decompose_reduction", "enter_postproc", "fuse", "loop_partition", "loops", "merge_loops",
    "narrow_sum", "output_blocks", "overlap_split", "pad_einsum", "pad_fold", "parallel",
    "peel_init", "producers", "read_at", "reader_loop", "reindex", "reorder",
    "reorder_block_iter_var", "reverse_compute_at", "reverse_compute_inline", "rfactor",
    "sample_categorical", "sample_compute_location", "sample_partitioned_tile",
    "sample_perfect_tile", "sample_tile", "sample_tuple", "set_scope", "split", "storage_align",
    "tensorize", "transform_block_layout", "transform_layout", "transpose_tile", "unannotate",
    "unroll", "vectorize", "write_at",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.schedule.primitive.annotate import annotate, unannotate
    from plica.schedule.primitive.blockize import blockize
    from plica.schedule.primitive.buffer_memory import set_scope, storage_align
    from plica.schedule.primitive.cache import cache_read, cache_write
    from plica.schedule.primitive.cache_inplace import cache_inplace
    from plica.schedule.primitive.compute_at import compute_at, reverse_compute_at
    from plica.schedule.primitive.compute_inline import compute_inline, reverse_compute_inline
    from plica.schedule.primitive.copy_at import read_at, write_at
    from plica.schedule.primitive.decompose_padding import decompose_padding
    from plica.schedule.primitive.fuse import add_unit_loop, fuse
    from plica.schedule.primitive.look_up import (
        block,
        child_blocks,
        consumers,
        loops,
        output_blocks,
        producers,
        reader_loop,
    )
    from plica.schedule.primitive.loop_kind import bind, parallel, unroll, vectorize
    from plica.schedule.primitive.merge_loops import merge_loops
    from plica.schedule.primitive.narrow_sum import narrow_sum
    from plica.schedule.primitive.pad_einsum import pad_einsum
    from plica.schedule.primitive.pad_fold import pad_fold
    from plica.schedule.primitive.reduction_begin import decompose_reduction, peel_init
    from plica.schedule.primitive.reindex import reindex
    from plica.schedule.primitive.reorder import reorder
    from plica.schedule.primitive.reorder_block_iter_var import reorder_block_iter_var
    from plica.schedule.primitive.rfactor import rfactor
    from plica.schedule.primitive.sample import (
        enter_postproc,
        sample_categorical,
        sample_compute_location,
        sample_partitioned_tile,
        sample_perfect_tile,
        sample_tile,
        sample_tuple,
    )
    from plica.schedule.primitive.split import loop_partition, overlap_split, split
    from plica.schedule.primitive.tensorize import tensorize
    from plica.schedule.primitive.transform_block_layout import transform_block_layout
    from plica.schedule.primitive.transform_layout import transform_layout
    from plica.schedule.primitive.transpose_tile import transpose_tile
else:
    lazily(__name__)
