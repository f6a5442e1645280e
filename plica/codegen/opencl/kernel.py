"""Kernels in OpenCL C: a function for each launch, over tensors that lie somewhere in memory.

    kernel void k(global uchar *b0, ulong a0, …, global int *failed, int number)

Each tensor is a memory object and where it begins in it; `failed[number]` says that an index was
outside of its tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plica.codegen.device_program import DeviceKernel, ItemFunction
from plica.codegen.emit import clike
from plica.codegen.emit.clike import count_of
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.identifier import Identifiers
from plica.codegen.emit.lane_store import ROLLED, LaneStore, has_lanes
from plica.codegen.emit.lines import Lines
from plica.codegen.emit.statement import Rows, Step, write
from plica.codegen.emit.work_item import ItemLaunch, launches_of
from plica.codegen.opencl.dialect import DOUBLES, HEAD, OPENCL, helpers, text_in_opencl
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, dtype_of
from plica.ir.loop.statement import For, Kernel, statements


def kernel_code(kernel: Kernel, name: str, apart: bool, fused: bool) -> DeviceKernel:
    """The functions of a kernel; `apart` says that no two of its buffers overlap."""
    launches, scratch = launches_of(kernel)
    params = (*kernel.params, *scratch)
    texts, functions, used = list[str](), list[ItemFunction](), set[str]()
    for number, launch in enumerate(launches):
        word = name if len(launches) == 1 else f"{name}_{number}"
        values = Expressions(OPENCL, Lines(1), Identifiers(OPENCL.reserved))
        texts.append(_function(launch, word, params, kernel.inputs if apart else -1, values, fused))
        functions.append(ItemFunction(word, launch.items))
        used |= values.helpers
    sizes = tuple([count_of(each) * each.dtype.bytes for each in scratch])
    return DeviceKernel("\n".join(texts), tuple(functions), sizes, frozenset(used))


def joined(of: Sequence[DeviceKernel]) -> str:
    """The text of several kernels, with what they call once."""
    used = frozenset[str]().union(*[each.helpers for each in of])
    body = "\n".join([helpers(used), *dict.fromkeys(each.text for each in of)])
    return f"{DOUBLES if 'double' in body else ''}{HEAD}\n{body}"


def _function(  # noqa: PLR0917  # a launch, and how its function is written
    launch: ItemLaunch,
    name: str,
    params: Sequence[Buffer],
    constant: int,
    values: Expressions,
    fused: bool,
) -> str:
    """The function of a launch: what one item does, and above it where tensors lie.

    The first `constant` parameters are only read, and none overlap; where that is -1, some may.
    """
    names = values.names
    for word in (name, f"{name}_item", "failed", "number"):
        names.of(Name(word), word)
    inner, outer, given = list[str](), list[str](), list[str]()
    for at, buffer in enumerate(params):
        word = values.buffers[buffer] = names.of(buffer.name, buffer)
        const = "const " if at < constant else ""
        kind = f"global {const}{OPENCL.memory(buffer.dtype)} *"
        inner.append(f"{kind}{'' if constant < 0 else 'restrict '}{word}")
        outer.append(f"global uchar *b{at}, const ulong a{at}")
        given.append(f"({kind})(b{at} + a{at})")

    def space(of: Buffer) -> str:
        return "global" if of in params else "private"

    rest = ["global int *failed", "const int number"]
    rows: Rows = {
        **clike.rows(values),
        For: partial(_loop, values, LaneStore(values, fused, space)),
    }
    if launch.var is not None:
        values.known.bound(launch.var, (0, launch.items - 1))
        values.vars[launch.var] = names.of(launch.var.name, launch.var)
        kind = OPENCL.register(dtype_of(launch.var))
        values.lines.do(f"const {kind} {values.vars[launch.var]} = get_global_id(0);")
    write([launch.body], rows)
    body = text_in_opencl(values.lines.text())
    return (
        f"static inline void {name}_item({', '.join([*inner, *rest])}) {{\n{body}\n}}\n"
        f"kernel void {name}({', '.join([*outer, *rest])}) {{\n"
        f"  {name}_item({', '.join([*given, 'failed', 'number'])});\n}}\n"
    )


def _loop(values: Expressions, lanes: LaneStore, of: For) -> Sequence[Step]:
    """A loop: over lanes one statement where that can be, and else unrolled where that pays."""
    if of.kind == "vectorized":
        if lanes.write(of):
            return ()
        values.lines.do(ROLLED)
    inside = [each for each in statements(of.body) if isinstance(each, For)]
    small = all(each.kind != "vectorized" or has_lanes(each) for each in inside)
    return clike.loop(values, of, unroll=of.kind == "unrolled" and small)
