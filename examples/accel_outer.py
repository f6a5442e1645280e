"""A second accelerator, quite different: outer products of i16, two units, no micro-operations.

`move` copies rows in and out; `outer` adds the product of a column and a row to a tile of 8 x 8,
adds two tiles, shifts one, takes the greater or the lesser.  `matrix_product` is a program for it.
As an entry point of the group `plica.accelerators` it is a target of models: `accel:outer`.
"""

from __future__ import annotations

from plica.codegen.accel import declaration as d, flow as f
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Cast, Max, Min, ScalarVar, Select, ShiftRight, index, lit
from plica.ir.loop.tensor import Compute, axis, compute
from plica.ir.type.dtype import i16, i32

COL, ROW = d.Scope("col", 64, (8,), i16), d.Scope("row", 64, (8,), i16)
TILE = d.Scope("tile", 32, (8, 8), i32)

common = d.pack(0, opcode=4, pop_prev=1, pop_next=1, push_prev=1, push_next=1)
moving = common + d.pack(8, sram=6, dram=24, size=10)
nested = common + d.pack(8, n=8, dst=5, dst_n=5, a=6, a_n=6, b=6, b_n=6, by=-14)

tile, also = d.Reach(("tile",), "dst", ("dst_n",)), d.Reach(("tile",), "a", ("a_n",))
col, row = d.Reach(("col",), "a", ("a_n",)), d.Reach(("row",), "b", ("b_n",))

t, c, r = d.element(TILE), d.element(COL), d.element(ROW)
u, by = Buffer(Name("other"), t.shape, t.dtype), ScalarVar(Name("by"), i32)
product = compute((t, c, r), t.shape, lambda i, j: t[i, j] + Cast(c[i], i32) * Cast(r[j], i32))
greater = compute((t, u), t.shape, lambda i, j: Max(t[i, j], u[i, j]))
right = compute((t,), t.shape, lambda i, j: Select(by >= 0, ShiftRight(t[i, j], by), t[i, j]))
lesser = compute((t,), t.shape, lambda i, j: Min(by, t[i, j]))
zero = compute((), t.shape, lambda _i, _j: lit(0, i32))


def move(name: str, opcode: int, scope: str, way: d.Way) -> d.Operation:
    """Elements that follow each other, in or out."""
    does = d.Move(scope, way, "sram", "dram", "size")
    return d.Operation(name, "move", moving, (("opcode", opcode),), does)


def sweep(name: str, opcode: int, meaning: Compute, *reads: d.Reach) -> d.Operation:
    """One loop over tiles."""
    does = d.Sweep(("n",), (), tile, reads, meaning)
    return d.Operation(name, "outer", nested, (("opcode", opcode),), does)


# fmt: off
OUTER = d.Accelerator(
    "outer", 64, (COL, ROW, TILE), ("move", "outer"),
    (d.Queue("move", "outer", 4), d.Queue("outer", "move", 4)),
    (
        move("get.col", 0, "col", "in"), move("get.row", 1, "row", "in"),
        move("put", 2, "tile", "out"), move("get.tile", 8, "tile", "in"),
        sweep("multiply", 3, product, tile, col, row), sweep("greater", 4, greater, tile, also),
        sweep("total", 9, compute((t, u), t.shape, lambda i, j: t[i, j] + u[i, j]), tile, also),
        sweep("shift", 10, right, tile), sweep("lesser", 11, lesser, tile),
        sweep("clear", 5, zero), d.Operation("wait", "outer", common, (("opcode", 6),), d.Idle()),
        d.Operation("end", "move", common, (("opcode", 7),), d.Idle(), carries=False),
    ), "end", timing=d.Timing(megahertz=50, bus=4),
)


def matrix_product(rows: int, depth: int, columns: int, threads: int = 1) -> f.Flow:
    """`y = x^T w` in blocks of 8: x is [depth, rows], w is [depth, columns]."""
    x, w = f.Memory("x", "col", depth * rows), f.Memory("w", "row", depth * columns)
    y, one, k = f.Memory("y", "tile", rows * columns), index(1), index(depth)
    a, b, s = f.Tile("a", "col", depth), f.Tile("b", "row", depth), f.Tile("s", "tile", 1)
    i, j, thread = axis("i"), axis("j"), axis("thread")
    at = j * threads + thread
    here = f.Touch(s, f.ZERO, (f.ZERO,))
    inside = f.Steps((
        f.Work("clear", (one,), (here,)),
        f.Transfer("get.col", a, f.ZERO, x, i, k, one, index(rows)),
        f.Transfer("get.row", b, f.ZERO, w, at, k, one, index(columns)),
        f.Work("multiply", (k,), (here, f.Touch(a, f.ZERO, (one,)), f.Touch(b, f.ZERO, (one,)))),
        f.Transfer("put", s, f.ZERO, y, i * columns + at, one, one, one, ()),
    ))
    each = f.Threads(thread, threads, inside)
    return f.Flow((x, w, y), (a, b, s), f.Loop(i, rows, f.Loop(j, columns // threads, each)))
