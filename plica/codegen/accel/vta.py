"""`accel:vta`: an int8 matrix engine with explicit memories and three decoupled units.

Load, compute and store run side by side, in step through four token queues.  Compute multiplies a
`batch x block` element by a `block x block` one in a cycle, steered by micro-operations.

>>> vta().name, osdi().scope("wgt").depth
('vta', 128)

Sizes are powers of two, as logarithms; field widths follow from them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from attrs import frozen

from plica.codegen.accel import declaration as d
from plica.core import Name
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute, reduce
from plica.ir.type.dtype import i8, i32, u32

PYNQ: Final = d.Timing(megahertz=100)
PADS: Final = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
ENDS: Final = (("load", "compute"), ("compute", "load"), ("compute", "store"), ("store", "compute"))


@frozen
class Configuration:
    """Logarithms: of an element's rows and columns, and of the bytes of the scopes.

    `interval` is the cycles per iteration of a vector operation.
    """

    batch: int = 0
    block: int = 4
    uop: int = 15
    inp: int = 15
    wgt: int = 18
    acc: int = 17
    interval: int = 2
    timing: d.Timing = PYNQ


DEFAULT: Final = Configuration()


@lru_cache(maxsize=16)
def vta(of: Configuration = DEFAULT) -> d.Accelerator:
    """The machine of a configuration; one whose words would be too long is refused."""
    b, n = 1 << of.batch, 1 << of.block
    uop = d.Scope("uop", (1 << of.uop) // 4, (), u32)
    inp = d.Scope("inp", (1 << of.inp) // (b * n), (b, n), i8)
    wgt = d.Scope("wgt", (1 << of.wgt) // (n * n), (n, n), i8)
    acc = d.Scope("acc", (1 << of.acc) // (4 * b * n), (b, n), i32)
    out = d.Scope("out", acc.depth, (b, n), i8)
    l_uop, l_inp, l_wgt, l_acc = (s.depth.bit_length() - 1 for s in (uop, inp, wgt, acc))

    # fmt: off
    common = d.pack(0, opcode=3, pop_prev=1, pop_next=1, push_prev=1, push_next=1)
    memory = (common + d.pack(7, memory=3, sram=16, dram=32)
              + d.pack(64, y_size=16, x_size=16, x_stride=16, **dict.fromkeys(PADS, 4)))
    nest = (common + d.pack(7, reset=1, uop_bgn=l_uop, uop_end=l_uop + 1, iter_out=14, iter_in=14)
            + d.pack(64, dst_out=l_acc, dst_in=l_acc, src_out=l_inp, src_in=l_inp))
    rest = 64 + 2 * (l_acc + l_inp)
    gemm = nest + d.pack(rest, wgt_out=l_wgt, wgt_in=l_wgt)
    alu = nest + d.pack(rest, op=3, use_imm=1, imm=-16)
    # fmt: on

    dst = d.Reach(("acc", "out"), "dst", ("dst_out", "dst_in"))  # sums go to out, cut to i8
    old = d.Reach(("acc",), "dst", ("dst_out", "dst_in"))
    src = d.Reach(("inp",), "src", ("src_out", "src_in"))
    weight = d.Reach(("wgt",), "wgt", ("wgt_out", "wgt_in"))
    other = d.Reach(("acc",), "src", ("src_out", "src_in"))

    def load(scope: str, number: int, unit: str, kind: str = "") -> d.Operation:
        does = d.Move(scope, "in", "sram", "dram", "x_size", "y_size", "x_stride", PADS, kind)
        fixed = (("opcode", 0), ("memory", number))
        return d.Operation(f"load.{scope}{kind and '.'}{kind}", unit, memory, fixed, does)

    def store(scope: str, number: int) -> d.Operation:
        does = d.Move(scope, "out", "sram", "dram", "x_size", "y_size", "x_stride")
        fixed = (("opcode", 1), ("memory", number), *((pad, 0) for pad in PADS))
        return d.Operation(f"store.{scope}", "store", memory, fixed, does)

    def sweep(meaning: Compute, *reads: d.Reach, latency: int = 1) -> d.Sweep:
        loops, micro = ("iter_out", "iter_in"), ("uop_bgn", "uop_end")
        return d.Sweep(loops, micro, dst, reads, meaning, latency)

    a, x, w = d.element(acc), d.element(inp), d.element(wgt)
    y, imm = sc.Buffer(Name("src"), a.shape, a.dtype), sc.ScalarVar(Name("imm"), i32)

    def dot(r: sc.Scalar, c: sc.Scalar) -> sc.Scalar:
        return reduce("sum", (n,), lambda k: sc.Cast(x[r, k], i32) * sc.Cast(w[c, k], i32))

    product = compute((a, x, w), a.shape, lambda r, c: a[r, c] + dot(r, c))
    zero = compute((), a.shape, lambda _r, _c: sc.lit(0, i32))

    def shifted(value: sc.Scalar, by: sc.Scalar) -> sc.Scalar:
        return sc.Select(by >= 0, sc.ShiftRight(value, by), sc.ShiftLeft(value, -by))

    alus: list[d.Operation] = []
    for op, (name, make) in enumerate((
        ("min", sc.Min), ("max", sc.Max), ("add", lambda p, q: p + q),
        ("shr", shifted), ("mul", lambda p, q: p * q),
    )):  # fmt: skip
        both = compute((a, y), a.shape, lambda r, c, f=make: f(a[r, c], y[r, c]))
        one = compute((a,), a.shape, lambda r, c, f=make: f(a[r, c], imm))
        fixed = (("opcode", 4), ("reset", 0), ("op", op))
        for word, more, does in (
            (f"alu.{name}", (("use_imm", 0), ("imm", 0)), sweep(both, old, other)),
            (f"alu.{name}.imm", (("use_imm", 1),), sweep(one, old)),
        ):
            alus.append(d.Operation(word, "compute", alu, (*fixed, *more), does, of.interval))

    # fmt: off
    return d.Accelerator(
        "vta", 128, (uop, inp, wgt, acc, out), ("load", "compute", "store"),
        tuple(d.Queue(source, target) for source, target in ENDS),
        (
            load("inp", 2, "load"), load("wgt", 1, "load"),
            load("uop", 0, "compute"), load("acc", 3, "compute"), load("acc", 5, "compute", "out"),
            store("out", 4),
            d.Operation("gemm", "compute", gemm, (("opcode", 2), ("reset", 0)),
                        sweep(product, old, src, weight, latency=2)),
            d.Operation("gemm.reset", "compute", gemm, (("opcode", 2), ("reset", 1)), sweep(zero)),
            *alus,
            d.Operation("finish", "compute", common, (("opcode", 3),), d.Idle(), carries=False),
        ),
        "finish", d.Micro("uop", d.pack(0, dst=l_acc, src=l_inp, wgt=l_wgt)), of.timing,
    )
    # fmt: on


def osdi() -> d.Accelerator:
    """The configuration of the OSDI'18 paper: 200 MHz, 32 KB of weights, vectors at full speed."""
    return vta(Configuration(wgt=15, interval=1, timing=d.Timing(megahertz=200)))
