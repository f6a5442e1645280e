"""Steps: the primitives that trace templates are written with, each loaded at its first use.

A template lists a dozen of them, and the trace for one kernel uses a few.

>>> block("C").kind
'block'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import late

__all__ = [
    "add_unit_loop", "annotate", "block", "cache_read", "cache_write", "child_blocks", "compute_at",
    "compute_inline", "decompose_padding", "decompose_reduction", "fuse", "loop_partition", "loops",
    "merge_loops", "overlap_split", "parallel", "reorder", "reverse_compute_at", "set_scope",
    "split", "storage_align", "tensorize", "transform_layout", "transpose_tile", "unroll",
    "vectorize",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.schedule.primitive import (
        add_unit_loop,
        annotate,
        block,
        cache_read,
        cache_write,
        child_blocks,
        compute_at,
        compute_inline,
        decompose_padding,
        decompose_reduction,
        fuse,
        loop_partition,
        loops,
        merge_loops,
        overlap_split,
        parallel,
        reorder,
        reverse_compute_at,
        set_scope,
        split,
        storage_align,
        tensorize,
        transform_layout,
        transpose_tile,
        unroll,
        vectorize,
    )
else:
    globals().update({name: late(f"plica.schedule.primitive:{name}") for name in __all__})
