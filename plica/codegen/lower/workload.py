"""Workloads: what a kernel is to do, as a short text that outlives names and processes.

Two kernels that do the same have one key: it is made of the digest of the plain kernel, which knows
no names and no values of weights, of which inputs are known when the program is compiled, and of
what may happen to floats.  It is what tuning records are found by.

>>> from plica.core.name import Name
>>> from plica.ir.graph import Var
>>> from plica.ir.type import tensor
>>> def doubled(name):
...     x = Var(Name(name), tensor((3,), "f32"))
...     return Function((), (), (x,), x.type, x + x)
>>> workload(doubled("x"), (False,), True) == workload(doubled("y"), (False,), True)
True
>>> workload(doubled("x"), (False,), True) == workload(doubled("x"), (True,), True)
False
"""

from __future__ import annotations

import hashlib

from plica.codegen.lower.fused import fused
from plica.ir.graph import Function


def workload(
    function: Function,
    constant: tuple[bool, ...],
    reassociates: bool,
    bytes_: tuple[int, ...] = (),
    approximates: bool = False,
) -> str:
    """The key of what a primitive function does; as `scheduled` is asked."""
    known = "".join(["c" if each else "v" for each in constant])
    text = f"{fused(function).digest} {known} {int(reassociates)}{int(approximates)} {bytes_}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
