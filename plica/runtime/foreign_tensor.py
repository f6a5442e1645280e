"""Tensors of other libraries as arrays over the same memory, as DLPack gives it.

>>> from plica.runtime.element import ELEMENTS
>>> given = np.arange(3, dtype=np.float32)
>>> array = shared(given, ELEMENTS["f32"])
>>> bool(np.shares_memory(array, given))
True
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

from plica.runtime.element import ELEMENTS, Element

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


def how_to_convert(name: str, value: Any, dtype: str) -> str | None:  # Any: whatever was given
    """What makes a tensor of another library one of these elements; None for others."""
    if (element := ELEMENTS.get(dtype)) is None or foreign_dtype(value) is None:
        return None
    if value.is_quantized:
        return how_to_share(name, value)
    return f"Convert it: {name}.to(torch.{element.array})."


def how_to_share(name: str, value: Any) -> str | None:  # Any: whatever was given
    """How to convert a value to one with readable memory, or None if unknown.

    >>> how_to_share("x", [1.0, 2.0])
    'Make it an array: numpy.asarray(x).'
    """
    if isinstance(value, list | tuple):
        return f"Make it an array: numpy.asarray({name})."
    if foreign_dtype(value) is None:
        return None if hasattr(value, "__dlpack__") else "Give an array of numpy, or a tensor."
    told = {
        "is_nested": f"Fill it up: torch.nested.to_padded_tensor({name}, 0.0).",
        "is_meta": f"It has no elements; make it on a device: torch.empty_like({name}, "
        "device='cpu').",
        "is_quantized": f"Take the numbers that it stands for: {name}.dequantize().",
        "is_sparse": f"Make it dense: {name}.to_dense().",
        "is_sparse_csr": f"Make it dense: {name}.to_dense().",
        "requires_grad": f"Results have no gradients here; if none are needed: {name}.detach().",
        "is_cuda": f"Copy it to the host: {name}.cpu().",
    }
    return next((hint for word, hint in told.items() if getattr(value, word, False)), None)
