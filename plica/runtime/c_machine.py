"""The machine a library was made for, asked in C: whether this one has the instructions it uses.

A library that is loaded on a lesser machine must say so; without the question the first
instruction that is missing would end the process.

>>> machine_check("x86_64", ("+avx2", "-avx512f", "+adx"))
('', '__builtin_cpu_supports("avx2")')
>>> machine_check("riscv64", ("+v",))
('#include <sys/auxv.h>\\n', '(getauxval(AT_HWCAP) & 0x200000UL)')
>>> machine_check("x86_64", ())
('', '1')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

UNSUPPORTED_STATUS: Final = -4
"""The status of a library on a machine that lacks an instruction set it uses."""

_AUXILIARY: Final = "#include <sys/auxv.h>\n"

# Features that C compilers for x86 know by name; other features are bits of the kernel's hwcap.
_X86: Final = frozenset((
    "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
    "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16",
    "avx512vbmi", "avx512vbmi2", "avx512ifma", "avx512bitalg", "avx512vpopcntdq",
))  # fmt: skip

# fmt: off
_BITS: Final[dict[str, dict[str, tuple[str, int]]]] = {
    "aarch64": {
        "neon": ("AT_HWCAP", 1), "lse": ("AT_HWCAP", 8), "fullfp16": ("AT_HWCAP", 10),
        "dotprod": ("AT_HWCAP", 20), "sve": ("AT_HWCAP", 22),
        "sve2": ("AT_HWCAP2", 1), "i8mm": ("AT_HWCAP2", 13), "bf16": ("AT_HWCAP2", 14),
    },
    "riscv64": {"v": ("AT_HWCAP", 21), "d": ("AT_HWCAP", 3), "f": ("AT_HWCAP", 5)},
    "armv7": {"neon": ("AT_HWCAP", 12)},
}
# fmt: on


def machine_check(architecture: str, features: Sequence[str]) -> tuple[str, str]:
    """Lines of C to begin with, and the condition that a machine has the features."""
    wanted = [feature[1:] for feature in features if feature.startswith("+")]
    if architecture == "x86_64":
        asked = [f'__builtin_cpu_supports("{each}")' for each in wanted if each in _X86]
        return "", " && ".join(asked) or "1"
    rows = _BITS.get(architecture, {})
    bits = [rows[each] for each in wanted if each in rows]
    asked = [f"(getauxval({word}) & {1 << bit:#x}UL)" for word, bit in bits]
    return (_AUXILIARY if asked else ""), " && ".join(asked) or "1"
