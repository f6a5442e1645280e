"""CUDA C++ on a processor: a GPU for those who have none.

The text is compiled by the host's C++ compiler, with CUDA's keywords defined for it. The threads of
a block are fibres: each runs until it waits for others, then the next one does; blocks run one
after another. Inline assembly is implemented in C++.

A kernel's result must not depend on scheduling, so each launch runs twice and the results are
compared: `FORWARD` runs the first thread and block first and completes asynchronous copies and
products at their wait; `BACKWARD` runs the last first and completes them at once. Shared and local
memory is filled with NaNs. A kernel whose threads race, or wait for threads that never arrive, is
refused by name. In a `watched` text, races are detected per byte, even if results agree.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from plica.runtime.cuda.tile import TileMap
from plica.runtime.error import Diagnostic, EvaluationError, UnsupportedError

GROUP: Final = 64  # the threads per group, for launches given by their number of items
FORWARD: Final = 0
BACKWARD: Final = 1
Bytes: TypeAlias = np.ndarray[Any, Any]  # Any: of any shape and dtype
Three: TypeAlias = tuple[int, int, int]


class EmulatedLaunch(Protocol):
    """A function and its number of threads."""

    @property
    def function(self) -> str: ...

    @property
    def grid(self) -> Three: ...

    @property
    def block(self) -> Three: ...


_WIDTHS: Final = range(32, 257, 32)  # columns that four warps multiply at once

_BODIES: Final = {
    "p_copy_async": "begin(Copy{to, from});",
    "p_copy_async_or_zero": "begin(Copy{to, inside ? from : (const void*)nothing});",
    "p_copies_begun": "self->under_way.push_back(self->copies); self->copies.clear();",
    "p_copies_done": "while (self->under_way.size() > N) copy_first();",
    "p_tiles_ready": """
  counters = (const unsigned char*)counted, counters_end = counters + 8 * many;
  if (threadIdx.x + threadIdx.y == 0) std::memset(counted, 0, 8 * many);
  __syncthreads();
""",
    "p_tile_expected": "*counted += 2ull * bytes;",
    "p_tile_copy_2": "begin(Fetch{to, map->words, counted, {a, b}});",
    "p_tile_copy_3": "begin(Fetch{to, map->words, counted, {a, b, c}});",
    "p_tile_copy_4": "begin(Fetch{to, map->words, counted, {a, b, c, d}});",
    "p_tile_copy_5": "begin(Fetch{to, map->words, counted, {a, b, c, d, e}});",
    "p_tile_awaited": """
  while (!self->fetching.empty() && self->fetching.front().counted == counted) {
    fetch(self->fetching.front());
    self->fetching.erase(self->fetching.begin());
  }
  while (*(volatile unsigned long long*)counted % 2 == turn) pass();
""",
    "p_products_done": """
  while (self->multiplying.size() > N) {
    for (auto& each : self->multiplying.front()) each();
    self->multiplying.erase(self->multiplying.begin());
  }
""",
    "p_products_kept": "",
    "p_products_kept_i32": "",
    "p_unpack_f16": "return from_half(a);",
    "p_pack_f16": "return to_half(a);",
    "p_pack_bf16": "return to_bfloat(a);",
    r"p_power(?=\(float)": "return std::exp2(a);",  # that of integers is plain
    **{
        f"p_{word}_pair_f16": f"""
  return to_half(from_half(a & 0xffff) {sign} from_half(b & 0xffff)) |
         (unsigned int)to_half(from_half(a >> 16) {sign} from_half(b >> 16)) << 16;
"""
        for word, sign in (("sub", "-"), ("mul", "*"))
    },
    "p_fma_pair_bf16": """
  unsigned int both = 0;
  for (int at = 0; at < 32; at += 16) {
    const float one = from_bfloat(a >> at & 0xffff), two = from_bfloat(b >> at & 0xffff);
    both |= (unsigned int)to_bfloat(std::fma(one, two, from_bfloat(c >> at & 0xffff))) << at;
  }
  return both;
""",
    "p_pack_pair_f16": "return to_half(a) | (unsigned int)to_half(b) << 16;",
    "p_pack_pair_bf16": "return to_bfloat(a) | (unsigned int)to_bfloat(b) << 16;",
    **{
        f"p_multiply_{kind}_{width}": f"multiply<AT, BT, from_{word}>(c, a, b, {width});"
        for kind, word in (("f16", "half"), ("bf16", "bfloat"))
        for width in _WIDTHS
    },
    **{
        f"p_multiply_{left}_{right}_{width}": f"multiply_bytes<{one}, {two}>(c, a, b, {width});"
        for left, one in (("i8", "signed char"), ("u8", "unsigned char"))
        for right, two in (("i8", "signed char"), ("u8", "unsigned char"))
        for width in _WIDTHS
    },
    **{
        f"p_multiply_held_{kind}_{width}": f"multiply_held<from_{word}>(c, a, b, {width});"
        for kind, word in (("f16", "half"), ("bf16", "bfloat"))
        for width in _WIDTHS
    },
}
"""C++ implementations of inline assembly."""

_EXTREME: Final = {
    "min": "a != a || b != b ? a + b : a == b ? (signbit(a) ? a : b) : a < b ? a : b",
    "max": "a != a || b != b ? a + b : a == b ? (signbit(a) ? b : a) : a > b ? a : b",
}

_ITEM: Final = ", uint id [[thread_position_in_grid]]"
"""The last parameter of functions in Metal Shading Language."""

_FLAGS: Final = (
    "-std=c++20", "-O1", "-ffp-contract=off", "-fPIC", "-U_FORTIFY_SOURCE",
    "-ftrivial-auto-var-init=pattern", "-Werror=frame-larger-than=98304",
)  # fmt: skip
"""Threads that have no room for a frame would write over other memory: such a text is refused."""

_WATCH: Final = "race.h"
"""What hears of every access of a text that is watched, in place of the compiler's own library."""

ORDERS: Final = 2  # texts after which it pays to prepare the words that all begin with
_ASKED: Final = count()  # how many texts were compiled


def compiler() -> str | None:
    """The C++ compiler of this machine, if any."""
    return shutil.which("c++") or shutil.which("g++")


def missing() -> str:
    """What this machine lacks to be a GPU, with the command that installs it."""
    return "" if compiler() else "There is no C++ compiler here: apt-get install g++."


def launch(
    functions: ctypes.CDLL, of: EmulatedLaunch, given: Sequence[int | None], memory: Sequence[Bytes]
) -> None:
    """Runs one function in both orders on memory it may read and write, and compares."""
    name = of.function
    function, shape = getattr(functions, f"run_{name}"), (ctypes.c_int * 6)(*of.grid, *of.block)
    is_watched = hasattr(functions, "watch_accesses")
    places = (ctypes.c_void_p * len(memory))(*[array.ctypes.data for array in memory])
    sizes = (ctypes.c_longlong * len(memory))(*[array.nbytes for array in memory])
    before = [array.copy() for array in memory]
    after: list[list[Bytes]] = []
    for order in (FORWARD, BACKWARD):
        for array, old in zip(memory, before, strict=True):
            array[...] = old
        if is_watched:
            functions.watch_accesses(len(memory), places, sizes)
        if left := function((ctypes.c_void_p * len(given))(*given), order, shape):
            raise _fault(name, f"{left} threads of {name} wait for others who do not come.")
        if is_watched and (met := ctypes.string_at(functions.raced()).decode()):
            raise _fault(name, f"Threads of {name} race: {met}.")
        after.append([array.copy() for array in memory])
    for one, two in zip(*after, strict=True):
        same = one.view(np.uint8) == two.view(np.uint8) if one.ndim else one == two
        if not np.all(same):
            raise _fault(name, f"What {name} gives depends on the order of threads: they race.")


def _fault(name: str, message: str) -> EvaluationError:
    expected = "threads that agree in any order"
    return EvaluationError(Diagnostic("device-fault", message, None, expected, name))


def loaded(text: str, functions: Iterable[str], *, watched: bool = False) -> ctypes.CDLL:
    """Functions `run_NAME` over the addresses of launch arguments."""
    if (found := compiler()) is None:
        message, hint = "There is no C++ compiler here.", "apt-get install g++"
        raise UnsupportedError(
            Diagnostic("missing-tool", message, None, "c++ or g++", "nothing of that name", hint)
        )
    words = "gpu.h", *(["metal.h"] if _ITEM in text else []), *([_WATCH] if watched else [])
    first = _prepared(found, *words) if next(_ASKED) >= ORDERS else None
    before = "" if first else "".join(map(_read, words))
    given = ["-include", f"{first.name}/words.h"] if first else []
    whole = "\n".join([before + _spelled(text), *map(_runner, functions)])
    with tempfile.TemporaryDirectory(prefix="plica-") as folder:
        source, code, library = (Path(folder) / each for each in ("k.cpp", "k.o", "k.so"))
        source.write_text(whole, encoding="utf-8")
        _do([found, *_flags(words), *given, "-c", "-o", str(code), str(source)])
        _do([found, "-shared", "-o", str(library), str(code)])
        cdll = ctypes.CDLL(str(library))
    if watched:
        cdll.raced.restype = ctypes.c_void_p
    return cdll


def _flags(words: Sequence[str]) -> tuple[str, ...]:
    return *_FLAGS, *(["-fsanitize=thread"] if _WATCH in words else [])


def _do(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " / ".join(done.stderr.splitlines()[:3])
        message = "The C++ compiler refused the text of a GPU."
        raise EvaluationError(Diagnostic("missing-tool", message, None, "C++20", said))


@lru_cache(maxsize=4)
def _prepared(found: str, *names: str) -> tempfile.TemporaryDirectory[str]:
    """The words of a language as the compiler reads them soonest, as long as this process lives."""
    folder = tempfile.TemporaryDirectory(prefix="plica-")
    header = Path(folder.name) / "words.h"
    header.write_text("".join(map(_read, names)), encoding="utf-8")
    command = [found, *_flags(names), "-x", "c++-header", "-o", f"{header}.gch", str(header)]
    subprocess.run(command, capture_output=True, check=False)  # without it the text is read
    return folder


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


_SQUARES: Final = re.compile(
    r"(template <bool T>\n)?__device__ __forceinline__ void p_(load|multiply)_squares"
)
"""Where the first of the functions begins that squares.h has for this machine."""


def _spelled(text: str) -> str:
    """A text for GPUs without the words that only their compiler knows."""
    text = re.sub(r"extern __shared__ __align__.*?;", "", text)
    text = re.sub(r"#pragma (unroll( \d+)?|clang.*)|#include <(hip/|metal).*", "", text)
    text = re.sub(r"\[\[buffer\(\d+\)\]\]", "", text).replace(
        _ITEM + ") {", f") {{ const uint id = blockIdx.x * {GROUP} + threadIdx.x;"
    )
    for word, body in _EXTREME.items():
        pattern = rf"(float p_{word}_f32\(float a, float b\) {{)[^}}]*}}"
        text = re.sub(pattern, rf"\1 return {body}; }}", text)
    for word, body in _BODIES.items():
        text = re.sub(
            rf"( {word}\([^)]*\) {{\n).*?\n}}\n", rf"\1{body}\n}}\n", text, flags=re.DOTALL
        )
    if squares := _SQUARES.search(text):
        end = text.index("template <int HIGH", squares.start())
        text = text[: squares.start()] + _read("squares.h") + text[end:]
    text = re.sub(r'\n  asm volatile\("wgmma.fence[^;]*;" ::: "memory"\);', "", text)
    # Each invocation is a group of products: later ones are counted separately.
    begun = "self->multiplying.push_back(self->multiplied); self->multiplied.clear();"
    text = re.sub(r'asm volatile\("wgmma.commit[^;]*;" ::: "memory"\);', begun, text)
    return text.replace("const __grid_constant__ p_tile ", "const p_tile& ")


def tile_words(of: TileMap, address: int) -> Any:  # Any: memory that holds 18 words
    """Where a tensor is, how many axes, bytes of an element, extents of a tile, steps, sizes."""
    more = [0] * (5 - len(of.box))
    words = [address, len(of.box), of.element, *of.box, *more]
    return (ctypes.c_uint64 * 18)(*words, of.element, *of.strides, *more, *of.sizes)


def _runner(function: str) -> str:
    """The function that runs one over blocks: `s` is the shape of the grid, then of a block."""
    return f"""
template <typename... A> static void call_{function}(void (*f)(A...), void* const* p) {{
  [&]<std::size_t... N>(std::index_sequence<N...>) {{ f(given<A>(p[N])...); }}(
      std::index_sequence_for<A...>());
}}
extern "C" int run_{function}(void** p, int order, const int* s) {{
  eager = order == {BACKWARD};
  work = [=] {{ call_{function}(&::{function}, p); }};
  for (int n = 0, count = s[0] * s[1] * s[2]; n < count; ++n) {{
    int at = order == {BACKWARD} ? count - 1 - n : n;
    block_number = at;
    blockIdx = {{at % s[0], at / s[0] % s[1], at / (s[0] * s[1])}};
    if (int left = run_block({{s[3], s[4], s[5]}}, order == {BACKWARD})) return left;
  }}
  return 0;
}}
"""
