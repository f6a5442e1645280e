"""The backend of Apple's GPUs: Metal Shading Language, an item of work for each thread.

>>> parse("metal").describe()
'metal'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from plica.codegen.cuda.code import KernelCode
from plica.codegen.device_backend import DeviceLanguage, device_backend
from plica.codegen.emit import clike
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.statement import Row, Step
from plica.codegen.metal.dialect import HEAD, METAL, formulas, helpers, text_in_metal
from plica.codegen.opencl.item_text import ItemTensor, ItemWords, item_kernel
from plica.codegen.target import Target, named_target
from plica.ir.loop import Buffer, For, Kernel, statements
from plica.ir.type import known
from plica.runtime.artefact import METAL_TRIPLE
from plica.runtime.emulator.executable import MetalProgram
from plica.runtime.emulator.gpu import missing

UNROLLED: Final = 16  # turns that are written out, at most


def kernel_code(kernel: Kernel, name: str, apart: bool, fused: bool) -> KernelCode:
    """The functions of a kernel; `apart` says that no two of its buffers overlap."""
    return item_kernel(kernel, name, apart, WORDS)


def joined(of: Sequence[KernelCode]) -> str:
    """The text of several kernels, with what they call once."""
    used = frozenset[str]().union(*[code.helpers for code in of])
    body = "\n".join([helpers(used), *dict.fromkeys(code.functions for code in of)])
    return f"{HEAD}\n{formulas(body)}{body}"


def _function(name: str, tensors: Sequence[ItemTensor], apart: bool, items: int, body: str) -> str:
    args = []
    for at, tensor in enumerate(tensors):
        const = "const " if tensor.is_constant else ""
        kind = f"device {const}{METAL.memory(tensor.buffer.dtype)}*"
        args.append(f"{kind} {tensor.word} [[buffer({at})]]")
    count = len(tensors)
    args += [
        f"device int* failed [[buffer({count})]]",
        f"constant int& number [[buffer({count + 1})]]",
        "uint id [[thread_position_in_grid]]",
    ]
    return (
        f"kernel void {name}({', '.join(args)}) {{\n  if (id >= {items}u) return;\n"
        f"{text_in_metal(body)}\n}}\n"
    )


def _loops(values: Expressions, params: Sequence[Buffer]) -> Row:
    return partial(_loop, values)


def _loop(values: Expressions, of: For) -> Sequence[Step]:
    """A loop; the innermost over a few lanes or registers are unrolled."""
    inner = not any(isinstance(statement, For) for statement in statements(of.body))
    few = inner and (known(of.extent) or UNROLLED + 1) <= UNROLLED
    return clike.loop(values, of, unroll=few and of.kind in ("unrolled", "vectorized"))


WORDS: Final = ItemWords(METAL, "id", ("failed", "number", "id"), _loops, _function)


DESCRIBED: Final = Target("cpu", "generic", "generic", vector=128, registers=8, cores=64)
"""Many items with few registers each: an item is a thread."""

parse: Final = named_target("metal")


LANGUAGE: Final = DeviceLanguage(
    "metal", "Metal Shading Language", "metal", METAL_TRIPLE, kernel_code, joined,
    lambda text: (), MetalProgram, lambda target: DESCRIBED,
)  # fmt: skip

BACKEND: Final = device_backend(
    LANGUAGE, "Apple's GPUs, as Metal Shading Language to be taken there.", parse, METAL, missing
)
