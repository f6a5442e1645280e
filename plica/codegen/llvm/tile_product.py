"""Tile products in LLVM text: a function per shape, with sums in registers.

>>> print(text("u8.16.0.1").count("tdpbusd("), text("i8.15.14.2").count("tdpbssd("))
1 4
"""

from __future__ import annotations

from typing import Final

from plica.codegen.llvm.pool import llvm_text

FUNCTIONS: Final = {"u8": "llvm.x86.tdpbusd", "i8": "llvm.x86.tdpbssd"}
ROW_BYTES: Final = 64  # the row size of a tile register
ROWS: Final = 16  # rows of a register


def name_of(dtype: str, rows: int, vectors: int) -> str:
    """The function for a given number of rows and vectors, by its name after `plica.tiles`.

    >>> name_of("u8", 29, 2), name_of("u8", 7, 1)
    ('u8.15.14.2', 'u8.7.0.1')
    """
    first = rows if rows <= ROWS else -(-rows // 2)
    return f"{dtype}.{first}.{rows - first}.{vectors}"


def text(name: str) -> str:
    """The function of a name: tile configuration, loads, products and stores."""
    dtype, *sizes = name.split(".")
    first, second, vectors = map(int, sizes)
    rows = [each for each in (first, second) if each]
    counts = {f: rows[f // 2] for f in range(4) if f // 2 < len(rows) and f % 2 < vectors}
    counts |= {4 + at: row for at, row in enumerate(rows)}
    counts |= {6 + at: ROWS for at in range(vectors)}
    shape = [0] * 64
    shape[0] = 1
    for tile, count in counts.items():
        shape[16 + 2 * tile], shape[48 + tile] = ROW_BYTES, count
    sums = [each for each in counts if each < 4]
    loads: list[str] = []
    for at in range(len(rows)):
        loads += _load(4 + at, "x", "%right", ("%row", at * first), "%row")
    for at in range(vectors):
        loads += _load(6 + at, "w", "%down", ("%vector", at), str(ROW_BYTES))
    stores: list[str] = []
    for each in sums:
        place = (each % 2 * (first + second) + each // 2 * first) * ROW_BYTES
        stores.append(f"%y{each} = getelementptr i8, ptr %y, i64 {place}")
        stores.append(f"call void @llvm.x86.tilestored64(i8 {each}, ptr %y{each}, i64 {ROW_BYTES})")
    function = FUNCTIONS[dtype]
    products = [f"call void @{function}(i8 {s}, i8 {4 + s // 2}, i8 {6 + s % 2})" for s in sums]
    return llvm_text("tiles").format(
        name=name,
        shape=", ".join(f"i8 {each}" for each in shape),
        zeros=_lines([f"call void @llvm.x86.tilezero(i8 {each})" for each in sums]),
        loads=_lines(loads),
        products=_lines(products),
        stores=_lines(stores),
    )


def _load(tile: int, name: str, step: str, times: tuple[str, int], apart: str) -> list[str]:
    """Loads a tile with a named stride, from an offset given as a number of steps."""
    size, count = times
    return [
        f"%t{tile}.step = getelementptr i8, ptr %{name}, i64 {step}",
        f"%t{tile}.far = mul i64 {size}, {count}",
        f"%t{tile} = getelementptr i8, ptr %t{tile}.step, i64 %t{tile}.far",
        f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr %t{tile}, i64 {apart})",
    ]


def _lines(of: list[str]) -> str:
    return "\n".join(f"  {each}" for each in of)
