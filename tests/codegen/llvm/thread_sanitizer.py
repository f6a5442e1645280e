"""ThreadSanitizer: calls of its run-time library in LLVM text, in front of each memory access.

    %v = load float, ptr %p        -->    call void @__tsan_read_range(ptr %p, i64 4)
                                          %v = load float, ptr %p

LLVM's own pass is not in llvmlite, so text that LLVM has optimised and printed is instrumented line
by line: loads, stores, masked and scattered ones, copies; atomic accesses are calls that acquire or
release their word.  Of the pool (`plica.codegen.llvm.pool`) only those are: what it reads before a
claim succeeds is thrown away where the claim fails, which no sanitizer can know.

With `joined` parallel loops call `plica_parallel` of another object, which may create threads for
each loop: threads of the pool synchronise at each claim, which hides races between chunks.

>>> print(instrumented('''define void @k(ptr %p) {
...   store <2 x half> zeroinitializer, ptr %p, align 4
...   ret void
... }''').split("}")[0])
define void @k(ptr %p) {
  call void @__tsan_write_range(ptr %p, i64 4)
  store <2 x half> zeroinitializer, ptr %p, align 4
  ret void
<BLANKLINE>

Not here: who builds and runs it (`benchmarks/races.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from plica.codegen.llvm.pool import PARALLEL

LANES: Final = "plica_tsan_lanes"
"""A callback of the test harness: the vector's address, bytes per lane, mask, and whether it is a
write."""

DECLARATIONS: Final = (
    "declare void @__tsan_read_range(ptr, i64)",
    "declare void @__tsan_write_range(ptr, i64)",
    "declare void @__tsan_acquire(ptr)",
    "declare void @__tsan_release(ptr)",
    f"declare void @{LANES}(ptr, i64, i64, i64)",
)

_BYTES: Final = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
_FUNCTION: Final = re.compile(r"define .*?@([\w.]+)\(")
_OF_POOL: Final = re.compile(rf"plica\.|plica_pool|{PARALLEL}$")
_LOAD: Final = re.compile(
    r"\s+%\S+ = load (?P<how>atomic |volatile )?(?P<type>.+), ptr (?P<at>[^,\s]+)"
)
_STORE: Final = re.compile(r"\s+store (?P<how>atomic |volatile )?(?P<rest>.+), ptr (?P<at>[^,\s]+)")
_EXCHANGE: Final = re.compile(r"\s+%\S+ = (?:cmpxchg|atomicrmw \w+) ptr (?P<at>[^,\s]+)")
_CALL: Final = re.compile(
    r"\s+(?:%\S+ = )?(?:tail )?call .*?"
    r"@llvm\.(?P<name>masked\.\w+|memcpy|memmove|memset)\.[\w.]+\((?P<args>.*)\)"
)
_VECTOR: Final = re.compile(r"<(\d+) x ([^>]+)>")


def instrumented(text: str, *, joined: bool = False) -> str:
    """Optimised LLVM text in which each access tells ThreadSanitizer of itself."""
    if joined and f"define hidden void @{PARALLEL}(" in text:
        text = text.replace(f"define hidden void @{PARALLEL}(", f"define void @{PARALLEL}_left(")
        text += f"declare void @{PARALLEL}(ptr, ptr, i64)\n"
    lines: list[str] = []
    of_pool = False
    for number, line in enumerate(text.splitlines()):
        if found := _FUNCTION.match(line):
            of_pool = _OF_POOL.match(found[1]) is not None
        before, after = _atomic(line)
        if not of_pool and not before and not after:
            before = list(_accesses(line, number))
        lines += [*before, line, *after]
    return "\n".join([*lines, *DECLARATIONS]) + "\n"


def _atomic(line: str) -> tuple[list[str], list[str]]:
    """The instrumentation before and after an atomic access; empty for others."""
    exchange, load, store = (each.match(line) for each in (_EXCHANGE, _LOAD, _STORE))
    before: list[str] = []
    after: list[str] = []
    if exchange or (store and store["how"] == "atomic "):
        at = (exchange or store)["at"]  # type: ignore[index]  # one of them is there
        before = [f"  call void @__tsan_release(ptr {at})"]
    if exchange or (load and load["how"] == "atomic "):
        at = (exchange or load)["at"]  # type: ignore[index]  # as above
        after = [f"  call void @__tsan_acquire(ptr {at})"]
    return before, after


def _accesses(line: str, number: int) -> Iterator[str]:
    """The calls for one instruction."""
    if found := _LOAD.match(line):
        yield f"  call void @__tsan_read_range(ptr {found['at']}, i64 {_bytes(found['type'])})"
    elif found := _STORE.match(line):
        kind = _operand(found["rest"])[0]
        yield f"  call void @__tsan_write_range(ptr {found['at']}, i64 {_bytes(kind)})"
    elif found := _CALL.match(line):
        yield from _called(
            found["name"], [_operand(each) for each in _split(found["args"])], number
        )


def _called(name: str, args: list[tuple[str, str]], number: int) -> Iterator[str]:
    """The calls for an intrinsic: its operands are types and values."""
    match name.removeprefix("masked."), args:
        case "memset", [(_, at), _, (_, size), *_]:
            yield f"  call void @__tsan_write_range(ptr {at}, i64 {size})"
        case "memcpy" | "memmove", [(_, to), (_, of), (_, size), *_]:
            yield f"  call void @__tsan_read_range(ptr {of}, i64 {size})"
            yield f"  call void @__tsan_write_range(ptr {to}, i64 {size})"
        case "load", [(_, at), (mask, bits), (kind, _), *_]:
            yield from _lanes(at, kind, (mask, bits), 0, number)
        case "store", [(kind, _), (_, at), (mask, bits), *_]:
            yield from _lanes(at, kind, (mask, bits), 1, number)
        case "gather", [(_, places), (mask, bits), (kind, _), *_]:
            yield from _scattered(places, kind, (mask, bits), 0, number)
        case "scatter", [(kind, _), (_, places), (mask, bits), *_]:
            yield from _scattered(places, kind, (mask, bits), 1, number)
        case _:
            raise AssertionError(f"No call for llvm.{name} of {args}")


def _lanes(at: str, kind: str, mask: tuple[str, str], writes: int, number: int) -> Iterator[str]:
    count, element = _vector(kind)
    bits = f"%tsan.{number}"
    yield f"  {bits}.m = bitcast {mask[0]} {mask[1]} to i{count}"
    wide = f"{bits}.m"
    if count < 64:
        yield f"  {bits}.w = zext i{count} {bits}.m to i64"
        wide = f"{bits}.w"
    yield f"  call void @{LANES}(ptr {at}, i64 {_bytes(element)}, i64 {wide}, i64 {writes})"


def _scattered(
    places: str, kind: str, mask: tuple[str, str], writes: int, number: int
) -> Iterator[str]:
    count, element = _vector(kind)
    for lane in range(count):
        name = f"%tsan.{number}.{lane}"
        yield f"  {name}.p = extractelement <{count} x ptr> {places}, i64 {lane}"
        yield f"  {name}.m = extractelement {mask[0]} {mask[1]}, i64 {lane}"
        yield f"  {name}.w = zext i1 {name}.m to i64"
        yield (f"  call void @{LANES}(ptr {name}.p, i64 {_bytes(element)}, i64 {name}.w, "
               f"i64 {writes})")  # fmt: skip


def _vector(kind: str) -> tuple[int, str]:
    found = _VECTOR.fullmatch(kind)
    assert found is not None, kind
    return int(found[1]), found[2]


def _bytes(kind: str) -> int:
    """The size of a type in memory."""
    if kind.startswith("<"):
        count, element = _vector(kind)
        bits = count if element == "i1" else 8 * count * _bytes(element)
        return -(-bits // 8)
    return _BYTES[kind] if kind in _BYTES else -(-int(kind.removeprefix("i")) // 8)


def _split(args: str) -> list[str]:
    """The operands of a call, whose types and constants may hold commas."""
    found, depth = [""], 0
    for sign in args:
        depth += (sign in "<([{") - (sign in ">)]}")
        if sign == "," and not depth:
            found.append("")
        else:
            found[-1] += sign
    return [each.strip() for each in found]


def _operand(of: str) -> tuple[str, str]:
    """The type and value of an operand, without attributes."""
    kind = of.split(" ", 1)[0] if not of.startswith("<") else of[: of.index(">") + 1]
    value = of[len(kind) :].strip()
    while said := re.match(r"(?:align \d+|(?:non|no)?[a-z]+(?:\([^)]*\))?) (?=[%@])", value):
        value = value[said.end() :]
    return kind, value


__all__ = ["LANES", "instrumented"]
