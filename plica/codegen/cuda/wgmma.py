"""Products of four warps together, in CUDA C++ (wgmma of sm_90a).

The products are asynchronous; until they are waited for, sums must not be accessed.

>>> print(text_of("p_products_done"))
template <int N>
__device__ __forceinline__ void p_products_done() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from plica.analysis.statement import refused
from plica.codegen.cuda.address import valued
from plica.codegen.cuda.tma import ROW, SWIZZLED
from plica.codegen.emit.expression import Expressions
from plica.core import free_vars
from plica.ir.loop.intrinsic import find_intrinsic
from plica.ir.loop.memory_scope import WARP, scope
from plica.ir.loop.scalar import Buffer, Scalar, ScalarVar, index
from plica.ir.loop.statement import Invoke, Region, Stmt, statements
from plica.ir.type import known

GROUP: Final = 4  # warps that multiply together
WIDTHS: Final = (32, 64, 96, 128, 160, 192, 224, 256)  # columns of an instruction
WORDS: Final = ("group_mma", "group_warp_mma")
"""The hints of such products: with two descriptors, or with one register operand."""

_HEAD: Final = "__device__ __forceinline__"


def _multiply(kind: str, width: int, *, held: bool = False) -> str:
    """The instruction: of every eight columns a thread holds a pair in each of two rows.

    The left operand is a descriptor, or `held` in registers.  Of bytes 32 terms are neighbours on
    both sides, and sums are of i32.
    """
    left, _, right = kind.partition("_")
    if right:
        sums, letter, shape = "int", "r", f"k32.s32.{SIGNS[left]}.{SIGNS[right]}"
    else:
        sums, letter, shape = "float", "f", f"k16.f32.{kind}.{kind}"
    half, after = width // 4, width // 2
    held_sums = [f'"+{letter}"(c[{n // 4 * 2 + n % 2 + n // 2 % 2 * half}])' for n in range(after)]
    lines = ",\n        ".join([", ".join(held_sums[at : at + 4]) for at in range(0, after, 4)])
    words = [f"%{n}" for n in range(after)]
    places = ', "\n      "'.join([", ".join(words[at : at + 16]) for at in range(0, after, 16)])
    if held:
        head, name, a = "", f"held_{kind}", "const unsigned int* a"
        fragments = ", ".join([f"%{after + n}" for n in range(4)])
        given = f"{{{fragments}}}, %{after + 4}, p, 1, 1, 1;"
        inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)'
    else:
        head, name, a = "template <int AT, int BT>\n", kind, "unsigned long long a"
        given = f"%{after}, %{after + 1}, p" + (
            ";" if right else f", 1, 1, %{after + 2}, %{after + 3};"
        )
        inputs = '"l"(a), "l"(b)' if right else '"l"(a), "l"(b), "n"(AT), "n"(BT)'
    start = f"{_HEAD} void p_multiply_{name}_{width}("
    between = f",\n{' ' * (44 if held else 47)}" if held or right else ", "
    return f"""\
{head}{start}{sums}* c, {a}{between}unsigned long long b) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{width}{shape} {{"
      "{places}}}, {given}\\n}}"
      : {lines}
      : {inputs});
}}
"""


def _products(kind: str, width: int, types: tuple[str, str, str]) -> str:
    """All instructions of an invocation: four steps of 32 bytes of terms, 64 rows each.

    `types` are those of sums and of both sides in C++.
    """
    sums, left, right = types
    return f"""\
template <int HIGH, int AT, int BT, int AS, int BS>
{_HEAD} void p_products_{kind}_{width}({sums}* c, const {left}* a, const {right}* b) {{
  const unsigned long long left = p_described(a), right = p_described(b);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
      p_multiply_{kind}_{width}<AT, BT>(c + i * {width // 2}, left + (i * 512 + s * AS),
                                        right + s * BS);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
"""


def _held_products(kind: str, width: int) -> str:
    """The instructions of an invocation whose left side, 64 terms, is in registers as f32."""
    return f"""\
template <int HIGH, int AI, int AHALF>
{_HEAD} void p_products_held_{kind}_{width}(float* c, const float* a, const unsigned short* b) {{
  const unsigned long long right = p_described(b);
  unsigned int fa[HIGH][4][4];
#pragma unroll
  for (int i = 0; i < HIGH; ++i)
#pragma unroll
    for (int n = 0; n < 16; ++n) {{
      const float* at = a + (i * AI + n % 2 * AHALF + n / 2 * 2);
      fa[i][n / 4][n % 4] = p_pack_pair_{kind}(at[0], at[1]);
    }}
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
      p_multiply_held_{kind}_{width}(c + i * {width // 2}, fa[i][s], right + s * 128);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
"""


KINDS: Final = ("f16", "bf16")

SIGNS: Final = {"i8": "s8", "u8": "u8"}  # bytes, and what instructions call them
CHARS: Final = {"i8": "signed char", "u8": "unsigned char"}

PRODUCTS: Final = {
    **dict.fromkeys(KINDS, ("float", "unsigned short", "unsigned short")),
    **{f"{a}_{b}": ("int", CHARS[a], CHARS[b]) for a in SIGNS for b in SIGNS},
}
"""The names of products, with C++ types of sums and operands."""

# Rows of 128 bytes, eight of them 1024 bytes from the next eight; where rows or columns are
# neighbours, 64 of them 8192 bytes from the next 64.
TEXTS: Final[dict[str, str]] = {
    "p_described": f"""\
{_HEAD} unsigned long long p_described(const void* at) {{
  unsigned long long place = (unsigned int)__cvta_generic_to_shared(at);
  return (place & 0x3ffff) >> 4 | 512ull << 16 | 64ull << 32 | 1ull << 62;
}}
""",
    "p_products_done": f"""\
template <int N>
{_HEAD} void p_products_done() {{
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}}
""",
    # The sums are valid only now: no read may be moved before this.
    "p_products_kept": f"""\
template <int N>
{_HEAD} void p_products_kept(float* c) {{
#pragma unroll
  for (int n = 0; n < N; ++n) asm volatile("" : "+f"(c[n]) :: "memory");
}}
""",
    "p_products_kept_i32": f"""\
template <int N>
{_HEAD} void p_products_kept_i32(int* c) {{
#pragma unroll
  for (int n = 0; n < N; ++n) asm volatile("" : "+r"(c[n]) :: "memory");
}}
""",
    **{
        f"p_multiply_{kind}_{width}": _multiply(kind, width)
        for kind in PRODUCTS
        for width in WIDTHS
    },
    **{
        f"p_products_{kind}_{width}": _products(kind, width, types)
        for kind, types in PRODUCTS.items()
        for width in WIDTHS
    },
    **{
        f"p_multiply_held_{kind}_{width}": _multiply(kind, width, held=True)
        for kind in KINDS
        for width in WIDTHS
    },
    **{
        f"p_products_held_{kind}_{width}": _held_products(kind, width)
        for kind in KINDS
        for width in WIDTHS
    },
}


def text_of(name: str) -> str:
    """A function of the text."""
    return TEXTS[name]


def is_product(stmt: Stmt) -> bool:
    """Whether a statement is an invocation that four warps do together."""
    intrinsic = find_intrinsic(stmt.name) if isinstance(stmt, Invoke) else None
    return intrinsic is not None and dict(intrinsic.hints).get("cuda") in WORDS


def has_products(stmt: Stmt) -> bool:
    """Whether a statement contains such an invocation."""
    return any(is_product(statement) for statement in statements(stmt))


def sums_of(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that hold sums, each once."""
    found: dict[Buffer, None] = {}
    for statement in statements(stmt):
        if is_product(statement):
            assert isinstance(statement, Invoke)
            last = statement.operands[2]
            assert isinstance(last, Region)
            found[last.buffer] = None
    yield from found


def products(
    call: Invoke, values: Expressions, lane: ScalarVar | None, warp: tuple[ScalarVar, int] | None
) -> str:
    """The call that implements an invocation; `warp` is the warp's index, and the number of
    warps."""
    intrinsic = find_intrinsic(call.name)
    assert intrinsic is not None
    hints = dict(intrinsic.hints)
    a, b, c = [operand for operand in call.operands if isinstance(operand, Region)]
    if lane is None or warp is None or warp[1] % GROUP:
        raise _misplaced(call, "no loops over the threads of four warps around it")
    high, wide = hints["high"], hints["wide"]
    assert isinstance(high, int)
    assert isinstance(wide, int)
    if hints["cuda"] == "group_warp_mma":
        return _held(call, values, lane, warp, (high, wide))
    left, right = bool(hints["left"]), bool(hints["right"])
    # Elements between neighbours, along each axis: as the descriptions say.
    row = ROW // a.buffer.dtype.bytes
    along = {"s": row // 4, "h": row // 8, "e": 1}
    rows = {"i": 64 * row, "half": 8 * row, **along} if left else {
        "i": 4096, "s": 1024, "h": 512, "e": 64, "half": 8}  # fmt: skip
    columns = {"j": 64 * row, "o": 8 * row, "pair": row, **along} if right else {
        "j": 4096, "s": 1024, "h": 512, "e": 64, "o": 8, "pair": 1}  # fmt: skip
    for side, steps in ((a, rows), (b, columns)):
        if side.buffer.scope != SWIZZLED or not _lies(side, [*steps.values()]):
            raise _misplaced(call, f"{side.buffer.name} that is not swizzled rows of 128 bytes")
    apart = row if left else 1
    at_a = _base(call, a, warp, {
        apart: (lane, WARP, lambda n: n // 4),
        16 * apart: (*warp, lambda n: n % GROUP),
    })  # fmt: skip
    at_b = _base(call, b, warp, {2 * row if right else 2: (lane, WARP, lambda n: n % 4)})
    whole = [known(extent) for extent in c.extents] == [known(dim) for dim in c.buffer.shape]
    if not whole or scope(c.buffer.scope).reach != "thread":
        raise _misplaced(call, f"a part of {c.buffer.name}, or one that is not a thread's own")
    if 8 * wide not in WIDTHS:
        raise _misplaced(call, f"{8 * wide} columns, where there are {WIDTHS}")
    # A step of 16 terms: 32 bytes where terms are neighbours, else 16 rows of 128.
    numbers = (high, int(not left), int(not right), 2 if left else 128, 2 if right else 128)
    kind = a.buffer.dtype.name
    if kind in SIGNS:
        kind = f"{kind}_{b.buffer.dtype.name}"
    if kind not in KINDS and not (left and right):
        raise _misplaced(call, "bytes whose neighbours are not terms")
    function = values.help(f"p_products_{kind}_{8 * wide}")
    sides = [f"&{values.place(region.buffer, at)}" for region, at in ((a, at_a), (b, at_b))]
    which = ", ".join(map(str, numbers))
    return f"{function}<{which}>({values.buffers[c.buffer]}, {', '.join(sides)});"


def _held(
    call: Invoke,
    values: Expressions,
    lane: ScalarVar,
    warp: tuple[ScalarVar, int],
    squares: tuple[int, int],
) -> str:
    """The call for products with a left operand in registers."""
    a, b, c = [operand for operand in call.operands if isinstance(operand, Region)]
    if b.buffer.scope != SWIZZLED or not _lies(b, [4096, 1024, 512, 64, 8, 1]):
        raise _misplaced(call, f"{b.buffer.name} that is not swizzled rows of 128 bytes")
    at_b = _base(call, b, warp, {2: (lane, WARP, lambda n: n % 4)})
    high, wide = squares
    if 8 * wide not in WIDTHS or a.buffer is c.buffer:
        raise _misplaced(call, f"{8 * wide} columns, where there are {WIDTHS}")
    across = known(a.buffer.shape[-2]) or 0
    function = values.help(f"p_products_held_{b.buffer.dtype.name}_{8 * wide}")
    which = ", ".join(map(str, (high, 4 * across, 2 * across)))
    sides = f"&{values.place(a.buffer, a.starts)}, &{values.place(b.buffer, at_b)}"
    return f"{function}<{which}>({values.buffers[c.buffer]}, {sides});"


def _misplaced(call: Invoke, found: str) -> Exception:
    message = f"The intrinsic {call.name!r} cannot be done by four warps here."
    expected = "rows and columns of each thread as its number in the warp, and the warp's, say"
    return refused(message, call.name, expected, found)


def _lies(of: Region, steps: list[int]) -> bool:
    """Whether elements of a region are so far from the next along each axis that has several."""
    found, step = list[int](), 1
    for extent, size in reversed([*zip(of.extents, of.buffer.shape, strict=True)]):
        if known(extent) != 1:
            found.insert(0, step)
        step *= known(size) or 1
    return not of.buffer.strides and found == steps[len(steps) - len(found) :]


def _base(
    call: Invoke, of: Region, warp: tuple[ScalarVar, int],
    own: dict[int, tuple[ScalarVar, int, Callable[[int], int]]],
) -> tuple[Scalar, ...]:  # fmt: skip
    """Where the part of a whole group begins; the place of a thread in it is checked."""
    places: list[Scalar] = []
    left, size = dict(own), 1
    for start, extent in reversed([*zip(of.starts, of.buffer.shape, strict=True)]):
        if size in left and known(extent) != 1:
            var, count, number = left.pop(size)
            told = [known(valued(start, var, each)) for each in range(count)]
            if told != [number(each) for each in range(count)]:
                raise _misplaced(call, f"{of.buffer.name} at other places")
            start = index(0)
        elif warp[0] in free_vars(start):  # the same for all warps of a group
            told = [known(valued(start, warp[0], each)) for each in range(warp[1])]
            if None in told or told != [told[each // GROUP * GROUP] for each in range(warp[1])]:
                raise _misplaced(call, f"{of.buffer.name} at other places for each warp")
        places.insert(0, start)
        size *= known(extent) or 1
    if left:
        raise _misplaced(call, f"the same of {of.buffer.name} for all threads")
    return tuple(places)
