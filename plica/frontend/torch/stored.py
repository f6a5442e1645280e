"""Stored tensors: parameters, buffers and constants of a program, as constants of the module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.frontend.complex_pair import Complex
from plica.frontend.torch.dtype import array_of, dtype_of
from plica.frontend.torch.row.complex_number import part_type
from plica.ir.graph.expression import Expr, const
from plica.runtime.error import Place, UnsupportedError

if TYPE_CHECKING:
    import torch


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
