"""Element types: torch's names for Plica's, tensors as arrays without a copy, and as constants.

>>> ELEMENTS["bf16"].array  # what torch calls it, too
'bfloat16'
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.frontend.complex_pair import Complex
from plica.ir.graph.expression import Expr, const
from plica.ir.type.dtype import DTYPES, DType, dtype as to_dtype, f32, f64
from plica.runtime.element import ELEMENTS
from plica.runtime.error import Place, UnsupportedError
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


# --- stored tensors -------------------------------------------------------------------------------


PARTS: Final[Mapping[str, DType]] = {"torch.complex64": f32, "torch.complex128": f64}
"""The element type of both parts, by torch's name for the pair."""


def part_type(of: Any) -> DType | None:  # Any: a type of torch
    """The element type of the parts of a complex type, None for other types."""
    return PARTS.get(str(of))


def stored(tensor: torch.Tensor, place: Place) -> Expr | Complex:
    """A stored tensor as a constant, of complex numbers as a pair of them."""
    if part_type(tensor.dtype) is None:
        return constant_of(tensor, place)
    whole = tensor.detach().resolve_conj()
    return Complex(*(constant_of(each.contiguous(), place) for each in (whole.real, whole.imag)))


def constant_of(tensor: torch.Tensor, place: Place) -> Expr:
    """A stored tensor as a constant, from any device."""
    of = dtype_of(tensor.dtype)
    if of is None or str(tensor.layout) != "torch.strided" or tensor.device.type == "meta":
        message = "A stored tensor is of a kind that Plica does not have."
        found = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
        expected = "a dense tensor of numbers that has elements"
        raise UnsupportedError.of("unsupported", message, place, expected, found)
    return const(array_of(tensor.cpu()), of)
