"""Moves: a long row that is only moved is one call of `memcpy`.

for j in vectorized(4096): y[i, j] = x[p, j]   -->   memcpy(&y[i, 0], &x[p, 0], 16384)
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.codegen.llvm.buffer_address import BufferAddress
from plica.codegen.llvm.lane import TRUE, constant
from plica.codegen.llvm.value import LlvmValues
from plica.core import free_vars
from plica.ir.loop import For, Load, Scalar, ScalarVar, Store
from plica.ir.type import polynomial


def move(values: LlvmValues, loop: For, count: int) -> bool:
    """Write a loop that moves a given number of elements as one call; False where it does more than
    that."""
    around, access, store = values.around, values.access, loop.body
    assert isinstance(store, Store)
    assert isinstance(store.value, Load)
    both = ((store.buffer, store.indices), (store.value.buffer, store.value.indices))
    if around.mask != TRUE or any(buffer.scope == "local" for buffer, _ in both):
        return False
    if not all(_is_row(loop.var, access.places[buffer], indices) for buffer, indices in both):
        return False
    around.bind(loop.var, constant(0), (0, count - 1))
    inside = all(
        around.is_inside(at, size)
        for buffer, indices in both
        for at, size in zip(indices, access.places[buffer].shape, strict=True)
    )
    if inside:
        ends = [
            access.address(buffer, access.linear(buffer, values.evaluate(indices)), False)
            for buffer, indices in both
        ]
        places = ", ".join([f"ptr {end}" for end in ends])
        size = count * store.buffer.dtype.bytes
        values.w.do(f"call void @llvm.memcpy.p0.p0.i64({places}, i64 {size}, i1 false)")
    around.unbind(loop.var)
    return inside


def _is_row(var: ScalarVar, place: BufferAddress, indices: Sequence[Scalar]) -> bool:
    """Whether elements along a variable lie one after another."""
    if not indices or not place.is_plain or (place.strides and place.strides[-1] != 1):
        return False
    if any(var in free_vars(index) for index in indices[:-1]):
        return False
    terms = polynomial(indices[-1]).values()
    return [term for term in terms if any(var in free_vars(a) for a in term[0])] == [((var,), 1)]
