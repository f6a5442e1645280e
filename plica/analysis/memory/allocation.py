"""Allocation: values that need memory for a while, and plans that say where.

    Tenant     ::= Tenant(size, born, last, view_of, in_place_of)
    MemoryPlan ::= MemoryPlan(tenants, offsets, size, alignment)

Time is counted in steps: a tenant is there from the step that writes it to the last that reads it,
both included.  A view shows the memory of another tenant.  A tenant *in place of* another is
written by the step that reads the other for the last time, over it.

>>> plan = MemoryPlan((Allocation(8, 0, 1), Allocation(4, 1, 2)), (0, 64), 128)
>>> print(plan)
offset  size  steps  shares
     0     8  0-1
    64     4  1-2
"""

from __future__ import annotations

from attrs import frozen

ALIGNMENT = 64  # bytes; a cache line, and the widest vector


@frozen
class Allocation:
    """A value that needs memory; tenants are named by their number."""

    size: int
    born: int
    last: int
    view_of: int | None = None
    in_place_of: int | None = None

    @property
    def shares(self) -> int | None:
        """The tenant whose memory this one has."""
        return self.view_of if self.view_of is not None else self.in_place_of


@frozen
class MemoryPlan:
    """Where each tenant lies in one arena of `size` bytes."""

    tenants: tuple[Allocation, ...]
    offsets: tuple[int, ...]
    size: int
    alignment: int = ALIGNMENT

    def __str__(self) -> str:
        lines = ["offset  size  steps  shares"]
        for tenant, offset in zip(self.tenants, self.offsets, strict=True):
            shares = "" if tenant.shares is None else str(tenant.shares)
            steps = f"{tenant.born}-{tenant.last}"
            lines.append(f"{offset:6}  {tenant.size:4}  {steps:5}  {shares}".rstrip())
        return "\n".join(lines)


def aligned(size: int, alignment: int) -> int:
    """The size in whole units of the alignment."""
    return -(-size // alignment) * alignment
