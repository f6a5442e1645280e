"""Kernels in WGSL: a shader for each launch, over one memory of words in which all tensors lie.

    memory    the words of all tensors; of atomics where some store parts of words
    params    where each tensor begins in it, then where a failure is noted, and a 0

>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.statement import For, Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.type.dtype import f32
>>> x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
>>> double = Kernel((), (x, y), 1, For(i, index(3), "serial", Store(y, (i,), x[i] + x[i])))
>>> "put_f32(y, u32(i), (t + t));" in kernel_code(double, "double", True, False).functions
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.codegen.cuda.code import KernelCode, KernelLaunch
from plica.codegen.emit import clike
from plica.codegen.emit.clike import count_of
from plica.codegen.emit.expression import Expressions, linear
from plica.codegen.emit.identifier import Identifiers
from plica.codegen.emit.lines import Lines
from plica.codegen.emit.statement import write
from plica.codegen.emit.work_item import ItemLaunch, launches_of
from plica.codegen.webgpu.dialect import LONG, LONG_HELPERS, WGSL, helpers
from plica.core import Name, post_order
from plica.ir.loop.scalar import Buffer, Cast, Scalar, dtype_of
from plica.ir.loop.statement import Alloc, Kernel, Store, statements
from plica.ir.type.dtype import DType, bool_, f64, i64, u64
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.webgpu.device import ACROSS, GROUP, SHADER_MARK

_HEAD: Final = """\
@group(0) @binding(0) var<storage, read_write> memory: array<{word}>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
var<private> nothing: u32 = 0u;
fn word(at: u32) -> u32 {{ return {load}; }}
fn put(at: u32, value: u32) {{ {store}; }}
fn fail() {{ put(params[{count}], 1u); }}
"""

_PLAIN: Final = {"word": "u32", "load": "memory[at]", "store": "memory[at] = value"}
_ATOMIC: Final = {
    "word": "atomic<u32>", "load": "atomicLoad(&memory[at])",
    "store": "atomicStore(&memory[at], value)",
}  # fmt: skip


def kernel_code(kernel: Kernel, name: str, apart: bool, fused: bool) -> KernelCode:
    """The shaders of a kernel; whether its buffers are apart changes nothing, as all is one, and
    drivers fuse products as they like."""
    launches, scratch = launches_of(kernel)
    params = (*kernel.params, *scratch)
    texts, functions = list[str](), list[KernelLaunch]()
    for number, launch in enumerate(launches):
        word = name if len(launches) == 1 else f"{name}_{number}"
        texts.append(f"{SHADER_MARK}{word}\n{_shader(launch, word, params)}")
        functions.append(KernelLaunch(word, (launch.items, 1, 1), (1, 1, 1)))
    sizes = tuple([count_of(buffer) * buffer.dtype.bytes for buffer in scratch])
    return KernelCode("\n".join(texts), tuple(functions), sizes)


def joined(of: Sequence[KernelCode]) -> str:
    """All shaders, one behind another."""
    return "\n".join(dict.fromkeys(code.functions for code in of))


class WgslExpressions(Expressions):
    """Values whose tensors lie in words of one memory; the arrays of an item are arrays."""

    placed: frozenset[Buffer] = frozenset()

    def read(self, buffer: Buffer, at: str) -> str:
        """The value of an element."""
        if buffer not in self.placed:
            return super().read(buffer, at)
        self._needs("get", "unpack", buffer.dtype)
        return f"get_{buffer.dtype}({self.buffers[buffer]}, {self._index(at)})"

    def store(self, buffer: Buffer, indices: Sequence[Scalar], value: str) -> None:
        """Write an element."""
        if buffer not in self.placed:
            super().store(buffer, indices, value)
            return
        at = self.of(linear(buffer, indices))
        self._needs("put", "pack", buffer.dtype)
        self.lines.do(f"put_{buffer.dtype}({self.buffers[buffer]}, {self._index(at)}, {value});")

    def _index(self, at: str) -> str:
        """An index as the language takes it: no constant of 64 bits is cast before it runs."""
        return f"p_at({at})" if self.dialect is LONG else f"u32({at})"

    def _needs(self, word: str, way: str, of: DType) -> None:
        self.helpers.add(f"{word}_{of}")
        if of.is_coded:
            self.helpers.add(f"p_{way}_{of}")


def _shader(launch: ItemLaunch, name: str, params: Sequence[Buffer]) -> str:
    dtypes = _dtypes(launch, params)
    _check(dtypes)
    dialect = LONG if dtypes & {i64, u64} and _is_long(launch, params) else WGSL
    values = WgslExpressions(dialect, Lines(1), Identifiers(dialect.reserved))
    values.placed = frozenset(params)
    values.names.of(Name(name), name)
    head: list[str] = []
    for at, buffer in enumerate(params):
        word = values.buffers[buffer] = values.names.of(buffer.name, buffer)
        head.append(f"  let {word} = params[{at}];")
    if launch.var is not None:
        values.known.bound(launch.var, (0, launch.items - 1))
        word = values.vars[launch.var] = values.names.of(launch.var.name, launch.var)
        kind = dialect.register(dtype_of(launch.var))
        item = f"id.x + id.y * {ACROSS * GROUP}u"
        head.append(f"  if ({item} >= {launch.items}u) {{ return; }}")
        head.append(f"  let {word} = {kind}({item});")
    write([launch.body], clike.rows(values))
    accessors = {helper for helper in values.helpers if helper.startswith(("get_", "put_"))}
    narrow = any(DType(accessor.partition("_")[2]).bytes < 4 for accessor in accessors
                 if accessor.startswith("put_"))  # fmt: skip
    words = _ATOMIC if narrow else _PLAIN
    own = LONG_HELPERS if dialect is LONG else frozenset[str]()
    size = GROUP if launch.var is not None else 1
    return "\n".join([
        _HEAD.format(count=len(params), **words) + "".join(map(_accessor, sorted(accessors))),
        helpers((values.helpers - accessors) | own, dict(dialect.registers)),
        f"@compute @workgroup_size({size})",
        f"fn {name}(@builtin(global_invocation_id) id: vec3<u32>) {{",
        f"  nothing = params[{len(params) + 1}];", *head, values.lines.text(), "}", "",
    ])  # fmt: skip


def _accessor(name: str) -> str:
    """The function that reads or writes an element of a dtype."""
    way, _, word = name.partition("_")
    of = DType(word)
    kind = LONG.register(of)
    if way == "get":
        head = f"fn {name}(base: u32, at: u32) -> {kind} {{"
        if of.bits == 64:
            both = "u64(word(base + 2u * at)) | (u64(word(base + 2u * at + 1u)) << 32u)"
            return f"{head} return {kind}({both}); }}\n"
        if of.bits == 32:
            return f"{head} return bitcast<{kind}>(word(base + at)); }}\n"
        bits, many = _narrow(of)
        part = f"(at % {many}u) * {bits}u, {bits}u"
        whole = f"word(base + at / {many}u)"
        if of.is_coded:
            return f"{head} return p_unpack_{of}(extractBits({whole}, {part})); }}\n"
        if of is bool_:
            return f"{head} return extractBits({whole}, {part}) != 0u; }}\n"
        return f"{head} return extractBits(bitcast<{kind}>({whole}), {part}); }}\n"
    head = f"fn {name}(base: u32, at: u32, value: {kind}) {{"
    if of.bits == 64:
        low = f"put(base + 2u * at, u32(value & {kind}(0xffffffff{'li' if of is i64 else 'lu'})));"
        high = f"put(base + 2u * at + 1u, u32((value >> 32u) & {kind}(0xffffffff"
        return f"{head} {low} {high}{'li' if of is i64 else 'lu'}))); }}\n"
    if of.bits == 32:
        return f"{head} put(base + at, bitcast<u32>(value)); }}\n"
    bits, many = _narrow(of)
    mask = (1 << bits) - 1
    code = "u32(value)" if of is bool_ else "bitcast<u32>(value)"
    code = f"p_pack_{of}(value)" if of.is_coded else code
    return f"""\
{head}
  let shift = (at % {many}u) * {bits}u;
  atomicAnd(&memory[base + at / {many}u], ~({mask}u << shift));
  atomicOr(&memory[base + at / {many}u], ({code} & {mask}u) << shift);
}}
"""


def _narrow(of: DType) -> tuple[int, int]:
    bits = 8 * of.bytes
    return bits, 32 // bits


def _terms(launch: ItemLaunch) -> list[Scalar]:
    scalars: list[Scalar] = []
    for stmt in statements(launch.body):
        for part in stmt._children:
            if isinstance(part, Scalar):
                scalars += [each for each in post_order(part) if isinstance(each, Scalar)]
    return scalars


def _buffers(launch: ItemLaunch, params: Sequence[Buffer]) -> list[Buffer]:
    inside = [e.buffer for e in statements(launch.body) if isinstance(e, Alloc | Store)]
    return [*params, *inside]


def _dtypes(launch: ItemLaunch, params: Sequence[Buffer]) -> set[DType]:
    """Every dtype that a launch computes with or stores."""
    return {each.dtype for each in _buffers(launch, params)} | set(map(dtype_of, _terms(launch)))


def _is_long(launch: ItemLaunch, params: Sequence[Buffer]) -> bool:
    """Whether integers of 64 bits are more than indices."""
    wide = (i64, u64)
    return any(buffer.dtype in wide for buffer in _buffers(launch, params)) or any(
        isinstance(term, Cast) and term.dtype in wide for term in _terms(launch)
    )


def _check(found: set[DType]) -> None:
    """Refuse what the language has no numbers for."""
    if missing := sorted(str(dtype) for dtype in found if dtype is f64):
        message = f"WGSL has no {', '.join(missing)}."
        hint = "Compile the model for another target, or cast to f32 before."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "f32", missing[0], hint))
