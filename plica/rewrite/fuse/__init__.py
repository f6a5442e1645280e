"""fuse: operators that are computed together become one primitive function, with reasons."""

from plica.rewrite.fuse.decide import REASONS, Limits, Reason
from plica.rewrite.fuse.explain import EdgeDecision, explain, table
from plica.rewrite.fuse.group import defuse, fuse, is_fused, is_primitive

__all__ = [
    "REASONS",
    "EdgeDecision",
    "Limits",
    "Reason",
    "defuse",
    "explain",
    "fuse",
    "is_fused",
    "is_primitive",
    "table",
]
