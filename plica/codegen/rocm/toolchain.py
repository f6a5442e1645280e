"""The compiler of HIP: clang with AMD's device libraries, where they are installed.

No GPU is needed.  What comes out is assembly of one architecture, and what each kernel uses.

>>> list(usage_of('''
...     - .group_segment_fixed_size: 64
...       .name:           k
...       .vgpr_count:     14
...       .vgpr_spill_count: 2
... '''))
[('k', Usage(registers=14, shared=64, spilled=2))]
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Final

from plica.codegen.cuda.toolchain import Usage
from plica.runtime.error import Diagnostic, UnsupportedError

PACKAGE: Final = "apt-get install hipcc rocm-device-libs"

_CLANGS: Final = ("amdclang++", *[f"clang-{version}" for version in range(22, 14, -1)], "clang")
_LIBRARIES: Final = (
    "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "/usr/lib/amdgcn/bitcode",
    "/opt/rocm/amdgcn/bitcode",
)  # fmt: skip


def tools() -> tuple[str, Path] | None:
    """The compiler, and where the device libraries are; None where one of them is missing."""
    libraries = next((Path(library) for library in _LIBRARIES if Path(library).is_dir()), None)
    if libraries is None:
        return None
    root = _root(libraries)
    compiler = next((found for clang in _CLANGS if (found := which(clang))), None)
    has_header = (root / "include/hip/hip_runtime.h").exists()
    return (compiler, libraries) if compiler and has_header else None


def _root(libraries: Path) -> Path:
    return Path("/opt/rocm") if libraries.is_relative_to("/opt/rocm") else Path("/usr")


def assembly(text: str, architecture: str) -> str:
    """The assembly of a text in HIP C++; refuses a machine without the compiler."""
    if (found := tools()) is None:
        message, hint = "The compiler of HIP is not here.", f"Install it: {PACKAGE}."
        raise UnsupportedError(
            Diagnostic("no-toolchain", message, None, "clang with device libraries", "none", hint)
        )
    compiler, libraries = found
    command = [
        compiler, "-x", "hip", "--cuda-device-only", f"--offload-arch={architecture}", "-O3", "-S",
        f"--rocm-path={_root(libraries)}", f"--rocm-device-lib-path={libraries}",
        "-D__HIP_PLATFORM_AMD__", "-o", "kernels.s", "kernels.hip",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="plica-") as name:
        Path(name, "kernels.hip").write_text(text, encoding="utf-8")
        done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
        if done.returncode:
            message = "The compiler of HIP refused the text that was made."
            said = " / ".join(done.stderr.strip().splitlines()[:4])
            raise UnsupportedError(Diagnostic("toolchain", message, None, "no errors", said))
        return Path(name, "kernels.s").read_text(encoding="utf-8")


_KERNEL: Final = re.compile(
    r"\.group_segment_fixed_size: (\d+).*?\.name: +(\w+).*?\.vgpr_count: +(\d+)\s+"
    r"\.vgpr_spill_count: (\d+)",
    re.DOTALL,
)


def usage_of(text: str) -> Iterator[tuple[str, Usage]]:
    """What assembly says that each kernel takes: vector registers, local bytes, spilled ones."""
    for shared, name, registers, spilled in _KERNEL.findall(text):
        yield name, Usage(int(registers), int(shared), int(spilled))
