"""Kernels in OpenCL C: a function for each launch, over tensors that lie somewhere in memory.

    kernel void k(global uchar *b0, ulong a0, …, global int *failed, int number)

Each tensor is a memory object and where it begins in it; `failed[number]` says that an index was
outside of its tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plica.codegen.device_program import DeviceKernel
from plica.codegen.emit import clike
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.item_text import ItemTensor, ItemWords, item_kernel
from plica.codegen.emit.lane_store import ROLLED, LaneStore, has_lanes, in_lanes
from plica.codegen.emit.statement import Row, Step
from plica.codegen.opencl.dialect import DOUBLES, HEAD, OPENCL, helpers, text_in_opencl
from plica.ir.loop import Buffer, For, Kernel, statements


def kernel_code(kernel: Kernel, name: str, apart: bool, fused: bool) -> DeviceKernel:
    """The functions of a kernel; `apart` says that no two of its buffers overlap."""
    own = (f"{name}_item", "failed", "number")
    words = ItemWords(OPENCL, "get_global_id(0)", own, partial(_loops, fused), _function)
    return item_kernel(kernel, name, apart, words)


def joined(of: Sequence[DeviceKernel]) -> str:
    """The text of several kernels, with what they call once."""
    used = frozenset[str]().union(*[each.helpers for each in of])
    body = "\n".join([helpers(used), *dict.fromkeys(each.text for each in of)])
    return f"{DOUBLES if 'double' in body else ''}{HEAD}\n{body}"


def _function(name: str, tensors: Sequence[ItemTensor], apart: bool, items: int, body: str) -> str:
    """What one item does, and above it where tensors lie."""
    inner, outer, given = list[str](), list[str](), list[str]()
    for at, each in enumerate(tensors):
        const = "const " if each.is_constant else ""
        kind = f"global {const}{OPENCL.memory(each.buffer.dtype)} *"
        inner.append(f"{kind}{'restrict ' if apart else ''}{each.word}")
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
    inside = [each for each in statements(of.body) if isinstance(each, For)]
    small = all(each.kind != "vectorized" or has_lanes(each) for each in inside)
    return clike.loop(values, of, unroll=of.kind == "unrolled" and small)
