"""Profiling: the instrumentation of native code, and the measured limits of the machine.

    void plica_profile_use(i64 *notes)      from now on; null, as at first, for never

>>> ["gettime" in clock(each) for each in ("x86_64-unknown-linux-gnu", "armv7-none-eabi")]
[True, False]

The peak is a function that multiplies and adds as fast as one core can, to be timed.

    i64 plica_peak(i64 turns)      how many operations it did

Free of stalls: as many independent sums as registers hold. It is part of native code, so that a
profile shows how close a kernel is to the machine's limit wherever the code runs.

>>> machine = Target("cpu", "x86_64-unknown-linux-gnu", "haswell", ("+avx", "+avx2", "+fma"))
>>> peak(machine).count("call <8 x float> @llvm.fmuladd")
12
"""

from __future__ import annotations

from typing import Final

from plica.codegen.llvm.pool import WASM_THREADS, has_pool, llvm_text
from plica.codegen.target import Target
from plica.runtime.artefact import PEAK, USE

INDEPENDENT_SUMS: Final = 16  # enough independent sums to hide the latency on every machine
SPARE: Final = 4  # registers that are left for other things

_SILENT: Final = """\
define internal void @plica.tick(i64 %launch) nounwind {
  ret void
}
"""


def clock(triple: str) -> str:
    """The clock for a machine; one that notes nothing where it is not written for it."""
    has_clock = has_pool(triple) and triple != WASM_THREADS
    return llvm_text("clock").replace("<USE>", USE) if has_clock else _SILENT


def peak(target: Target) -> str:
    """The module of the peak, which is one function."""
    lanes = max(1, target.vector_bits // 32)
    count = max(4, min(INDEPENDENT_SUMS, target.vector_registers - SPARE))
    kind = f"<{lanes} x float>"
    name = f"@llvm.fmuladd.v{lanes}f32"
    first = f"insertelement {kind} poison, float %small, i64 0"
    spread = f"<{lanes} x i32> zeroinitializer"
    lines = [
        f'target triple = "{target.triple}"',
        f"declare {kind} {name}({kind}, {kind}, {kind})",
        "@plica.sink = internal global float 0.0, align 4",
        f"define i64 @{PEAK}(i64 %turns) {{",
        "entry:",
        "  %given = sitofp i64 %turns to float",
        "  %small = fmul float %given, 0x3DDB7CDFE0000000",
        f"  %one = {first}",
        f"  %x = shufflevector {kind} %one, {kind} poison, {spread}",
    ]
    for n in range(count):  # each begins with another number: what is equal is computed once
        lines.append(f"  %s{n} = fadd {kind} %x, splat (float {float(n + 1)!r})")
    lines += ["  br label %again", "again:", "  %i = phi i64 [ 0, %entry ], [ %next, %again ]"]
    lines += [f"  %a{n} = phi {kind} [ %s{n}, %entry ], [ %b{n}, %again ]" for n in range(count)]
    lines += [
        f"  %b{n} = call {kind} {name}({kind} %x, {kind} %x, {kind} %a{n})" for n in range(count)
    ]
    lines += ["  %next = add i64 %i, 1", "  %more = icmp ult i64 %next, %turns"]
    lines += ["  br i1 %more, label %again, label %end", "end:"]
    lines += [
        f"  %t{n} = fadd {kind} %{f't{n - 1}' if n > 1 else 'b0'}, %b{n}" for n in range(1, count)
    ]
    lines += [
        f"  %last = extractelement {kind} %t{count - 1}, i64 0",
        "  store volatile float %last, ptr @plica.sink, align 4",
        f"  %done = mul i64 %turns, {2 * lanes * count}",
        "  ret i64 %done",
        "}",
    ]
    return "\n".join(lines) + "\n"
