"""Units: a program as GPU code, with its launches and their memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from plica.codegen.cuda.fold import WRITTEN_KERNELS, KernelCode, fold, joined, written
from plica.codegen.cuda.limit import check
from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import compiled, compiled_at_once, version
from plica.codegen.device_program import Unit, check_unconditional, unit_of
from plica.codegen.memory_plan import OVERWRITABLE, overwritable
from plica.codegen.operation_count import OPERATIONS, operations
from plica.codegen.program import Program, kernel_name
from plica.codegen.workers import GroupTask, Workers, together
from plica.core import Memo
from plica.ir.loop.invocation import TensorIntrinsic, intrinsics_of, register
from plica.ir.loop.statement import Kernel
from plica.runtime.store import ArtefactStore, key_of
from plica.schedule.default.gpu.machine import Gpu

PART: Final = 8000  # characters after which a part of the text ends
MIN_SEPARATE_CHARACTERS: Final = PART // 2
"""The number of characters from which a kernel is compiled separately: its compile time exceeds
NVRTC's start-up."""

CODE_AHEAD: Final[Memo[tuple[str, str, bool], bytes]] = Memo(1024)
"""Code compiled in advance, by text, architecture, and whether products are fused."""


class TextInParts(Protocol):
    """A text, and the parts of it that are compiled apart."""

    @property
    def text(self) -> str: ...

    @property
    def parts(self) -> tuple[str, ...]: ...


def sent(kernel: Kernel, invoked: tuple[TensorIntrinsic, ...]) -> bytes:
    """A kernel for another process, which may not know the intrinsics it invokes."""
    for intrinsic in invoked:
        register(intrinsic)
    return pickle.dumps(written(kernel))


def _write(program: Program, workers: Workers | None) -> None:
    """Emits the kernels of a program, in parallel if there are processes."""
    names = dict(zip(program.kernels, program.names, strict=True))
    missing = [name for name in names if name not in WRITTEN_KERNELS and not name.dims]
    tasks = [GroupTask(names[kernel], sent, (kernel, intrinsics_of(kernel))) for kernel in missing]

    def here(number: int) -> None:
        written(missing[number])

    def there(number: int, data: bytes) -> None:
        WRITTEN_KERNELS.tell(
            missing[number], pickle.loads(data)
        )  # a process of this compiler made it

    together(tasks, here, there, workers)


def unit(
    program: Program,
    gpu: Gpu | None = None,
    whole: Callable[[Sequence[KernelCode]], str] = joined,
    workers: Workers | None = None,
    folder: str = "",
) -> Unit:
    """The text and steps of a program without choices, for a GPU's limits; `whole` joins several
    kernels with shared helpers, and their lines are those of files in a `folder`."""
    check_unconditional(program)
    if not folder:
        _write(program, workers)
    codes: list[KernelCode] = []
    for number, kernel in enumerate(program.kernels):
        name, does = kernel_name(number, program), program.names[number]
        codes.append(fold(kernel, name, does, folder=folder))
        check(codes[-1].launches, gpu or Gpu(), does)
    write_sources(codes)
    return unit_of(program, codes, whole(codes), parts_of(codes, whole))


def write_sources(codes: Sequence[KernelCode]) -> None:
    """Write the files that line tables refer to."""
    for path, text in [source for code in codes for source in code.sources]:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(f"{text}\n", encoding="utf-8")


def parts_of(
    codes: list[KernelCode], whole: Callable[[Sequence[KernelCode]], str]
) -> tuple[str, ...]:
    """The text of some kernels in parts of about one size: they are compiled at once."""
    found: list[list[KernelCode]] = []
    last: list[KernelCode] = []  # the part that small kernels are put into
    size = PART
    for code in codes:
        if len(code.functions) >= MIN_SEPARATE_CHARACTERS:
            found.append([code])
            continue
        if size >= PART:
            last, size = [], 0
            found.append(last)
        last.append(code)
        size += len(code.functions)
    return tuple([whole(kernel_codes) for kernel_codes in found])


def code_ahead(kernel: Kernel, name: str, does: str, target: GpuTarget, fused: bool) -> bytes:
    """The emitted kernel, its launch information, its part of the text, and its code; other
    processes compute this while kernels are still lowered."""
    if kernel.dims or target.debug:
        return b""
    code = fold(kernel, name, does)
    text = joined([code]) if len(code.functions) >= MIN_SEPARATE_CHARACTERS else ""
    made = cubin_of(text, target.architecture, fused) if text else b""
    told = written(kernel), operations(kernel), overwritable(kernel)
    return pickle.dumps((*told, (text, target.architecture, fused), made))


def keep_ahead(kernel: Kernel, data: bytes) -> None:
    """Have ready what `code_ahead` made."""
    of, count, over, key, made = pickle.loads(data)  # a process of this compiler made it
    WRITTEN_KERNELS.tell(kernel, of)
    OPERATIONS.tell(kernel, count)
    OVERWRITABLE.tell(kernel, over)
    if made:
        CODE_AHEAD.tell(key, made)


def cubin_of(text: str, architecture: str, fused: bool) -> bytes:
    """The code of a text, as another process makes it."""
    return compiled(text, architecture, fused=fused).code


def _compiled(
    texts: Sequence[str], architecture: str, fused: bool, workers: Workers | None
) -> list[bytes]:
    """The code of several texts, by worker processes, or by threads if there are none.

    Processes share no memory that threads of the compiler might have to wait for.
    """
    if workers is None or not workers.serves(2):
        return [cubin.code for cubin in compiled_at_once(texts, architecture, fused=fused)]
    codes: dict[int, bytes] = {}
    tasks = [GroupTask("a text", cubin_of, (text, architecture, fused)) for text in texts]

    def here(number: int) -> None:
        codes[number] = cubin_of(texts[number], architecture, fused)

    together(tasks, here, codes.__setitem__, workers)
    return [codes[number] for number in range(len(texts))]


def cubins(
    of: TextInParts,
    architecture: str,
    *,
    fused: bool,
    store: ArtefactStore | None = None,
    workers: Workers | None = None,
) -> tuple[bytes, ...]:
    """The code of a unit, from the store if its text was compiled before."""
    keys = [key_of("cubin", each, architecture, str(fused), str(version())) for each in of.parts]
    found = [
        None
        if store is None
        else store.found(key, partial(cubin_of, part, architecture, fused), "the code of a text")
        for key, part in zip(keys, of.parts, strict=True)
    ]
    ready = [CODE_AHEAD.take((part, architecture, fused)) for part in of.parts]
    whole = [known or code for known, code in zip(found, ready, strict=True)]
    missing = [part for part, code in zip(of.parts, whole, strict=True) if code is None]
    fresh = iter(_compiled(missing, architecture, fused, workers))
    codes = [next(fresh) if code is None else code for code in whole]
    for key, known, code in zip(keys, found, codes, strict=True):
        if known is None and store is not None:
            store.put(key, code)
    return tuple(codes)
