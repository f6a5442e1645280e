"""Specialised kernels: symbolic dims replaced by numbers.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import NOTHING, For, Kernel
>>> from plica.ir.loop.tensor import axis, buffer
>>> n, i = dim_var("n"), axis("i")
>>> kernel = Kernel((n,), (buffer("x", (n,), f32),), 1, For(i, n, "serial", NOTHING))
>>> small = specialise(kernel, {n: 4})
>>> small.dims, small.body.extent.value
((), 4)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from plica.core import Term, substitute
from plica.ir.loop.scalar import Lit, ScalarVar
from plica.ir.loop.statement import Kernel


def specialise(kernel: Kernel, sizes: Mapping[Term, int]) -> Kernel:
    """The kernel at some sizes; other dims stay symbolic."""
    given = tuple((var, size) for var, size in sizes.items() if isinstance(var, ScalarVar))
    return _specialise(kernel, given) if given else kernel


@lru_cache(maxsize=512)
def _specialise(kernel: Kernel, given: tuple[tuple[ScalarVar, int], ...]) -> Kernel:
    numbers: dict[Term, Term] = {var: Lit(size, var.dtype) for var, size in given}
    dims = tuple([dim for dim in kernel.dims if dim not in numbers])
    return substitute(
        Kernel(dims, kernel.params, kernel.inputs, kernel.body, kernel.annotations), numbers
    )
