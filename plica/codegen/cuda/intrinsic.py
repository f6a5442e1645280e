"""Intrinsics in CUDA C++: tensor cores, and copies into shared memory that nobody waits for.

An invocation of `mma_f16` (see `plica.schedule.default.gpu.tensor_core_meaning`) says what it is to
one thread.  The 32 threads of a warp do it together: they load 8 x 8 elements at a time from shared
memory, four such squares in one instruction, and multiply.  So all of them must come to it, and the
rows and columns of a thread must be those that its number in the warp says.

>>> print(text({"p_copies_begun"}))
__device__ __forceinline__ void p_copies_begun() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Final

from plica.analysis.statement import reads_memory, refused
from plica.codegen.cuda import tma as bulk
from plica.codegen.cuda import warp_register as register
from plica.codegen.cuda import wgmma as group
from plica.codegen.cuda.address import valued
from plica.codegen.emit.expression import Expressions
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir.loop.intrinsic import find_intrinsic
from plica.ir.loop.memory_scope import WARP, scope
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar, index
from plica.ir.loop.statement import Bind, Branch, For, Invoke, Region, Stmt, substatements
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32

_HEAD: Final = "__device__ __forceinline__"

LANE: Final = "threadIdx.x"
"""The threads of a warp."""

_SQUARES: Final = (
    *[(kind, "float", "unsigned short", "unsigned short", 8, "") for kind in group.KINDS],
    *[
        (f"{left}_{right}", "int", one, two, 16, "(const unsigned short*)")
        for left, one in group.CHARS.items()
        for right, two in group.CHARS.items()
    ],
)
"""Products of a warp: what they are called, sums and sides in C++, terms that lie together."""

# Note [Products of f32]
# Tensor cores multiply the first 11 bits of a number of f32.  A number is those, and a rest of 13
# bits, of which they take the first 11 again; so a product is three, less that of both rests: it is
# off by 2 ** -20 of itself.  Where a processor rounds they cut off, too, which is 3e-5 after
# thousands of terms: so eight are summed up there, and what these are is added as f32, unless there
# are few in all.  An infinite number has a rest that is none, and the sum is nan then.


def _loaded(  # noqa: PLR0917  # a row of the table of products
    kind: str, sum_: str, a: str, b: str, e: int, cast: str
) -> str:
    """The beginning of a product of squares: all that a thread has of both sides."""
    return f"""\
template <int HIGH, int WIDE, bool AT, bool BT, int AI, int AHALF, int AK, int BJ, int BK>
{_HEAD} void p_mma_{kind}({sum_}* c, const {a}* a, const {b}* b) {{
  const int lane = threadIdx.x, row = lane % 8 * {e}, second = lane / 8 % 2, third = lane / 16;
  unsigned int fa[HIGH][4], fb[WIDE][2];
#pragma unroll
  for (int i = 0; i < HIGH; ++i)
    p_load_squares<AT>(fa[i], {cast}(a + (i * AI + second * AHALF + third * AK + row)));
#pragma unroll
  for (int j = 0; j < WIDE; j += 2)
    p_load_squares<BT>(fb[j], {cast}(b + (j * BJ + second * BK + third * BJ + row)));"""


ANYWHERE: Final = f"""\
{_HEAD} uint4 p_from_anywhere(const void* from, int bytes) {{
  const int far = (int)((unsigned long long)from % 16);
  const uint4* at = (const uint4*)((const char*)from - far);
  uint4 a = {{0, 0, 0, 0}}, b = {{0, 0, 0, 0}};
  if (bytes > 0) a = at[0];
  if (far + bytes > 16 && far > 0) b = at[1];
  unsigned int w[8] = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
#pragma unroll
  for (int n = 0; n < 6; ++n) w[n] = far & 8 ? w[n + 2] : w[n];
#pragma unroll
  for (int n = 0; n < 5; ++n) w[n] = far & 4 ? w[n + 1] : w[n];
#pragma unroll
  for (int n = 0; n < 4; ++n)
    w[n] = (unsigned int)(((unsigned long long)w[n + 1] << 32 | w[n]) >> far % 4 * 8);
  if (bytes < 16)
#pragma unroll
    for (int n = 0; n < 4; ++n) {{
      const int left = bytes - 4 * n;
      w[n] = left >= 4 ? w[n] : left > 0 ? w[n] & ((1u << 8 * left) - 1) : 0;
    }}
  return uint4{{w[0], w[1], w[2], w[3]}};
}}
"""
"""16 bytes from any place, of which but the first so many are, and zeros after them.

Memory is read in aligned words of 16 bytes, each of which has one of those in it: so no word is
asked for that lies in a page which is not there."""

_TEXTS: Final[dict[str, str]] = {
    "p_copy_async": f"""\
{_HEAD} void p_copy_async(void* to, const void* from) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");
}}
""",
    "p_copy_async_or_zero": f"""\
{_HEAD} void p_copy_async_or_zero(void* to, const void* from, bool inside) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(to), size = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(at), "l"(from), "r"(size) : "memory");
}}
""",
    "p_copies_begun": f"""\
{_HEAD} void p_copies_begun() {{
  asm volatile("cp.async.commit_group;" ::: "memory");
}}
""",
    "p_copies_done": f"""\
template <int N>
{_HEAD} void p_copies_done() {{
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}}
""",
    "p_from_anywhere": ANYWHERE,
    **register.PAIRS,
    **register.POWER,
    **register.RESTORED,
    # See Note [Products of f32].
    "p_in_parts": f"""\
template <int N>
{_HEAD} void p_in_parts(unsigned int* a, unsigned int* rest) {{
#pragma unroll
  for (int n = 0; n < N; ++n) {{
    const unsigned int whole = a[n];
    a[n] = whole & 0xffffe000u;
    rest[n] = __float_as_uint(__uint_as_float(whole) - __uint_as_float(a[n]));
  }}
}}
""",
    "p_load_squares": f"""\
template <bool T>
{_HEAD} void p_load_squares(unsigned int* r, const unsigned short* from) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(from);
  if (T)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%0, %1, %2, %3}}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}}
""",
    **{
        f"p_multiply_squares_{kind}": f"""\
{_HEAD} void p_multiply_squares_{kind}(float& w, float& x, float& y, float& z,
                                       const unsigned int* a, const unsigned int* b) {{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
"""
        for kind in group.KINDS
    },
    **{
        f"p_multiply_squares_{left}_{right}": f"""\
{_HEAD} void p_multiply_squares_{left}_{right}(int& w, int& x, int& y, int& z,
                                       const unsigned int* a, const unsigned int* b) {{
  asm("mma.sync.aligned.m16n8k32.row.col.s32.{group.SIGNS[left]}.{group.SIGNS[right]}.s32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+r"(w), "+r"(x), "+r"(y), "+r"(z)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
"""
        for left in group.SIGNS
        for right in group.SIGNS
    },
    "p_multiply_squares_tf32": f"""\
{_HEAD} void p_multiply_squares_tf32(float& w, float& x, float& y, float& z,
                                        const unsigned int* a, const unsigned int* b) {{
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(w), "+f"(x), "+f"(y), "+f"(z)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
""",
    # Squares whose sums are under way at once: each takes three instructions, one after another.
    "p_multiply_parts": f"""\
template <int HIGH, int WIDE, bool FEW>
{_HEAD} void p_multiply_parts(float* c, unsigned int (*a)[4], unsigned int (*b)[2]) {{
  const int SOME = HIGH > 2 ? 1 : WIDE < 8 / HIGH ? WIDE : 8 / HIGH;
  unsigned int ra[HIGH][4];
#pragma unroll
  for (int i = 0; i < HIGH; ++i) p_in_parts<4>(a[i], ra[i]);
#pragma unroll
  for (int k = 0; k < WIDE; k += SOME) {{
    unsigned int rb[SOME][2];
    float sums[HIGH][SOME][4];
#pragma unroll
    for (int j = 0; j < SOME && k + j < WIDE; ++j) {{
      p_in_parts<2>(b[k + j], rb[j]);
#pragma unroll
      for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          sums[i][j][r] = FEW ? c[((2 * i + r / 2) * WIDE + k + j) * 2 + r % 2] : 0.0f;
    }}
#pragma unroll
    for (int n = 0; n < 3; ++n)
#pragma unroll
      for (int j = 0; j < SOME && k + j < WIDE; ++j)
#pragma unroll
        for (int i = 0; i < HIGH; ++i) {{
          float* s = sums[i][j];
          p_multiply_squares_tf32(s[0], s[1], s[2], s[3], n == 0 ? ra[i] : a[i],
                                  n == 1 ? rb[j] : b[k + j]);
        }}
#pragma unroll
    for (int j = 0; j < SOME && k + j < WIDE; ++j)
#pragma unroll
      for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) {{
          float& sum = c[((2 * i + r / 2) * WIDE + k + j) * 2 + r % 2];
          sum = FEW ? sums[i][j][r] : sum + sums[i][j][r];
        }}
  }}
}}
""",
    # Squares of 8 x 8 elements, or 8 x 16 bytes: of `a` rows, rows + 8, then the same of the next
    # terms; of `b` terms, the next ones, then the same of the next 8 columns.
    **{
        f"p_mma_{kind}": f"""\
{_loaded(kind, sum_, a, b, e, cast)}
#pragma unroll
  for (int i = 0; i < HIGH; ++i)
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {{
      {sum_}* upper = c + (2 * i * WIDE + j) * 2;
      {sum_}* lower = upper + 2 * WIDE;
      p_multiply_squares_{kind}(upper[0], upper[1], lower[0], lower[1], fa[i], fb[j]);
    }}
}}
"""
        for kind, sum_, a, b, e, cast in _SQUARES
    },
    "p_mma_f32": f"""\
{_loaded("f32", "float", "float", "float", 4, "(const unsigned short*)")}
  p_multiply_parts<HIGH, WIDE, false>(c, fa, fb);
}}
""",
    "p_mma_few_f32": f"""\
{_loaded("few_f32", "float", "float", "float", 4, "(const unsigned short*)")}
  p_multiply_parts<HIGH, WIDE, true>(c, fa, fb);
}}
""",
}

_ALL: Final = {**_TEXTS, **register.TEXTS, **register.LANES, **bulk.TEXTS, **group.TEXTS}

_NEEDS: Final = {
    **{
        f"p_mma_{each[0]}": ("p_load_squares", f"p_multiply_squares_{each[0]}") for each in _SQUARES
    },
    **dict.fromkeys(
        ("p_mma_f32", "p_mma_few_f32"),
        ("p_in_parts", "p_load_squares", "p_multiply_squares_tf32", "p_multiply_parts"),
    ),
    **register.NEEDS,
    **group.NEEDS,
}


def text(used: Iterable[str]) -> str:
    """The functions of these names, and what they call, in a fixed order."""
    wanted = set(used)
    for name in list(wanted):
        wanted |= set(_NEEDS.get(name, ()))
    return "".join([each for name, each in _ALL.items() if name in wanted])


def invocation(
    call: Invoke,
    values: Expressions,
    lane: ScalarVar | None,
    warp: tuple[ScalarVar, int] | None = None,
) -> str:
    """The call that does what an invocation means; `lane` is the number of a thread in its warp.

    `warp` is the number of that, and how many there are.
    """
    if group.is_product(call):
        return group.products(call, values, lane, warp)
    found = find_intrinsic(call.name)
    hints = {} if found is None else dict(found.hints)
    word = str(hints.get("cuda"))
    if word in ("row_max", "row_power", "row_sum") or "lanes" in hints:
        return register.rows(call, values, word, int(str(hints.get("lanes", 0))))
    if word == "restored":
        return register.restored(call, values, int(str(hints["bits"])))
    if word in ("quad_mma", "quad_mix"):
        return register.quads(call, values, word)
    if word == "warp_mma":
        return _from_registers(call, values, lane)
    if word != "mma":
        raise refused(
            f"The intrinsic {call.name!r} is not there for threads.",
            call.name, "one of tensor cores", "another",
        )  # fmt: skip
    a, b, c = [each for each in call.operands if isinstance(each, Region)]
    if lane is None:
        raise _misplaced(call, "no loop over the threads of a warp around it")
    left, right = bool(hints["left"]), bool(hints["right"])
    high, wide = int(str(hints["high"])), int(str(hints["wide"]))
    if wide < 2 or wide % 2:
        raise _misplaced(call, f"{wide} squares across, where an even number can be")
    # Where the number in the warp goes, in elements, and what it must be.
    *between, half, ak, ae = _steps(a, 4 if high > 1 else 3)
    (ai,) = between or (0,)
    bj, bk, *last = _steps(b)
    be, pair = last if not right else reversed(last)
    bytes_ = a.buffer.dtype.bytes == 1
    if a.buffer.dtype.bytes != 2 and not (left and right):
        kind = a.buffer.dtype.name
        raise _misplaced(call, f"{kind} of which rows or columns are neighbours, not terms")
    near = 16 // a.buffer.dtype.bytes
    rows, columns = (near, 1) if left else (1, 8), (near, 1) if right else (1, 8)
    at_a = _base(call, a, lane, rows[0], lambda number: number // 4)
    at_b = _base(call, b, lane, 2 * columns[0], lambda number: number % 4)
    if (ae, be, pair) != (rows[1], columns[1], columns[0]):
        raise _misplaced(call, "elements that do not lie together, eight by eight")
    whole = [known(each) for each in c.extents] == [known(each) for each in c.buffer.shape]
    if not whole or scope(c.buffer.scope).reach != "thread":
        raise _misplaced(call, f"a part of {c.buffer.name}, or one that is not a thread's own")
    numbers = (high, wide, int(not left), int(not right), ai, half, ak, bj, bk)
    kinds = [each.buffer.dtype.name for each in ((a, b) if bytes_ else (a,))]
    kinds = ["few", *kinds] if hints.get("few") else kinds
    function = values.help(f"p_mma_{'_'.join(kinds)}")
    sides = [f"&{values.place(each.buffer, at)}" for each, at in ((a, at_a), (b, at_b))]
    which = ", ".join(map(str, numbers))
    return f"{function}<{which}>({values.buffers[c.buffer]}, {', '.join(sides)});"


def _from_registers(call: Invoke, values: Expressions, lane: ScalarVar | None) -> str:
    """Products whose left side is what the threads of a warp hold."""
    a, b, c = [each for each in call.operands if isinstance(each, Region)]
    if lane is None:
        raise _misplaced(call, "no loop over the threads of a warp around it")
    wide = _sizes(b)[0]
    high = prod(_sizes(c)) // (4 * wide)
    if b.buffer.dtype is f32:  # eight terms at once, of which a thread has two neighbours
        *between, half, ah = _steps(a, 3 if high > 1 else 2)
    else:
        *between, half, ah, _ = _steps(a, 4 if high > 1 else 3)
    (ai,) = between or (0,)
    bj, bk, be, pair = _steps(b)
    at_b = _base(call, b, lane, 2, lambda number: number % 4)
    if (be, pair) != (8, 1) or wide % 2:
        raise _misplaced(call, "elements that do not lie together, eight by eight")
    function = values.help(f"p_warp_mma_{b.buffer.dtype.name}")
    which = ", ".join(map(str, (high, wide, ai, half, ah, bj, bk)))
    left = f"&{values.place(a.buffer, a.starts)}"
    right = f"&{values.place(b.buffer, at_b)}"
    return f"{function}<{which}>({values.buffers[c.buffer]}, {left}, {right});"


def _misplaced(call: Invoke, found: str) -> Exception:
    message = f"The intrinsic {call.name!r} cannot be done by a warp here."
    expected = "rows and columns of each thread as its number in the warp says"
    return refused(message, call.name, expected, found)


def _sizes(of: Region) -> list[int]:
    sizes = [known(each) for each in of.extents]
    if None in sizes:
        raise CompilerBug(f"A region of {of.buffer.name} has no known size.")
    return [each for each in sizes if each is not None and each != 1]


def _steps(of: Region, axes: int = 4) -> list[int]:
    """How far elements are from the next, along each axis of a region that has several."""
    found, step = list[int](), 1
    for extent, size in reversed([*zip(of.extents, of.buffer.shape, strict=True)]):
        if known(extent) != 1:
            found.insert(0, step)
        step *= known(size) or 1
    if of.buffer.strides or len(found) != axes:
        raise CompilerBug(f"A region of {of.buffer.name} is not one of squares.")
    return found


def _base(
    call: Invoke, of: Region, lane: ScalarVar, step: int, number: Callable[[int], int]
) -> tuple[Scalar, ...]:
    """Where the part of a whole warp begins; the place of a thread in it is checked."""
    places: list[Scalar] = []
    seen, size = False, 1
    for start, extent in reversed([*zip(of.starts, of.buffer.shape, strict=True)]):
        if lane in free_vars(start):
            told = [valued(start, lane, each) for each in range(WARP)]
            right = [known(each) for each in told] == [number(each) for each in range(WARP)]
            if seen or not right or size != step:
                raise _misplaced(call, f"{of.buffer.name} at other places")
            seen, start = True, index(0)
        places.insert(0, start)
        size *= known(extent) or 1
    if not seen:
        raise _misplaced(call, f"the same of {of.buffer.name} for all threads")
    return tuple(places)


def come_together(nest: Stmt) -> None:
    """Refuse a warp's work where not all threads may come.

    All come where a condition, or how often a loop goes, is the same for the threads of a block.
    """
    stack: list[tuple[Stmt, bool, int, frozenset[Term]]] = [(nest, True, WARP, frozenset())]
    while stack:
        stmt, all_come, lanes, own = stack.pop()
        match stmt:
            case Invoke() if not (all_come and _takes(stmt, lanes)):
                raise _misplaced(stmt, "a condition around it")
            case Branch(condition):
                all_come = all_come and _is_same(condition, own)
            case For(var, extent, kind):
                all_come = all_come and _is_same(extent, own)
                if kind == LANE:
                    lanes = known(extent) or 0
                if kind.startswith("threadIdx"):
                    own |= {var}
            case Bind(var, value) if not _is_same(value, own):
                own |= {var}
            case _:
                pass
        stack += [(each, all_come, lanes, own) for each in substatements(stmt)]


def _takes(call: Invoke, lanes: int) -> bool:
    """Whether a loop over so many threads is one of a warp, or of the parts that join."""
    found = find_intrinsic(call.name)
    part = None if found is None else dict(found.hints).get("lanes")
    return lanes == WARP if part is None else lanes % int(str(part)) == 0


def _is_same(of: Scalar, own: frozenset[Term]) -> bool:
    """Whether a term is the same for all threads of a block, whose variables are known."""
    return free_vars(of).isdisjoint(own) and not reads_memory(of)


def handed(nest: Stmt) -> frozenset[Buffer]:
    """The buffers of shared memory that only a warp's work reads.

    Each thread reads there what others wrote, after a barrier: copies into them may be under way
    until then.
    """
    read: set[Buffer] = set()
    invoked: set[Buffer] = set()
    for node in post_order(nest):
        if isinstance(node, Load):
            read.add(node.buffer)
        elif isinstance(node, Region) and scope(node.buffer.scope).reach == "block":
            invoked.add(node.buffer)
    return frozenset(invoked - read)
