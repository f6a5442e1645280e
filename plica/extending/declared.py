"""Declared externs: hand-written kernels with a type and a meaning, which programs call.

    gate = declared_extern("gate", meaning, kernel)     meaning: a function of the graph language

The type is that of the meaning.  The interpreter computes the meaning; compiled code calls the
kernel, which is one of Triton, one of CUDA C++, or any function of arrays.  The gradient is that of
the meaning, compiled; or that of another declared extern.

>>> import plica
>>> from plica.script import Tensor, f32
>>> @plica.function
... def squared(x: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
...     return x * x
>>> square = declared_extern("square", squared, lambda x: x**2)
>>> @plica.function
... def model(x: Tensor[("n",), f32]) -> Tensor[(), f32]:
...     return op.sum(square(x) + 1.0)
>>> x = np.array([2, 3], np.float32)
>>> plica.interpret(model, x), plica.compile(model)(x), plica.compile(plica.grad(model))(x)
(array(15., dtype=float32), array(15., dtype=float32), array([4., 6.], dtype=float32))

Kernels run beside the code of processors: arrays are copied to the GPU and back.  Programs of the
target `cuda` call no externs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
from attrs import frozen

from plica.codegen.cuda.toolchain import compiled
from plica.core import digest
from plica.ir.graph.module import Extern, Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.text.script import Scripted, as_module
from plica.ir.type import FuncType, TensorType, TupleType, infer, type_of
from plica.ir.type.size import shape_of, solve
from plica.pipeline.whole import compile_anew
from plica.rewrite.gradient.derive import vjp
from plica.runtime.cuda import driver
from plica.runtime.error import Diagnostic, Place, UnsupportedError

Array: TypeAlias = np.ndarray[Any, Any]
Sizes: TypeAlias = Mapping[str, int]
Grid: TypeAlias = Callable[[Sizes], tuple[int, ...]]

PREFIX: Final = "declared_"
GRADIENT: Final = "__gradient"


@runtime_checkable
class ExternKernel(Protocol):
    """A kernel that fills arrays."""

    def text(self) -> str:
        """The text of the kernel, by which symbols differ."""
        ...

    def check(self) -> None:
        """Refuses a machine on which it does not run."""
        ...

    def launch(self, inputs: Sequence[Array], results: Sequence[Array], sizes: Sizes) -> None:
        """Fills the results; `sizes` are those that the type names, in the order of its dims."""
        ...


@frozen
class TritonKernel:
    """A function of `triton.jit`: of pointers to inputs and results, sizes, and constants."""

    function: Any  # Any: a class of triton, which is not always here
    grid: Grid
    constants: tuple[tuple[str, int | float | bool], ...] = ()
    warps: int = 4

    def text(self) -> str:
        body = inspect.getsource(getattr(self.function, "fn", self.function))
        return f"{body}{self.constants}{self.warps}"

    def check(self) -> None:
        for package in ("triton", "torch"):
            if find_spec(package) is None:
                raise _refused("A kernel of Triton", package, "not installed")
        driver.device()

    def launch(self, inputs: Sequence[Array], results: Sequence[Array], sizes: Sizes) -> None:
        import torch

        there = [torch.from_numpy(np.array(array)).cuda() for array in inputs]
        tensors = [torch.empty(array.shape, dtype=torch.from_numpy(array).dtype, device="cuda")
                for array in results]  # fmt: skip
        run = self.function[self.grid(sizes)]
        run(*there, *tensors, *sizes.values(), **dict(self.constants), num_warps=self.warps)
        for result, tensor in zip(results, tensors, strict=True):
            result[...] = tensor.cpu().numpy()


@frozen
class CudaKernel:
    """A `__global__` function in CUDA C++: of pointers to inputs and results, and `long long`
    sizes."""

    source: str
    name: str
    grid: Grid
    block: tuple[int, int, int]
    shared: int = 0

    def text(self) -> str:
        return f"{self.source}{self.name}{self.block}"

    def check(self) -> None:
        compiled(self.source, driver.device().architecture)

    def launch(self, inputs: Sequence[Array], results: Sequence[Array], sizes: Sizes) -> None:
        device = driver.device()
        module = device.load(compiled(self.source, device.architecture).code)
        stream = device.stream()
        held = [device.reserve(each.nbytes) for each in (*inputs, *results)]
        given = [np.ascontiguousarray(each) for each in inputs]
        for memory, array in zip(held, given, strict=False):
            stream.to_device(memory.address, array.ctypes.data, array.nbytes)
        x, y, z, *_ = (*self.grid(sizes), 1, 1)
        addresses = [*[cuda_memory.address for cuda_memory in held], *sizes.values()]
        function = module.function(self.name, self.shared)
        stream.launch(function, (x, y, z), self.block, self.shared, addresses)
        for memory, array in zip(held[len(given) :], results, strict=True):
            stream.to_host(array.ctypes.data, memory.address, array.nbytes)
        stream.wait()


Kernel: TypeAlias = "ExternKernel | Callable[..., Any]"  # Any: arrays in and out


@frozen(eq=False)
class Declared:
    """The meaning of a symbol, and the kernel that compiled code calls."""

    type: FuncType
    meaning: Module
    kernel: Kernel

    def interpreted(self, *arrays: Array) -> Any:  # Any: an array, or a tuple
        """What the meaning gives."""
        return interpret(self.meaning, *arrays)

    def slopes(self, compiled_code: bool) -> Callable[..., Any]:  # Any: as above
        """The cotangents of the arguments, from the arguments and those of the results."""
        module = vjp(self.meaning)
        if not compiled_code:
            return lambda *given: interpret(module, *given)[1]
        run = compile_anew(module)
        ret = self.type.ret
        count = len(ret.items) if isinstance(ret, TupleType) else 1  # compiled code returns no nest

        def slopes(*given: Array) -> Any:  # Any: as above
            arrays = run(*given)[count:]
            return arrays[0] if len(arrays) == 1 else arrays

        return slopes

    def launched(self, *arrays: Array) -> Any:  # Any: as above
        """What the kernel gives."""
        if not isinstance(self.kernel, ExternKernel):
            return self.kernel(*arrays)
        equations = [
            pair for param, array in zip(self.type.params, arrays, strict=True)
            if isinstance(param, TensorType)
            for pair in zip(param.shape, array.shape, strict=True)
        ]  # fmt: skip
        sizes = solve(equations)
        ret = self.type.ret
        items = ret.items if isinstance(ret, TupleType) else (ret,)
        results = [np.empty(shape_of(item.shape, sizes) or (), item.dtype.numpy)
                   for item in items if isinstance(item, TensorType)]  # fmt: skip
        named = {str(dim.name): sizes[dim] for dim in self.type.dims}
        self.kernel.launch(arrays, results, named)
        return tuple(results) if isinstance(ret, TupleType) else results[0]


_DECLARED: Final[dict[str, Declared]] = {}  # the externs of this process, by symbol


def declared_extern(
    name: str, meaning: Scripted | Module, kernel: Kernel, gradient: Extern | None = None
) -> Extern:
    """The extern that computes a meaning by a kernel; the same declaration is the same extern."""
    module = infer(as_module(meaning))
    assert module.main is not None
    of = type_of(module.main)
    assert isinstance(of, FuncType)
    if isinstance(kernel, ExternKernel):
        text = kernel.text()
    else:
        text = getattr(kernel, "__qualname__", "")
    key = sha256(f"{digest(module)}{text}".encode()).hexdigest()[:16]
    symbol = f"{PREFIX}{name}_{key}"
    _DECLARED[symbol] = Declared(of, module, kernel)
    return Extern(symbol, of, symbol + GRADIENT if gradient is None else gradient.symbol)


def implementation(symbol: str, compiled_code: bool) -> Callable[..., Any] | None:  # Any: as above
    """The function of arrays that a symbol means, None where nothing declares it here."""
    known = _DECLARED.get(symbol.removesuffix(GRADIENT))
    if known is None:
        return None
    if symbol.endswith(GRADIENT):
        return known.slopes(compiled_code)
    if not compiled_code:
        return known.interpreted
    if isinstance(known.kernel, ExternKernel):
        known.kernel.check()
    return known.launched


def _refused(what: str, expected: str, found: str) -> UnsupportedError:
    message, hint = f"{what} does not run on this machine.", f"pip install {expected}"
    return UnsupportedError(Diagnostic("unsupported", message, Place(), expected, found, hint))
