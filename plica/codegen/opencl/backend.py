"""The backend of OpenCL: one text in OpenCL C, which the driver of a device compiles.

>>> parse("opencl:256").vector, str(parse("opencl:256"))
(256, 'opencl:256')
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

from attrs import frozen

from plica.codegen.cuda.code import KernelCode
from plica.codegen.device_backend import DeviceLanguage, device_backend
from plica.codegen.emit import clike
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.lane_store import ROLLED, LaneStore, has_lanes, in_lanes
from plica.codegen.emit.statement import Row, Step
from plica.codegen.opencl.dialect import DOUBLES, HEAD, OPENCL, helpers, text_in_opencl
from plica.codegen.opencl.item_text import ItemTensor, ItemWords, item_kernel
from plica.codegen.target import SpelledTarget, Target, unknown_target
from plica.ir.loop import Buffer, For, Kernel, statements
from plica.runtime.artefact import OPENCL_TRIPLE
from plica.runtime.opencl.device import missing, vector_bits_here
from plica.runtime.opencl.executable import OpenclProgram

WIDTHS: Final = (128, 256, 512)
"""Bits of a vector; other widths than those of a device work, and are slower."""

REGISTERS: Final = {128: 16, 256: 16, 512: 32}  # how many vectors processors with such ones hold
ITEMS: Final = 8
"""Work items that schedules share the work among, at least: a device says how many run at once only
when it is there, and code is the same wherever it is made."""

SPELLINGS: Final = ("opencl", *[f"opencl:{width}" for width in WIDTHS])


@frozen
class OpenclTarget(SpelledTarget):
    """A device of OpenCL whose vectors have a given number of bits."""

    vector: int = 128

    backend: ClassVar[str] = "opencl"

    @property
    def machine(self) -> Target:
        """What schedules ask for."""
        return Target(
            "cpu", "generic", "generic", vector=self.vector, registers=REGISTERS[self.vector],
            cores=ITEMS,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"opencl:{self.vector}"


def parse(text: str) -> OpenclTarget:
    """The target that a text means; without a width, that of the device that is here."""
    name, _, width = text.strip().partition(":")
    if name != "opencl" or text.strip() not in SPELLINGS:
        raise unknown_target(text, SPELLINGS)
    if width:
        return OpenclTarget(int(width))
    here = vector_bits_here() or WIDTHS[0]
    return OpenclTarget(max(WIDTHS[0], min(WIDTHS[-1], here)))


def kernel_code(kernel: Kernel, name: str, apart: bool, fused: bool) -> KernelCode:
    """The functions of a kernel; `apart` says that no two of its buffers overlap."""
    own = (f"{name}_item", "failed", "number")
    words = ItemWords(OPENCL, "get_global_id(0)", own, partial(_loops, fused), _function)
    return item_kernel(kernel, name, apart, words)


def joined(of: Sequence[KernelCode]) -> str:
    """The text of several kernels, with what they call once."""
    used = frozenset[str]().union(*[code.helpers for code in of])
    body = "\n".join([helpers(used), *dict.fromkeys(code.functions for code in of)])
    return f"{DOUBLES if 'double' in body else ''}{HEAD}\n{body}"


def _function(name: str, tensors: Sequence[ItemTensor], apart: bool, items: int, body: str) -> str:
    """What one item does, and above it where tensors lie."""
    inner, outer, given = list[str](), list[str](), list[str]()
    for at, tensor in enumerate(tensors):
        const = "const " if tensor.is_constant else ""
        kind = f"global {const}{OPENCL.memory(tensor.buffer.dtype)} *"
        inner.append(f"{kind}{'restrict ' if apart else ''}{tensor.word}")
        outer.append(f"global uchar *b{at}, const ulong a{at}")
        given.append(f"({kind})(b{at} + a{at})")
    rest = ["global int *failed", "const int number"]
    return (
        f"static inline void {name}_item({', '.join([*inner, *rest])}) {{\n"
        f"{text_in_opencl(body)}\n}}\n"
        f"kernel void {name}({', '.join([*outer, *rest])}) {{\n"
        f"  {name}_item({', '.join([*given, 'failed', 'number'])});\n}}\n"
    )


def _loops(fused: bool, values: Expressions, params: Sequence[Buffer]) -> Row:
    def space(of: Buffer) -> str:
        return "global" if of in params else "private"

    return partial(_loop, values, LaneStore(values, fused, space))


def _loop(values: Expressions, lanes: LaneStore, of: For) -> Sequence[Step]:
    """A loop: over lanes one statement where that can be, and else unrolled where that pays."""
    if of.kind == "vectorized":
        if lanes.write(of):
            return ()
        if parts := in_lanes(of):
            return parts
        values.lines.do(ROLLED)
    inside = [statement for statement in statements(of.body) if isinstance(statement, For)]
    small = all(loop.kind != "vectorized" or has_lanes(loop) for loop in inside)
    return clike.loop(values, of, unroll=of.kind == "unrolled" and small)


LANGUAGE: Final = DeviceLanguage(
    "opencl", "OpenCL C", "opencl", OPENCL_TRIPLE, kernel_code, joined,
    lambda text: ("+fp64",) if "double" in text else (), OpenclProgram,
    lambda target: target.machine, lambda target: str(target.vector),
)  # fmt: skip

BACKEND: Final = device_backend(
    LANGUAGE,
    "Devices of OpenCL, by OpenCL C: opencl, or for vectors of some bits, opencl:256.",
    parse,
    OPENCL,
    missing,
    SPELLINGS,
)
