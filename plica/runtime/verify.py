"""Verifying: an artefact checked again, by a small program that knows nothing of the compiler.

It checks the digests; that interface and constants match the code; that the live values of the
memory plan do not overlap; that the derivation is a chain from the source to the compiled module,
of rules it names and within its contract; that every kernel has the trace of its schedule; and that
the code is for its declared machine, defines its entry and imports only names on a list:
mathematics, memory (including `mmap`) and threads (which wait by `syscall`). It checks names, not
instructions, and runs no code of the artefact: it does not show that the code implements its
kernels.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from plica.runtime import archive, artefact as artefacts
from plica.runtime.cuda import code as device_code, step as device_step
from plica.runtime.cuda.open_step import OpenProgram
from plica.runtime.cuda.overlap import overlaps
from plica.runtime.cuda.step import DeviceProgram
from plica.runtime.dynamic.artefact import from_members as dynamic_members, is_dynamic
from plica.runtime.dynamic.state import RUN as DYNAMIC_RUN
from plica.runtime.elf import UNDEFINED, header, parse
from plica.runtime.error import ArtefactError, damaged
from plica.runtime.follow import derivation_problems
from plica.runtime.interface import dims_of
from plica.runtime.record import CompilationRecord
from plica.runtime.spirv.tool import entry_points
from plica.runtime.staged.artefact import from_members as staged_members, is_staged
from plica.runtime.wasm.module import names_of

if TYPE_CHECKING:
    from plica.runtime.accel.artefact import AccelArtefact

ALLOWED: Final = re.compile(
    r"""mem(cpy|set|move)
    | (a?sin|a?cos|a?tan|exp|exp2|expm1|log|log2|log10|log1p|pow|erf|erfc|fma|fmod|sqrt)f?
    | (a?sinh|a?cosh|a?tanh|atan2|cbrt|floor|ceil|rint|roundeven|trunc|round|nearbyint)f?
    | (copysign|fabs|fmin|fmax|fminimum|fmaximum|tgamma|lgamma|ldexp|remainder|hypot)f?
    | __(add|sub|mul|div)[sd]f3 | __(gt|lt|ge|le|eq|ne|unord)[sd]f2 | __(extendsf|truncdf)\w+2
    | __(fix|float)(uns|un)?[sd][fi][sdt]i? | __aeabi_\w+ | __(u?div|u?mod|mul)(ti|di|si)3
    | __(extendhfsf2|truncsfhf2|truncdfhf2|gnu_[fh]2[fh]_ieee)
    | pthread_(create|detach|sigmask) | sched_yield | clock_gettime | syscall | getpid
    | mmap | madvise | calloc | k\.[0-9a-f]+ | plica_\w+""",
    re.VERBOSE,
)
"""What code may call."""

DYNAMIC_CALLS: Final = ("free", "posix_memalign")
"""Further functions for dynamic programs, which allocate objects at run time."""

TEXTS: Final = ("opencl", "webgpu", "emulated", "amdgcn", "air64")
"""Architectures whose code is a text, which the driver of a device compiles."""

FUNCTION: Final = re.compile(
    r"^(?:kernel void|fn|extern .C. __global__ void(?: __launch_bounds__\(\d+\))?)\s+(\w+)\(",
    re.MULTILINE,
)
"""A function in such a text."""

COPY: Final = "copy"  # a launch without a kernel on a GPU
_MAX_TENANTS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Verified:
    """The description of a verified artefact."""

    module: str
    contract: str
    result: str
    stages: int
    steps: int
    rules: int
    traces: int
    objects: int
    bytes: int
    workspace: int
    target: str
    versions: tuple[tuple[str, str], ...]
    asked: str = ""
    recorded: bool = True
    """Whether it says how it was compiled: a dynamic program has no record, only code and data."""


def verify(path: str | os.PathLike[str]) -> Verified:
    """Verifies an artefact; raises an ArtefactError with all problems."""
    with archive.opened(path) as members:
        return _verified(members)


def _verified(members: Mapping[str, bytes]) -> Verified:
    if is_dynamic(members):
        return _verified_dynamic(members)
    parts = parts_of(members)
    records = [artefact.record() for artefact in parts]
    refuse(
        f"Part {number}: {problem}" if len(parts) > 1 else problem
        for number, (part, record) in enumerate(zip(parts, records, strict=True))
        for problem in _problems(part, record)
    )
    module, programs = _joined([each.module for each in records]), 0
    target = _joined([str(artefact.machine) for artefact in parts])
    versions = tuple(dict.fromkeys([version for part in parts for version in part.versions]))
    if artefacts.ACCELERATED in members:
        whole = _verified_programs(members)
        module, programs, target = whole.module, len(whole.programs), whole.target
        versions = whole.versions
    elif is_staged(members):
        module = ""  # each segment is a model of its own
    return Verified(
        module,
        _joined([each.contract for each in records]),
        _joined([each.result for each in records]),
        sum(len(each.stages) for each in records),
        sum(len(each.steps) for each in records),
        sum(len(each.rules) for each in records),
        sum(len(each.traces) for each in records),
        sum(len(artefact.objects) for artefact in parts) + programs,
        sum(map(len, members.values())),
        sum(artefact.workspace for artefact in parts),
        target,
        versions,
        _joined([each.asked for each in records]),
    )


def parts_of(members: Mapping[str, bytes]) -> list[artefacts.Artefact]:
    """The native artefacts in an archive: itself, the segments of a staged program, or the parts
    around layers on an accelerator; a dynamic program has none."""
    members = {name: data for name, data in members.items() if name != artefacts.LISTS}
    if is_dynamic(members):
        return []
    if is_staged(members):
        return [artefacts.from_members(each) for each in staged_members(members)[2]]
    if artefacts.ACCELERATED in members:
        from plica.runtime.accel.artefact import from_members as read

        return list(read(members).parts)
    return [artefacts.from_members(members)]


def _verified_programs(members: Mapping[str, bytes]) -> AccelArtefact:
    """The layers on an accelerator, whose programs can all be decoded."""
    from plica.runtime.accel.artefact import from_members as read
    from plica.runtime.accel.device import decoded

    whole = read(members)
    for program in whole.programs:
        decoded(whole.device, program.words)
    return whole


def _verified_dynamic(members: Mapping[str, bytes]) -> Verified:
    """Checks a dynamic program: digests, the form of its data, and the symbols in its code."""
    whole = dynamic_members(members)
    refuse(_code_problems(whole.machine, whole.objects, DYNAMIC_RUN, DYNAMIC_CALLS))
    size = sum(map(len, members.values()))
    return Verified(
        "", "", "", 0, 0, 0, 0, len(whole.objects), size, 0, str(whole.machine), whole.versions,
        recorded=False,
    )  # fmt: skip


def _joined(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _problems(artefact: artefacts.Artefact, record: CompilationRecord) -> Iterator[str]:
    yield from _plan_problems(artefact.plan, artefact.workspace)
    if artefact.device is None:
        yield from _code_problems(artefact.machine, artefact.objects)
    else:
        yield from device_problems(artefact, artefact.device)
    yield from derivation_problems(record)
    yield from _trace_problems(artefact, record)


def refuse(problems: Iterable[str]) -> None:
    """Raises an ArtefactError with all problems, if there are any."""
    if wrong := [diagnostic for message in problems for diagnostic in damaged(message).diagnostics]:
        raise ArtefactError(*wrong)


def _plan_problems(plan: Sequence[artefacts.StoredAllocation], size: int) -> Iterator[str]:
    """Values outside of the workspace, and values in one place at one time."""
    if len(plan) > _MAX_TENANTS:
        yield "The memory plan has more values than any model."
        return
    for number, each in enumerate(plan):
        if min(each.offset, each.size, each.born) < 0 or each.last < each.born:
            yield f"The value {number} of the memory plan has an impossible place or time."
        if each.offset + each.size > size or each.offset % artefacts.ALIGNMENT:
            yield f"The value {number} of the memory plan lies outside of its workspace."
        for of in (each.view_of, each.in_place_of):
            if of is not None and (not 0 <= of < number or plan[of].offset != each.offset):
                yield f"The value {number} of the memory plan does not lie where it says."
                return
    # Sweeps over time, comparing only values that are live together.
    together: list[int] = []
    for number in sorted(range(len(plan)), key=lambda each: (plan[each].born, each)):
        each = plan[number]
        together = [of for of in together if plan[of].last >= each.born]
        for of in together:
            other = plan[of]
            apart = (
                other.offset + other.size <= each.offset or each.offset + each.size <= other.offset
            )
            if each.size and other.size and not apart and not _may_share(plan, of, number):
                yield f"The values {of} and {number} of the memory plan overlap."
        together.append(number)


def _may_share(plan: Sequence[artefacts.StoredAllocation], one: int, two: int) -> bool:
    """Whether two values that overlap are one memory, or the later is written over the earlier."""
    first, second = _shown(plan, one), _shown(plan, two)
    if first == second:
        return True
    early, late = min(first, second), max(first, second)
    over = plan[late].in_place_of
    return (
        over is not None
        and _shown(plan, over) == early
        and max(plan[one].born, plan[two].born) == min(plan[one].last, plan[two].last)
    )


def _shown(plan: Sequence[artefacts.StoredAllocation], number: int) -> int:
    """The value whose elements a chain of views shows."""
    while (of := plan[number].view_of) is not None:
        number = of
    return number


def _code_problems(
    of: artefacts.ArtefactMachine,
    objects: Sequence[bytes],
    entry: str = artefacts.ENTRY,
    calls: Sequence[str] = (),
) -> Iterator[str]:
    """Code for another machine, without an entry, or that calls what no kernel calls, nor `calls`
    has."""
    machine = of.architecture
    defined: set[str] = set()
    wanted: dict[str, None] = {}
    for each in objects:
        if machine == artefacts.WASM:
            names = names_of(each)
            defined.update(names.exports)
            wanted |= dict.fromkeys(name for _, name in names.imports)
            continue
        head = header(each)
        if not head.runs(machine):
            yield f"The code is for {head.machine}, and the manifest says {machine}."
        if head.bits != 64:
            defined.add(entry)  # only their machine is looked at
            continue
        parsed = parse(each)
        for symbol in parsed.symbols:
            if symbol.is_global and symbol.section == UNDEFINED:
                wanted[symbol.name] = None
            elif symbol.is_global:
                defined.add(symbol.name)
    if entry not in defined:
        yield f"The code does not define {entry}."
    for name in wanted:
        if name not in (*defined, *calls) and not ALLOWED.fullmatch(name):
            yield f"The code calls {name!r}, which no kernel calls."


def device_problems(
    artefact: artefacts.Artefact, device: DeviceProgram | OpenProgram
) -> Iterator[str]:
    """Code for other devices, without launches, and launches outside memory."""
    if artefact.machine.triple == artefacts.TRIPLE:
        defined = frozenset[str]().union(*map(device_code.functions, artefact.objects))
    elif artefact.machine.triple == artefacts.SPIRV_TRIPLE:
        defined = frozenset[str]().union(*map(entry_points, artefact.objects))
    elif artefact.machine.architecture in TEXTS:
        found = [FUNCTION.findall(each.decode("utf-8", "replace")) for each in artefact.objects]
        defined = frozenset([name for names in found for name in names])
    else:
        yield f"The launches are for a device, and the manifest says {artefact.machine.triple}."
        return
    for name in device.functions:
        if name not in defined:
            yield f"The code does not define {name}."
    interface = artefact.interface
    if isinstance(device, OpenProgram):
        yield from _open_problems(artefact, device)
        return
    sizes = [[port.nbytes for port in ports] for ports in (interface.inputs, interface.outputs)]
    yield from device_step.problems(device, sizes, len(artefact.constants))
    plan = [(allocation.offset, allocation.size) for allocation in artefact.plan]
    yield from overlaps(device, sizes, plan, artefact.workspace)
    if len(artefact.launches) != len(device.steps):
        yield f"{len(artefact.launches)} launches are told of, and {len(device.steps)} are made."


def _open_problems(artefact: artefacts.Artefact, device: OpenProgram) -> Iterator[str]:
    """Launches for open sizes that are given other tensors than the interface has."""
    interface = artefact.interface
    wanted = {"input": len(interface.inputs), "output": len(interface.outputs),
              "constant": len(artefact.constants)}  # fmt: skip
    for space, count in wanted.items():
        here = sum(slot.space == space for slot in device.slots)
        if here != count:
            yield f"The launches know {here} of {count} tensors of the kind {space}."
    if device.dims != tuple([dim.name for dim in dims_of(interface)]):
        yield "The dims of the launches are not those of the interface."
    if len(artefact.launches) != len(device.steps):
        yield f"{len(artefact.launches)} launches are told of, and {len(device.steps)} are made."


def _trace_problems(artefact: artefacts.Artefact, record: CompilationRecord) -> Iterator[str]:
    """Kernels without the trace of their schedule, and traces that are none."""
    known = {trace.kernel for trace in record.traces}
    if len(known) != len(record.traces):
        yield "Two traces are for one kernel."
    for name in dict.fromkeys(launch.kernel for launch in artefact.launches):
        if name not in known and (artefact.device is None or name != COPY):
            yield f"There is no trace of the kernel {name}."
    for trace in record.traces:
        try:
            data = json.loads(trace.json)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            yield f"The trace of the kernel {trace.kernel} is damaged."
