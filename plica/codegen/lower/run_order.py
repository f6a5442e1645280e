"""Runs: sums that stand in terms are written out in the order that their runs say.

    y[i] = sum((x[i, k] for k in range(32)), runs="row")
      -->  y[i] = f32(sum(f64(sum(x[i, k_1 * 16 + k_2] for k_2 in range(16))) for k_1 in range(2)))

What stages sum has that order already (`plica.ir.loop.define`); a kernel that somebody wrote, or a
sum under a guard, has it from here on.
"""

from __future__ import annotations

from plica.ir.loop.statement import Kernel
from plica.ir.loop.summation import spelled_within


def in_order_of_runs(kernel: Kernel) -> Kernel:
    """The kernel without runs."""
    found = spelled_within(kernel)
    assert isinstance(found, Kernel)
    return found
