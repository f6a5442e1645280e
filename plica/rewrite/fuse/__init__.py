"""fuse: operators that are computed together become one primitive function, with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "REASONS", "EdgeDecision", "FusionLimits", "Reason", "defuse", "explain", "fuse", "is_fused",
    "is_primitive", "table",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.rewrite.fuse.decide import REASONS, Reason
    from plica.rewrite.fuse.explain import EdgeDecision, explain, table
    from plica.rewrite.fuse.group import defuse, fuse, is_fused, is_primitive
    from plica.rewrite.fuse.limit import FusionLimits
else:
    lazily(__name__)
