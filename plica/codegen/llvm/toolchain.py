"""The toolchain: the effects of making native code with LLVM, and nothing else.

It detects this machine, optimises LLVM text, and compiles it to object files, which
`plica.runtime.link` loads. Some LLVM failures abort the process: objects for other machines are
compiled in a separate process.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

from attrs import frozen
from llvmlite import binding
from llvmlite.binding.newpassmanagers import NewPassManager

from plica.codegen.llvm.region import ENTRY
from plica.codegen.llvm.writer import PLAIN
from plica.codegen.machine_table import likely_processor
from plica.codegen.target import Target
from plica.core import CompilerBug
from plica.runtime.elf import MACHINES, header
from plica.runtime.error import ArtefactError, Diagnostic, UnsupportedError
from plica.runtime.host import features as system_features, lacking, unsaid
from plica.runtime.late import lazy_imports
from plica.runtime.link import can_link, link
from plica.runtime.machine import stored_description

with lazy_imports(__name__):
    from plica.codegen.llvm.aside import AsideAnswer, alone, aside, receive, send

_DIVISION: Final = re.compile(r"= [su](?:div|rem) i64 ")
_TOLD: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_SWITCHES: Final = Lock()
_ORDERS: Final = "-enable-misched"

_LEAVES_OUT: Final = (
    "-disable-cgp", "-disable-machine-cse", "-disable-machine-licm", "-disable-machine-sink",
    "-disable-copyprop", "-disable-post-ra",
)  # fmt: skip
"""Passes omitted for fast compilation: in scheduled loops they find next to nothing (the code of
three networks takes 0.98 to 1.02 of the time), and take a tenth of LLVM's time."""

_STANDS: Final[dict[str, bool]] = dict.fromkeys(_LEAVES_OUT, False)
"""The state of LLVM's switches, which LLVM does not report; untouched ones are missing and have the
machine's default."""

UNSCHEDULED: Final = ("wasm32", "wasm64")
"""Machines whose instructions LLVM leaves in the order in which they were selected."""


@frozen(eq=False)
class NativeCode:
    """Machine code in this process: its entry address, and the objects that keep it alive."""

    address: int
    engine: Any  # the linked code, or llvmlite's execution engine, which has no types


@lru_cache(maxsize=1)
def host() -> Target:
    """This machine as a target: as it was measured, if it was (`plica doctor --measure`)."""
    _prepare()
    triple: str = binding.get_process_triple()
    features: str = binding.get_host_cpu_features().flatten()
    kind = triple.partition("-")[0]
    given = tuple(features.split(",")) if features else ()
    given += unsaid(kind, given, system_features())
    # Features that the system does not enable are left out: artefacts are loaded by its report.
    off = set(lacking(kind, given, system_features()))
    found = Target(
        "cpu",
        triple,
        likely_processor(binding.get_host_cpu_name(), given),
        tuple([f"-{each[1:]}" if each[1:] in off else each for each in given]),
        caches=system_caches(),
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
    )
    measured = stored_description()
    return found if measured is None else found.described(measured)


def system_caches(folder: Path = _TOLD) -> tuple[int, ...]:
    """The sizes of the caches for data that the system tells of, from the nearest on."""
    found: dict[int, int] = {}
    for path in sorted(folder.glob("index*")):
        kind, level, size = [_line(path / name) for name in ("type", "level", "size")]
        number = size.rstrip("KMG")
        if kind in ("Data", "Unified") and level.isdigit() and number.isdigit():
            found[int(level)] = int(number) * _UNITS[size.removeprefix(number)]
    return tuple([found[level] for level in sorted(found)])


_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def _line(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""


def check_host(target: Target) -> None:
    """Refuse a target whose code this machine cannot run."""
    here = host()
    if target.triple != here.triple:
        message = f"Code for {target.triple} cannot run on this machine."
        raise UnsupportedError(Diagnostic("unsupported", message, None, here.triple, target.triple))


def llvm_version() -> str:
    """The version of LLVM that makes the code."""
    return ".".join(str(part) for part in binding.llvm_version_info)


def build(text: str, target: Target) -> NativeCode:
    """Compile LLVM text for this machine and load it."""
    check_host(target)
    if can_link():
        code = link((emit(text, target),))
        return NativeCode(code.address(ENTRY), code)
    machine = _machine(target, jit=True)
    module = _optimised(text, machine)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return NativeCode(engine.get_function_address(ENTRY), engine)


def emit(text: str, target: Target, level: int = 2) -> bytes:
    """The object file of LLVM text: the same text and level give the same bytes.

    At level 0 nothing is improved: what launches kernels is made in a quarter of the time.
    """
    if target.triple != host().triple:
        return cross(text, target)
    return _object(text, target, level)


def _object(text: str, target: Target, level: int = 2) -> bytes:
    machine = _machine(target, level=level)
    module = _optimised(text, machine, level)
    with _scheduled(target, level):
        made: bytes = machine.emit_object(module)
    return made


@contextmanager
def _scheduled(target: Target, level: int = 2) -> Iterator[None]:
    """Enables LLVM's instruction scheduling, unless compile time matters: it takes a seventh of
    LLVM's time.

    A process has one set of switches, and not all can be restored: so each compilation sets its
    own, one thread at a time.
    """
    with _SWITCHES:
        _turn(level != 1 and target.architecture not in UNSCHEDULED, soon=level == 1)
        yield


def _turn(ordered: bool, *, soon: bool = False) -> None:
    """Turn the switches that stand otherwise: LLVM reads one in the time of a short loop's code."""
    for switch, wanted in {_ORDERS: ordered, **dict.fromkeys(_LEAVES_OUT, soon)}.items():
        if _STANDS.get(switch) is not wanted:
            binding.set_option("", f"{switch}={str(wanted).lower()}")
            _STANDS[switch] = wanted


def restore() -> None:
    """Leave LLVM's switches to others as they like them, once a program is done."""
    with _SWITCHES:
        _turn(True)


def emit_static(text: str, target: Target, level: int = 2) -> bytes:
    """The object file of LLVM text that a linker puts at one place, whatever machine it is for."""
    machine = _machine(target, level=level, reloc="static")
    module = _optimised(_laid(text, machine), machine, level)
    with _scheduled(target, level):
        made: bytes = machine.emit_object(module)
    return made


def assembly_static(text: str, target: Target) -> str:
    """The same as assembly."""
    machine = _machine(target, reloc="static")
    module = _optimised(_laid(text, machine), machine)
    with _scheduled(target):
        found: str = machine.emit_assembly(module)
    return found


def _laid(text: str, machine: Any) -> str:
    """The text for a machine whose addresses are not those of this one: LLVM counts bytes by it."""
    return f'target datalayout = "{machine.target_data}"\n{text}'


def cross(text: str, target: Target) -> bytes:
    """The object file of LLVM text for another machine, made in a process that may fail."""
    answer = apart(text, target, "emit")
    if answer.code:
        message = f"LLVM makes no code for {target.triple}."
        lines = answer.said.strip().splitlines()
        found = lines[-1] if lines else f"exit code {answer.code}"
        raise UnsupportedError(Diagnostic("unsupported", message, found=found))
    try:
        header(answer.made)
    except ArtefactError as error:
        message = f"Plica makes no artefacts for {target.triple}."
        expected = f"Linux on {', '.join(MACHINES.values())}"
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, expected, target.triple)
        ) from error
    return answer.made


def apart(text: str, target: Target, wanted: str) -> AsideAnswer:
    """LLVM's result from a separate process, which may fail.

    `wanted` is `emit` for an object, or `optimise` for text, also for everything LLVM reports about
    the machine.
    """
    words = [target.name, target.triple, target.cpu, list(target.features)]
    asked = json.dumps({"target": words, "text": text, "wanted": wanted}).encode()
    return aside(asked) if wanted == "emit" else alone(asked)


def serve() -> None:
    """The main loop of the other process: text in, an object or text out."""
    while (request := receive(sys.stdin.buffer)) is not None:
        given = json.loads(request)
        name, triple, cpu, features = given["target"]
        target = Target(name, triple, cpu, tuple(features))
        if given["wanted"] == "optimise":
            machine, module = _machine(target), _parsed(given["text"])
            _improve(module, machine, plain=True)
            machine.emit_object(module)
            made = str(module).encode()
        else:
            made = _object(given["text"], target)
        send(sys.stdout.buffer, made)


def optimised(text: str, target: Target) -> str:
    """The LLVM text after optimisation."""
    return str(_optimised(text, _machine(target)))


def assembly(text: str, target: Target) -> str:
    """The machine code of LLVM text, as assembly."""
    machine = _machine(target)
    module = _optimised(text, machine)
    with _scheduled(target):
        found: str = machine.emit_assembly(module)
    return found


def _optimised(text: str, machine: Any, level: int = 2) -> Any:
    try:
        module = _parsed(text)
        module.verify()
    except RuntimeError as error:
        raise CompilerBug(f"LLVM refuses the generated code: {error}") from error
    if level:
        _improve(module, machine, PLAIN in text, level, vectors=_DIVISION.search(text) is None)
    return module


def _parsed(text: str) -> Any:
    """A module in its own context, released with it.

    The global context would keep all constants and types of all modules.
    """
    return binding.parse_assembly(text, binding.create_context())


def _improve(
    module: Any, machine: Any, plain: bool, level: int = 2, *, vectors: bool = True
) -> None:
    """Optimise a module; all of LLVM's passes are needed only where loops are plain.

    Loops with division in their indices are never vectorised by LLVM: it gains nothing, and two of
    its cost estimates may disagree, which aborts the process (LLVM 22).
    """
    # One for each module: a run leaves its maker pointers into its own stack (llvmlite 0.50), so a
    # second run from elsewhere would be wrong.
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = plain and vectors
    options.slp_vectorization = plain and vectors  # scalars beside one another, such as scales
    options.loop_unrolling = level > 1  # copies of plain loops take longest, and gain least
    builder = binding.create_pass_builder(machine, options)
    passes = builder.getModulePassManager() if plain else _few_passes()
    passes.run(module, builder)
    # `close` frees nothing: the class inherits the empty `_dispose` of its first base (llvmlite
    # 0.50).
    NewPassManager._dispose(passes)
    passes.detach()


def _few_passes() -> Any:
    """What loops that were scheduled still need.

    GVN and instruction combining find little, because the emitter writes each address once, and
    take longer than all of these; instruction selection finds the rest.
    """
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_global_dead_code_eliminate_pass()
    return passes


@lru_cache(maxsize=16)
def _machine(target: Target, jit: bool = False, level: int = 2, reloc: str = "pic") -> Any:
    """LLVM's target machine; linked code uses a small code model, JIT code may be anywhere."""
    _prepare()
    if target.triple != binding.get_process_triple():
        _prepare_others()
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=",".join(target.features),
        opt=level,
        reloc=reloc,
        codemodel="jitdefault" if jit else "small",
        jit=jit,
        abiname="lp64d" if target.architecture == "riscv64" and target.has("d") else "",
    )


@lru_cache(maxsize=1)
def _prepare() -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # The functions of the C library for mathematics must be found in this process.
    if sys.platform == "linux":
        binding.load_library_permanently("libm.so.6")


@lru_cache(maxsize=1)
def _prepare_others() -> None:
    """Make code for other machines too."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
