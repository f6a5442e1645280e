"""A second accelerator, as different as can be: outer products of i16, two units, no micro-operations.

`move` copies rows of one dimension in and out; `outer` adds the product of a column and a row to a
tile of 8 x 8, or takes the greater of two tiles.  One queue goes each way.  An instruction is a
word of 64 bits.
"""

from __future__ import annotations

from plica.codegen.accel.declaration import (
    Idle,
    Machine,
    Move,
    Operation,
    Queue,
    Reach,
    Scope,
    Sweep,
    Timing,
    element,
    pack,
)
from plica.codegen.accel.flow import ZERO, Block, Flow, Loop, Memory, Stmt, Threads, Tile, Touch
from plica.codegen.accel.flow import Transfer, Work
from plica.core.name import Name
from plica.ir.dtype import i16, i32
from plica.ir.scalar import Buffer, Cast, Max, index, lit
from plica.ir.tensor import axis, compute

COL, ROW, TILE = Scope("col", 64, (8,), i16), Scope("row", 64, (8,), i16), Scope("tile", 32, (8, 8), i32)

# fmt: off
common = pack(0, opcode=3, pop_prev=1, pop_next=1, push_prev=1, push_next=1)
moving = common + pack(7, sram=6, dram=24, size=10)
nested = common + pack(7, n=8, dst=5, dst_n=5, a=6, a_n=6, b=6, b_n=6)
t, c, r = element(TILE), element(COL), element(ROW)
other = Buffer(Name("other"), t.shape, t.dtype)
dst, old = Reach(("tile",), "dst", ("dst_n",)), Reach(("tile",), "dst", ("dst_n",))
col, row = Reach(("col",), "a", ("a_n",)), Reach(("row",), "b", ("b_n",))
also = Reach(("tile",), "a", ("a_n",))
product = compute((t, c, r), t.shape, lambda i, j: t[i, j] + Cast(c[i], i32) * Cast(r[j], i32))
greater = compute((t, other), t.shape, lambda i, j: Max(t[i, j], other[i, j]))
zero = compute((), t.shape, lambda _i, _j: lit(0, i32))

OUTER = Machine(
    "outer", 64, (COL, ROW, TILE), ("move", "outer"),
    (Queue("move", "outer", 4), Queue("outer", "move", 4)),
    (
        Operation("get.col",  "move",  moving, (("opcode", 0),), Move("col", "in", "sram", "dram", "size")),
        Operation("get.row",  "move",  moving, (("opcode", 1),), Move("row", "in", "sram", "dram", "size")),
        Operation("put.tile", "move",  moving, (("opcode", 2),), Move("tile", "out", "sram", "dram", "size")),
        Operation("multiply", "outer", nested, (("opcode", 3),), Sweep(("n",), (), dst, (old, col, row), product)),
        Operation("greater",  "outer", nested, (("opcode", 4),), Sweep(("n",), (), dst, (old, also), greater)),
        Operation("clear",    "outer", nested, (("opcode", 5),), Sweep(("n",), (), dst, (), zero)),
        Operation("wait",     "outer", common, (("opcode", 6),), Idle()),
        Operation("end",      "move",  common, (("opcode", 7),), Idle(), carries=False),
    ),
    "end", timing=Timing(megahertz=50, bus=4),
)
# fmt: on


def matrix_product(rows: int, depth: int, columns: int, threads: int = 1) -> Flow:
    """`y = x^T w` in blocks of 8: x is [depth, rows], w is [depth, columns]."""
    x, w = Memory("x", "col", depth * rows), Memory("w", "row", depth * columns)
    y = Memory("y", "tile", rows * columns)
    a, b, s = Tile("a", "col", depth), Tile("b", "row", depth), Tile("s", "tile", 1)
    i, j, thread, one = axis("i"), axis("j"), axis("thread"), index(1)
    at = j * threads + thread
    inside: Stmt = Block((
        Work("clear", (one,), (Touch(s, ZERO, (ZERO,)),)),
        Transfer("get.col", a, ZERO, x, i, index(depth), one, index(rows)),
        Transfer("get.row", b, ZERO, w, at, index(depth), one, index(columns)),
        Work("multiply", (index(depth),), (Touch(s, ZERO, (ZERO,)), Touch(a, ZERO, (one,)), Touch(b, ZERO, (one,)))),
        Transfer("put.tile", s, ZERO, y, i * columns + at, one, one, one, ()),
    ))  # fmt: skip
    each: Stmt = Threads(thread, threads, inside) if threads > 1 else Loop(thread, 1, inside)
    return Flow((x, w, y), (a, b, s), Loop(i, rows, Loop(j, columns // threads, each)))
