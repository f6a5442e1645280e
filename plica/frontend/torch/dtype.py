"""Element types: torch's names for Plica's, and tensors as arrays without a copy.

>>> ELEMENTS["bf16"].array  # what torch calls it, too
'bfloat16'
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from plica.ir.type.dtype import DTYPES, DType, dtype as to_dtype
from plica.runtime.element import ELEMENTS
from plica.runtime.foreign_tensor import settled, shared

if TYPE_CHECKING:
    import torch


@cache
def _by_torch() -> dict[torch.dtype, DType]:
    import torch

    names = {dtype: ELEMENTS[dtype.name].array for dtype in DTYPES}
    return {getattr(torch, name): each for each, name in names.items() if hasattr(torch, name)}


def dtype_of(of: torch.dtype) -> DType | None:
    """Plica's name of an element type, or None."""
    return _by_torch().get(of)


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The elements of a CPU tensor, sharing memory if numpy can."""
    plain = tensor.detach().resolve_conj()
    ours = dtype_of(plain.dtype)
    if ours is None:  # of no type that Plica has; numpy may know it
        return np.from_dlpack(settled(plain))
    return shared(plain, ELEMENTS[ours.name])


def tensor_of_array(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor over the memory of an array."""
    import torch

    element = ELEMENTS[to_dtype(array.dtype).name]
    if element.extended:
        bits = torch.from_numpy(array.view(f"i{element.bytes}"))
        return bits.view(getattr(torch, element.array))
    return torch.from_numpy(array)
