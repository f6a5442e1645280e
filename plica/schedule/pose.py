"""Poses: questions about loops and blocks that many primitives ask before they edit."""

from __future__ import annotations

from plica.ir.loop import For
from plica.schedule.problem import Problem


def plain_loop(loop: For) -> Problem | None:
    """A loop that runs its iterations in order, of which nothing else was said."""
    where = f"the loop {loop.var.name}"
    if loop.kind != "serial":
        return Problem("plain-loop", where, "a serial loop", f"a loop of the kind {loop.kind}")
    if loop.annotations:
        said = ", ".join(key for key, _ in loop.annotations)
        return Problem("plain-loop", where, "a loop without annotations", said)
    return None
