"""WebAssembly as a target: which of its extensions code may use.

>>> parse("wasm").machine.vector_bits, str(parse("wasm:relaxed"))
(128, 'wasm:relaxed')
>>> parse("wasm:relaxed").machine.has_multiply_add
True
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import frozen

from plica.codegen.llvm.pool import WASM_THREADS
from plica.codegen.target import SpelledTarget, Target, unknown_target

TRIPLE: Final = "wasm32-unknown-unknown"

_USUAL: Final = ("+bulk-memory", "+mutable-globals", "+nontrapping-fptoint", "+sign-ext")
"""What every engine of the last years has."""

EXTENSIONS: Final[dict[str, tuple[str, ...]]] = {
    "": ("+simd128", *_USUAL),
    "relaxed": ("+simd128", "+relaxed-simd", *_USUAL),
    "threads": ("+simd128", "+atomics", *_USUAL),
    "scalar": _USUAL,
}
"""Features by the word after the colon: lanes of 128 bits; products and sums rounded at once, too,
as browsers have them since 2024; a memory that threads share; none of these."""

CORES: Final = 4  # threads that schedules share the work among, where there may be several
SPELLINGS: Final = ("wasm", "wasm:relaxed", "wasm:threads", "wasm:scalar")


@frozen
class WasmTarget(SpelledTarget):
    """WebAssembly of 32 bits with some extensions."""

    extension: str = ""

    backend: ClassVar[str] = "wasm"

    @property
    def machine(self) -> Target:
        """What LLVM and schedules are told."""
        threads = self.extension == "threads"
        triple, cores = (WASM_THREADS, CORES) if threads else (TRIPLE, 1)
        return Target("cpu", triple, "generic", EXTENSIONS[self.extension], cores=cores)

    def __str__(self) -> str:
        return f"wasm:{self.extension}" if self.extension else "wasm"


def parse(text: str) -> WasmTarget:
    """The target that a text means."""
    name, _, extension = text.strip().partition(":")
    if name != "wasm" or extension not in EXTENSIONS or text.strip() not in SPELLINGS:
        raise unknown_target(text, SPELLINGS)
    return WasmTarget(extension)
