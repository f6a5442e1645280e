"""DLPack: exchanges GPU arrays with other libraries without copies."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from functools import lru_cache
from typing import Any, Final

import numpy as np

from plica.runtime.cuda.driver import CudaStream
from plica.runtime.cuda.gather import is_dense
from plica.runtime.element import ELEMENTS, wrong_element
from plica.runtime.error import Diagnostic, Place
from plica.runtime.foreign_tensor import foreign_dtype, how_to_convert, how_to_share, settled
from plica.runtime.port import Port

CUDA: Final = 2  # DLPack's number of NVIDIA's GPUs
MANAGED: Final = 13  # DLPack's number of memory that both a GPU and a processor reach
UNKNOWN: Final = 255  # no kind of DLPack: of elements that it lays out otherwise than we do
LEGACY: Final = 1  # the stream that is meant where none is named
WIDEST: Final = 16  # bytes of the widest access: arrays that kernels read begin at a multiple of it
MAX_AXES: Final = 64


class _Device(ctypes.Structure):
    _fields_ = (("kind", c_int32), ("number", c_int32))


class _Element(ctypes.Structure):
    _fields_ = (("kind", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("axes", c_int32),
        ("element", _Element),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("offset", c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


_DELETER: Final = ctypes.CFUNCTYPE(None, c_void_p)
_DESTRUCTOR: Final = ctypes.PYFUNCTYPE(None, c_void_p)
_NAME: Final = b"dltensor"
_USED: Final = b"used_dltensor"
_valid: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer: Final = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
_new: Final = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_dying_valid: Final = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_dying_pointer: Final = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Lent:
    """A borrowed GPU array: its address and layout."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        steps: tuple[int, ...],
        size: int,
        *,
        keep: object,
        deleter: Any = None,  # a C function
    ) -> None:
        self.address, self.shape, self.steps, self.size = address, shape, steps, size
        self._keep, self._deleter = keep, deleter

    @property
    def is_dense(self) -> bool:
        """Whether kernels can read it where it is."""
        return self.address % WIDEST == 0 and is_dense(self.shape, self.steps, self.size)

    def __del__(self) -> None:
        deleter, self._deleter = self._deleter, None
        if deleter is not None:
            deleter(self._keep)


def memory_of(value: object) -> tuple[int, int] | None:
    """The memory kind and device number that a value reports, or None.

    A tensor without memory (torch's device `meta`) raises here: it is refused where host arrays are
    read.
    """
    where = getattr(value, "__dlpack_device__", None)
    if not callable(where):
        return None
    try:
        kind, number = where()
    except (BufferError, RuntimeError, ValueError):
        return None
    return int(kind), int(number)


def borrowed(
    port: Port, value: Any, stream: CudaStream, follow: Callable[[int], None]
) -> Lent | Diagnostic | None:
    """A value on a GPU, for a port; None for host values.

    The stream continues when the value is complete; `follow` makes it wait for another stream.
    """
    if isinstance(value, np.ndarray | np.generic | bool | int | float):
        return None
    if (known := _of_torch(port, value, stream.device.number, follow)) is not None:
        return known
    if (where := memory_of(value)) is not None:
        kind, number = where
        if kind not in (CUDA, MANAGED):
            return None
        if number != stream.device.number:
            return _elsewhere(port, number, stream)
        if (named := foreign_dtype(value)) not in (None, ELEMENTS[port.dtype].array):
            what = f"Input {port.name!r}"
            hint = how_to_convert(port.name, value, port.dtype)
            return wrong_element(what, port.name, port.dtype, str(named), hint)
        try:
            capsule = settled(value).__dlpack__(stream=stream.handle)
        except (BufferError, RuntimeError) as error:
            what, place = f"Input {port.name!r} cannot be shared.", Place(node=port.name)
            hint = how_to_share(port.name, value)
            return Diagnostic("input-type", what, place, port.type, str(error), hint)
        return _from_capsule(port, capsule, stream)
    words = getattr(value, "__cuda_array_interface__", None)
    return _from_words(port, words, value, follow) if isinstance(words, dict) else None


def _of_torch(port: Port, value: Any, number: int, follow: Callable[[int], None]) -> Lent | None:
    """A torch tensor that matches a port, read by torch's own attributes, which take a tenth of the
    time; None for all others, which DLPack handles."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or not value.is_cuda:
        return None
    if value.dtype is not getattr(torch, ELEMENTS[port.dtype].array, None):
        return None
    if value.shape != port.shape or value.device.index != number or value.requires_grad:
        return None
    if value.layout is not torch.strided or value.is_neg():
        return None
    follow(torch._C._cuda_getCurrentRawStream(number))
    size = value.element_size()
    steps = tuple([size * each for each in value.stride()])
    return Lent(value.data_ptr(), port.shape, steps, size, keep=value)


class TensorPorts:
    """Ports that are all given dense tensors of torch on one GPU, as most calls give them.

    As few torch attributes as possible are read: they dominate the time of a call.
    """

    def __init__(self, ports: Sequence[Port], number: int) -> None:
        self._ports, self._number = ports, number
        self._wanted: list[tuple[Any, tuple[int, ...]]] = []

    def addresses(self, values: Sequence[Any]) -> list[int] | None:
        """Where the values lie; None unless all are such tensors."""
        torch = sys.modules.get("torch")
        if torch is None or len(values) != len(self._ports):
            return None
        kind, strided, number = torch.Tensor, torch.strided, self._number
        if not self._wanted:
            self._wanted = [
                (getattr(torch, ELEMENTS[port.dtype].array, None), port.shape)
                for port in self._ports
            ]
        found = []
        for value, (dtype, shape) in zip(values, self._wanted, strict=True):
            if type(value) is not kind or value.dtype is not dtype or value.shape != shape:
                return None
            if not value.is_cuda or value.get_device() != number or value.requires_grad:
                return None
            if value.layout is not strided or not value.is_contiguous() or value.is_neg():
                return None
            found.append(value.data_ptr())
            if found[-1] % WIDEST:
                return None
        return found or None

    def stream(self) -> int:
        """The stream that torch puts its work into, by its handle."""
        handle: int = sys.modules["torch"]._C._cuda_getCurrentRawStream(self._number)
        return handle


def _from_capsule(port: Port, capsule: object, stream: CudaStream) -> Lent | Diagnostic:
    if not _valid(capsule, _NAME):
        kind = type(capsule).__name__
        return _refused(port, "input-type", "cannot be shared", "a DLPack capsule", kind)
    address = _pointer(capsule, _NAME)
    managed = _Managed.from_address(address)
    _rename(capsule, _USED)
    release = _DELETER(managed.deleter) if managed.deleter else None
    of = managed.tensor
    axes = max(0, min(int(of.axes), MAX_AXES))
    shape = tuple([int(of.shape[n]) for n in range(axes)])
    element, size = of.element, port.numpy.itemsize
    if of.strides:
        steps = tuple([int(of.strides[n]) * size for n in range(axes)])
    else:
        steps = dense_steps(shape, size)
    begin = int(of.data or 0) + int(of.offset)
    lent = Lent(begin, shape, steps, size, keep=address, deleter=release)
    number = int(of.device.number)
    if number != stream.device.number:
        return _elsewhere(port, number, stream)
    found = (int(element.kind), int(element.bits), int(element.lanes))
    if found != (*element_of(port), 1):
        said = f"DLPack kind {found[0]} of {found[1]} bits"
        return wrong_element(f"Input {port.name!r}", port.name, port.dtype, said)
    return _fitting(port, lent)


def _from_words(
    port: Port, words: dict[str, Any], value: object, follow: Callable[[int], None]
) -> Lent | Diagnostic:
    """An array by the words of `__cuda_array_interface__`."""
    match words:
        case {"shape": tuple(shape), "typestr": str(typestr), "data": (int(address), _)} if (
            len(shape) <= MAX_AXES and words.get("mask") is None
        ):
            pass
        case _:
            return _refused(port, "input-type", "cannot be shared", port.type, "another interface")
    if np.dtype(typestr) != port.numpy:
        return wrong_element(f"Input {port.name!r}", port.name, port.dtype, typestr)
    size = port.numpy.itemsize
    given = words.get("strides")
    steps = dense_steps(shape, size) if given is None else tuple([int(each) for each in given])
    # Without a given stream, pending work is in the default stream.
    follow(words.get("stream") or LEGACY)
    return _fitting(port, Lent(address, shape, steps, size, keep=value))


def _fitting(port: Port, of: Lent) -> Lent | Diagnostic:
    if of.shape == port.shape:
        return of
    found = str(of.shape)
    return _refused(port, "input-shape", "has the wrong shape", str(port.shape), found)


def element_of(port: Port) -> tuple[int, int]:
    """DLPack's kind and bits of the elements of a port."""
    element = ELEMENTS[port.dtype]
    return UNKNOWN if element.dlpack is None else element.dlpack, 8 * element.bytes


def dense_steps(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Bytes between neighbours along each axis of an array without gaps.

    >>> dense_steps((2, 3), 4)
    (12, 4)
    """
    steps = []
    for extent in reversed(shape):
        steps.append(size)
        size *= extent
    return tuple(reversed(steps))


def _elsewhere(port: Port, number: int, stream: CudaStream) -> Diagnostic:
    message = f"Input {port.name!r} lies on another GPU than the model."
    mine, hint = f"GPU {stream.device.number}", "Copy it to the GPU of the model first."
    return Diagnostic("input-device", message, Place(node=port.name), mine, f"GPU {number}", hint)


def _refused(port: Port, code: str, what: str, expected: str, found: str) -> Diagnostic:
    message = f"Input {port.name!r} {what}."
    return Diagnostic(code, message, Place(node=port.name), expected, found)


# --- giving out -----------------------------------------------------------------------------------

_given: Final[dict[int, tuple[Any, ...]]] = {}
"""Exports not yet released by borrowers, by the address of their description."""


def capsule_of(owner: object, address: int, port: Port, number: int) -> object:
    """A DLPack capsule for memory on the GPU; its owner lives until the borrower is done."""
    described, sizes = _described(port, number)
    managed = _Managed.from_buffer_copy(described)
    managed.tensor.data = address
    at = ctypes.addressof(managed)
    _given[at] = (managed, sizes, owner)
    return _new(at, _NAME, _never_taken_at)


@lru_cache(maxsize=256)
def _described(port: Port, number: int) -> tuple[_Managed, object]:
    """The description of an array for a port, without an address, and the storage of its sizes."""
    axes = len(port.shape)
    shape = (c_int64 * max(1, axes))(*port.shape)
    items = [step // port.numpy.itemsize for step in dense_steps(port.shape, port.numpy.itemsize)]
    strides = (c_int64 * max(1, axes))(*items)
    kind, bits = element_of(port)
    if kind == UNKNOWN:
        raise BufferError(f"DLPack has no word for {port.dtype}, one in a byte: use y.numpy().")
    made = _Managed()
    made.tensor.device = _Device(CUDA, number)
    made.tensor.axes = axes
    made.tensor.element = _Element(kind, bits, 1)
    made.tensor.shape = ctypes.cast(shape, ctypes.POINTER(c_int64))
    made.tensor.strides = ctypes.cast(strides, ctypes.POINTER(c_int64))
    made.deleter = ctypes.cast(_given_back, c_void_p).value
    return made, (shape, strides)


def _give_back(address: int) -> None:
    _given.pop(address, None)


def _give_up(capsule: int) -> None:
    if _dying_valid(capsule, _NAME):
        _given.pop(_dying_pointer(capsule, _NAME), None)


_given_back: Final = _DELETER(_give_back)
_never_taken: Final = _DESTRUCTOR(_give_up)
_never_taken_at: Final = ctypes.cast(_never_taken, c_void_p)
