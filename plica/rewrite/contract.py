"""Float contracts as rules declare them: the names of `plica.ir.contract`."""

from plica.ir.contract import (
    APPROX,
    DEFAULT_CONTRACT,
    KNOWN,
    Contract,
    approx,
    exact,
    fused,
    join,
    named,
    reassociates,
    signless_zero,
)

__all__ = [
    "APPROX", "DEFAULT_CONTRACT", "KNOWN", "Contract", "approx", "exact", "fused", "join", "named",
    "reassociates", "signless_zero",
]  # fmt: skip
