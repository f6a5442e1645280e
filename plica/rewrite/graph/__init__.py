"""Structural passes of the graph language, and the analyses they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "KNOWN", "PASSES", "PostDominators", "Totality", "defunctionalize", "eta_expand", "eta_reduce",
    "evaluate_partially", "find_pass", "fold_constants", "inline", "intervals", "is_anf",
    "is_basic_block", "is_dataflow", "is_first_order", "is_lifted", "is_monomorphic", "lift",
    "live_after", "merge_common", "monomorphise", "remove_dead", "remove_unreachable", "to_anf",
    "to_basic_blocks", "to_dataflow", "use_counts", "users",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.rewrite.graph.anf import is_anf, is_basic_block, to_anf, to_basic_blocks
    from plica.rewrite.graph.catalogue import PASSES, find_pass
    from plica.rewrite.graph.cse import merge_common
    from plica.rewrite.graph.dataflow import intervals, is_dataflow, live_after, to_dataflow
    from plica.rewrite.graph.dead import remove_dead, remove_unreachable
    from plica.rewrite.graph.defunctionalize import defunctionalize, is_first_order
    from plica.rewrite.graph.dominator import PostDominators
    from plica.rewrite.graph.eta import eta_expand, eta_reduce
    from plica.rewrite.graph.fold import fold_constants
    from plica.rewrite.graph.inline import inline
    from plica.rewrite.graph.known import KNOWN
    from plica.rewrite.graph.lift import is_lifted, lift
    from plica.rewrite.graph.monomorphic import is_monomorphic, monomorphise
    from plica.rewrite.graph.partial import evaluate_partially
    from plica.rewrite.graph.total import Totality
    from plica.rewrite.graph.walk import use_counts, users
else:
    lazily(__name__)
