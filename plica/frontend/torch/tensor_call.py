"""Calls with tensors of torch: by their addresses where code can be called so, else by arrays.

>>> _overlaps((4, 3), (3, 1)), _overlaps((4, 3), (1, 1))
(False, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from plica.frontend.torch.dtype import array_of, tensor_of_array
from plica.frontend.torch.plan import memory_order
from plica.frontend.torch.symbol import Symbols
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.executable import Executable
from plica.runtime.foreign_tensor import settled

if TYPE_CHECKING:
    import torch
    from torch import fx

TensorCall: TypeAlias = "Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]"
"""What gives the results of some tensors."""

ALIGNED = 16  # bytes at whose multiples tensors begin that code for GPUs reads where they are


def call_of(
    code: Executable, inputs: Sequence[fx.Node], said: Sequence[Any], *, on_gpu: bool = False,
    by_arrays: bool = False,
) -> TensorCall:  # fmt: skip
    """Code called with the tensors of some nodes, with torch's metadata of its results.

    Code with open sizes is called `by_arrays`: the sizes of its results follow from theirs.
    """
    if not by_arrays and (found := _by_addresses(code, inputs, said)) is not None:
        return found
    orders = [memory_order(node) for node in inputs]

    def called(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results of code in which the host has a share."""
        given = [
            tensor if order is None else tensor.permute(order)
            for tensor, order in zip(tensors, orders, strict=True)
        ]
        if on_gpu:
            return _on_device(code, given, said[0].device)
        made = code(*map(array_of, given))
        return [tensor_of_array(array) for array in (made if isinstance(made, tuple) else [made])]

    return called


class AddressedCode:
    """Code that is called with tensors by their addresses: memory and order of work are torch's."""

    def __init__(
        self,
        run: Callable[[list[int], list[int]], None],
        inputs: Sequence[fx.Node],
        aligned: Sequence[int],
        allocators: Sequence[Callable[[], torch.Tensor]],
    ) -> None:
        import torch

        self._run, self._aligned, self._allocators = run, aligned, allocators
        self._dense = torch.contiguous_format
        self._orders = [memory_order(node) for node in inputs]
        self._strides = [
            None if order is None else node.meta["val"].stride()
            for node, order in zip(inputs, self._orders, strict=True)
        ]

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results of tensors that lie as is expected, and of others, which are copied first."""
        dense = list(inputs)
        addresses = [tensor.data_ptr() for tensor in dense]
        strides = self._strides
        others = [
            at
            for at, each in enumerate(dense)
            if addresses[at] % self._aligned[at]
            or not (each.is_contiguous() if strides[at] is None else each.stride() == strides[at])
            or each.is_neg()
        ]
        for at in others:
            plain, order = dense[at].detach().resolve_neg(), self._orders[at]
            plain = plain if order is None else plain.permute(order)
            dense[at] = plain.clone(memory_format=self._dense)
            addresses[at] = dense[at].data_ptr()
        tensors = [allocate() for allocate in self._allocators]
        self._run(addresses, [tensor.data_ptr() for tensor in tensors])
        return tensors


def _by_addresses(
    code: Executable, inputs: Sequence[fx.Node], said: Sequence[Any]
) -> AddressedCode | None:
    """Code that takes tensor addresses; None for code that takes arrays."""
    if isinstance(code, CudaExecutable):
        from torch._C import _cuda_getCurrentRawStream

        number, stream = said[0].device.index, _cuda_getCurrentRawStream

        def on_gpu(given: list[int], results: list[int]) -> None:
            code.run_at(given, results, stream(number))

        return AddressedCode(on_gpu, inputs, [ALIGNED] * len(inputs), _allocators(code, said))
    if type(code) is not Executable or code.donated:
        return None

    def on_host(given: list[int], results: list[int]) -> None:
        code.run([*given, *results])

    sizes = [port.numpy.itemsize for port in code.inputs]
    return AddressedCode(on_host, inputs, sizes, _allocators(code, said))


def _allocators(code: Executable, said: Sequence[Any]) -> list[Callable[[], torch.Tensor]]:
    """What allocates each result of code, with the type and device that torch says."""
    import torch
    from torch._C._dynamo import guards

    # Torch's internal function takes a third of the time; on a GPU it uses the current device.
    short: dict[str, Any] = {
        word: getattr(guards, f"_empty_strided_{word}", None) for word in ("cpu", "cuda")
    }

    def allocator(shape: tuple[int, ...], each: Any) -> Callable[[], torch.Tensor]:
        plain = partial(torch.empty, shape, dtype=each.dtype, device=each.device)
        if (quick := short.get(each.device.type)) is None:
            return plain
        strides = torch.empty(shape, device="meta").stride()
        made: Callable[[], torch.Tensor] = partial(quick, shape, strides, each.dtype)
        if each.device.type == "cpu":
            return made
        number, current = each.device.index, torch._C._cuda_getDevice
        return lambda: made() if current() == number else plain()

    return [allocator(port.shape, each) for port, each in zip(code.outputs, said, strict=True)]


def _on_device(code: Executable, inputs: Sequence[Any], device: Any) -> list[torch.Tensor]:
    """The results of code in which the host has a share, as tensors of a device."""
    found = code(*[settled(each.detach()).contiguous() for each in inputs])
    return [_of_array(each).to(device) for each in (found if isinstance(found, tuple) else [found])]


def _of_array(array: Any) -> torch.Tensor:
    """A tensor over the memory of an array, on any device."""
    import torch

    return (
        tensor_of_array(array)
        if isinstance(array, np.ndarray)
        else torch.utils.dlpack.from_dlpack(array)
    )


def expected_strides(said: Any, symbols: Symbols) -> tuple[int, ...] | None:
    """The strides that torch expects of a tensor, or None for contiguous ones."""
    sizes, strides = (
        [each if isinstance(each, int) else symbols.term(each.node.expr) for each in every]
        for every in (said.shape, said.stride())
    )
    wanted = tuple([each for each in strides if isinstance(each, int)])
    if len(wanted) != len(strides):
        return None
    step = 1
    for size, stride in zip(reversed(sizes), reversed(wanted), strict=True):
        if not isinstance(size, int) or (size != 1 and stride != step):
            return wanted
        step *= size
    return None


def laid_out(tensor: torch.Tensor, wanted: Sequence[int]) -> torch.Tensor:
    """A tensor with the strides that torch expects of it."""
    import torch

    if not tensor.numel():
        return tensor
    if all(size == 1 or a == b for size, a, b in
           zip(tensor.shape, tensor.stride(), wanted, strict=True)):  # fmt: skip
        return tensor
    # An axis with stride 0 is stored once.
    repeats = [size > 1 and not by for size, by in zip(tensor.shape, wanted, strict=True)]
    once = tensor[tuple([slice(0, 1) if repeat else slice(None) for repeat in repeats])]
    if _overlaps(once.shape, wanted):
        return tensor  # torch itself cannot write to it; only views have such strides
    found = torch.empty_strided(once.shape, wanted, dtype=tensor.dtype, device=tensor.device).copy_(
        once
    )
    return found.as_strided(tensor.shape, wanted)


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several elements of a tensor may lie in one place."""
    end = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride < end:
                return True
            end = stride * (size - 1) + end
    return False
