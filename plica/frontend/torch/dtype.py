"""Element types: torch's names for Plica's, and tensors as arrays without a copy.

>>> _NAMES["bf16"]
'bfloat16'
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

from plica.ir.dtype import DType

if TYPE_CHECKING:
    import torch

_NAMES: Final[dict[str, str]] = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip


@cache
def _by_torch() -> dict[torch.dtype, DType]:
    import torch

    return {getattr(torch, name): DType(ours) for ours, name in _NAMES.items()}


def dtype_of(of: torch.dtype) -> DType | None:
    """Plica's name of an element type, None where it has none."""
    return _by_torch().get(of)


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The elements of a tensor of the CPU: the same memory wherever numpy can share it."""
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype is torch.bfloat16:  # numpy has no such type of its own
        bits: np.ndarray[Any, Any] = np.from_dlpack(plain.contiguous().view(torch.int16))
        return bits.view(ml_dtypes.bfloat16)
    return np.from_dlpack(plain)


def tensor_of_array(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor over the memory of an array."""
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
