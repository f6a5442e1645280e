"""Loading: from an artefact to something one can call.

It needs numpy and the standard library, and imports nothing of the compiler.  The digests and the
machine are checked before any code is made executable.  Loading an artefact is running a program:
do it with those you trust, as with any shared library.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from plica.runtime import archive, artefact as artefacts, host
from plica.runtime.error import wrong_argument
from plica.runtime.executable import Executable
from plica.runtime.extern import NONE, Externs
from plica.runtime.interface import dims_of
from plica.runtime.late import lazy_imports
from plica.runtime.link import link, use_threads

with lazy_imports(__name__):  # few artefacts are of these kinds
    from plica.runtime.accel.artefact import from_members as accelerated
    from plica.runtime.accel.executable import executable as on_device
    from plica.runtime.cross import emulated
    from plica.runtime.cuda.program import CudaExecutable, open_on_gpu
    from plica.runtime.dynamic.artefact import from_members as dynamic_from_members, is_dynamic
    from plica.runtime.dynamic.executable import DynamicExecutable
    from plica.runtime.emulator.executable import emulation, hip, metal, open_emulation
    from plica.runtime.list_executable import over_lists
    from plica.runtime.open_executable import OpenExecutable
    from plica.runtime.opencl.executable import opencl
    from plica.runtime.spirv.executable import spirv
    from plica.runtime.staged.artefact import from_members as staged_from_members, is_staged
    from plica.runtime.staged.executable import StagedExecutable
    from plica.runtime.verify import device_problems, refuse
    from plica.runtime.wasm.executable import wasm
    from plica.runtime.webgpu.executable import webgpu


_KINDS: Final[Mapping[str, Callable[..., Executable]]] = {
    "nvptx64": CudaExecutable, artefacts.WASM: wasm, "opencl": opencl, "webgpu": webgpu,
    "spirv64": spirv, "amdgcn": hip, "air64": metal, "emulated": emulation,
}  # fmt: skip
"""What runs code that is not for this processor, by its architecture."""

_OPEN_KINDS: Final[Mapping[str, Callable[..., Executable]]] = {
    "nvptx64": open_on_gpu,
    "emulated": open_emulation,
}
"""The same where sizes are open."""


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    externs: Mapping[str, str | os.PathLike[str]] | None = None,
) -> Executable:
    """The executable in a file; `threads` defaults to the number it was compiled with.

    `externs` gives the library of each symbol that is neither in the process nor in the C library:
    no path is taken from the file.
    """
    if threads is not None and (type(threads) is not int or threads < 1):
        message = "The number of threads must be a whole number, at least 1."
        raise wrong_argument(message, "1 or more, or None", threads)
    with archive.opened(path) as members:
        lists = members.pop(artefacts.LISTS, None)
        made = _loaded(members, threads, externs)
        return made if lists is None else over_lists(made, lists)


def _loaded(
    members: dict[str, bytes],
    threads: int | None,
    externs: Mapping[str, str | os.PathLike[str]] | None,
) -> Executable:
    """The executable over arrays."""
    if artefacts.ACCELERATED in members:
        return on_device(accelerated(members), executable, threads)
    if is_staged(members):
        interface, program, parts, driver = staged_from_members(members)
        segments = [executable(artefacts.from_members(part), threads) for part in parts]
        return StagedExecutable(interface, program, segments, driver)
    if is_dynamic(members):
        return DynamicExecutable(dynamic_from_members(members), threads=threads)
    return executable(artefacts.from_members(members), threads, externs=Externs(externs))


def executable(
    artefact: artefacts.Artefact,
    threads: int | None = None,
    texts: Mapping[str, Callable[[], str]] | None = None,
    externs: Externs = NONE,
) -> Executable:
    """An artefact made callable; `texts` are its sources if the compiler is at hand: then one for
    another machine is run by an emulator of it."""
    if artefact.device is not None:
        refuse(device_problems(artefact, artefact.device))
    if (own := _KINDS.get(artefact.machine.architecture)) is not None:
        if dims_of(artefact.interface):
            own = _OPEN_KINDS[artefact.machine.architecture]
        return own(artefact, texts=texts)
    machine = artefact.machine
    if texts is not None and not host.can_run(machine.architecture, machine.features):
        return emulated(artefact, texts)
    host.check(machine)
    code = link(artefact.objects, externs.addresses)
    count = artefact.threads if threads is None else threads
    use_threads(code, count)
    kind: Callable[..., Executable] = Executable
    if dims_of(artefact.interface):
        kind = partial(OpenExecutable, sizes=code.address(artefacts.SIZES))
    return kind(
        code.address(artefacts.ENTRY),
        artefact.interface,
        constants=artefact.constants,
        workspace=artefact.workspace,
        sources=artefact.sources,
        texts=texts or {"kernel": lambda: artefact.record().kernels},
        target=str(artefact.machine),
        keep=code,
        artefact=artefact,
        profile=code.address(artefacts.USE) if artefacts.USE in code else 0,
        peak=code.address(artefacts.PEAK) if artefacts.PEAK in code else 0,
        threads=count,
        externs=externs,
    )
