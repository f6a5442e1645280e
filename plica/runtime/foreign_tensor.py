"""Tensors of other libraries as arrays over the same memory, as DLPack gives it.

>>> from plica.runtime.element import ELEMENTS
>>> given = np.arange(3, dtype=np.float32)
>>> array = shared(given, ELEMENTS["f32"])
>>> bool(np.shares_memory(array, given))
True

What a library has put off is done first: torch notes that a tensor is to be negated
(`z.conj().imag`) beside its memory, and DLPack hands out the memory without the note.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

from plica.runtime.element import Element

Array: TypeAlias = np.ndarray[Any, Any]  # Any: the dtype is the tensor's


def settled(value: Any) -> Any:  # Any: a tensor of any library
    """The tensor itself, or where its memory does not hold its elements yet, one that does."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    return value.resolve_neg()


def foreign_dtype(value: Any) -> str | None:
    """The name of the element type of a tensor of torch, which numpy may lack; None for others."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    return str(value.dtype).removeprefix("torch.")


def shared(value: Any, element: Element) -> Array:
    """The memory of a tensor of these elements; numpy itself need not have such a type."""
    plain = settled(value)
    if not element.extended or foreign_dtype(plain) != element.array or plain.requires_grad:
        return np.from_dlpack(plain)
    whole = getattr(sys.modules["torch"], f"int{8 * element.bytes}")
    bits: Array = np.from_dlpack(plain.contiguous().view(whole))
    return bits.view(element.numpy)
