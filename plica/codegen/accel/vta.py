"""`accel:vta`: an int8 matrix engine with explicit memories and three decoupled units.

Load, compute and store run side by side, in step through four token queues.  Compute multiplies a
`batch x block` element by a `block x block` one in a cycle, steered by micro-operations.

>>> vta().name, osdi().scope("wgt").depth
('vta', 128)

Sizes are powers of two, as logarithms; field widths follow from them.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import evolve, frozen

from plica.codegen.accel.declaration import (
    Field,
    Idle,
    Machine,
    Micro,
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
from plica.core.name import Name
from plica.ir.dtype import i8, i32, u32
from plica.ir.scalar import Buffer, Cast, Max, Min, Scalar, ScalarVar, Select, ShiftLeft, ShiftRight
from plica.ir.scalar import lit
from plica.ir.tensor import Compute, compute, reduce


@frozen
class Configuration:
    """Logarithms of the sizes: of an element's rows and columns, and of the bytes of scopes."""

    batch: int = 0
    block: int = 4
    uop: int = 15
    inp: int = 15
    wgt: int = 18
    acc: int = 17
    interval: int = 2
    timing: Timing = Timing()


@lru_cache(maxsize=16)
def vta(of: Configuration = Configuration()) -> Machine:  # noqa: B008  # a value that cannot change
    """The machine of a configuration."""
    b, n = 1 << of.batch, 1 << of.block
    uop = Scope("uop", (1 << of.uop) // 4, (), u32)
    inp = Scope("inp", (1 << of.inp) // (b * n), (b, n), i8)
    wgt = Scope("wgt", (1 << of.wgt) // (n * n), (n, n), i8)
    acc = Scope("acc", (1 << of.acc) // (4 * b * n), (b, n), i32)
    out = Scope("out", acc.depth, (b, n), i8)
    d_inp, d_wgt, d_acc, d_uop = (s.depth.bit_length() - 1 for s in (inp, wgt, acc, uop))

    # fmt: off
    common = pack(0, opcode=3, pop_prev=1, pop_next=1, push_prev=1, push_next=1)
    memory = common + pack(7, memory=3, sram=16, dram=32) + pack(
        64, y_size=16, x_size=16, x_stride=16, y_pad_0=4, y_pad_1=4, x_pad_0=4, x_pad_1=4)
    nest = common + pack(7, reset=1, uop_bgn=d_uop, uop_end=d_uop + 1, iter_out=14, iter_in=14) + pack(
        64, dst_out=d_acc, dst_in=d_acc, src_out=d_inp, src_in=d_inp)
    gemm = nest + pack(64 + 2 * (d_acc + d_inp), wgt_out=d_wgt, wgt_in=d_wgt)
    alu = nest + pack(64 + 2 * (d_acc + d_inp), op=3, use_imm=1, imm=-16)
    # fmt: on

    dst = Reach(("acc", "out"), "dst", ("dst_out", "dst_in"))
    old = Reach(("acc",), "dst", ("dst_out", "dst_in"))
    src = Reach(("inp",), "src", ("src_out", "src_in"))
    weight = Reach(("wgt",), "wgt", ("wgt_out", "wgt_in"))
    other = Reach(("acc",), "src", ("src_out", "src_in"))

    def move(memory_id: int, scope: str, unit: str, way: str = "in") -> Operation:
        pads = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
        store = way == "out"
        fixed = (("opcode", int(store)), ("memory", memory_id))
        if store:
            fixed, pads = (*fixed, *((pad, 0) for pad in pads)), ()
        does = Move(scope, "out" if store else "in", "sram", "dram", "x_size", "y_size", "x_stride", pads)
        return Operation(f"{'store' if store else 'load'}.{scope}", unit, memory, fixed, does)

    def sweep(
        name: str, fields: tuple[Field, ...], fixed: dict[str, int], reads: tuple[Reach, ...],
        meaning: Compute, interval: int = 1, latency: int = 1,
    ) -> Operation:  # fmt: skip
        does = Sweep(("iter_out", "iter_in"), ("uop_bgn", "uop_end"), dst, reads, meaning, latency)
        return Operation(name, "compute", fields, tuple(fixed.items()), does, interval)

    a, x, w = element(acc), element(inp), element(wgt)
    y = Buffer(Name("src"), a.shape, a.dtype)
    imm = ScalarVar(Name("imm"), i32)
    product = compute(
        (a, x, w), a.shape,
        lambda r, c: a[r, c] + reduce("sum", (n,), lambda k: Cast(x[r, k], i32) * Cast(w[c, k], i32)),
    )  # fmt: skip
    zero = compute((), a.shape, lambda _r, _c: lit(0, i32))

    def shifted(value: Scalar, by: Scalar) -> Scalar:
        return Select(by >= 0, ShiftRight(value, by), ShiftLeft(value, -by))

    vector = {
        "min": (0, Min), "max": (1, Max), "add": (2, lambda p, q: p + q),
        "shr": (3, shifted), "mul": (4, lambda p, q: p * q),
    }  # fmt: skip
    alus: list[Operation] = []
    for name, (op, make) in vector.items():
        both = compute((a, y), a.shape, lambda r, c, make=make: make(a[r, c], y[r, c]))
        with_imm = compute((a,), a.shape, lambda r, c, make=make: make(a[r, c], imm))
        fixed = {"opcode": 4, "reset": 0, "op": op}
        alus.append(sweep(f"alu.{name}", alu, {**fixed, "use_imm": 0, "imm": 0}, (old, other), both, of.interval))
        alus.append(sweep(f"alu.{name}.imm", alu, {**fixed, "use_imm": 1}, (old,), with_imm, of.interval))

    return Machine(
        "vta", 128, (uop, inp, wgt, acc, out), ("load", "compute", "store"),
        tuple(Queue(s, t) for s, t in
              (("load", "compute"), ("compute", "load"), ("compute", "store"), ("store", "compute"))),
        (
            move(2, "inp", "load"), move(1, "wgt", "load"),
            move(0, "uop", "compute"), move(3, "acc", "compute"), move(4, "out", "store", "out"),
            sweep("gemm", gemm, {"opcode": 2, "reset": 0}, (old, src, weight), product, latency=2),
            sweep("gemm.reset", gemm, {"opcode": 2, "reset": 1}, (), zero),
            *alus,
            Operation("finish", "compute", common, (("opcode", 3),), Idle(), carries=False),
        ),
        "finish", Micro("uop", pack(0, dst=d_acc, src=d_inp, wgt=d_wgt)), of.timing,
    )  # fmt: skip


def osdi() -> Machine:
    """The configuration of the OSDI'18 paper: 200 MHz, 32 KB of weights, one vector pass a cycle."""
    return vta(Configuration(wgt=15, interval=1, timing=evolve(Timing(), megahertz=200)))
