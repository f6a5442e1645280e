"""`plica doctor`: what is installed, which targets work here, and why others do not."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Final

from plica import __version__
from plica.cli.command import Command
from plica.cli.machine import described_here, measured_here, show_machine
from plica.cli.progress import stdout_console
from plica.runtime.machine import MachineDescription

REQUIRED: Final[dict[str, str]] = {
    "attrs": "everything",
    "pyrsistent": "everything",
    "numpy": "everything",
    "ml_dtypes": "everything",
    "llvmlite": "compiling for processors",
    "rich": "the tables of the command line",
    "hypothesis": "checking rules (plica.check, plica rules check)",
    "onnx": "reading ONNX models (plica compile M.onnx)",
    "xgboost": "search (plica tune); compiling and running go without",
}
OPTIONAL: Final[dict[str, str]] = {
    "onnxruntime": "independent reference in tests, plica bench --against",
    "openvino": "plica bench --against",
    "torch": "models of torch, torch.compile, plica bench --against",
    "scipy": "independent reference in tests",
    "tinygrad": "benchmarks beside another compiler",
    "py-spy": "profiling",
}


@dataclass(frozen=True, slots=True)
class HostMachine:
    """The computer and the Python this process runs on."""

    python: str
    platform: str
    architecture: str
    cores: int
    cpu: str | None
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package Plica uses; `version` is None if it is not installed."""

    name: str
    version: str | None
    required: bool
    purpose: str


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """Whether a target's code can be built and run here; `reason` says what was tried."""

    name: str
    works: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Tool:
    """Another ability of this machine, and what was found."""

    name: str
    works: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ExtensionStatus:
    """Something that another package adds, and whether it can be loaded."""

    group: str
    name: str
    package: str
    works: bool
    reason: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Everything the doctor found."""

    version: str
    machine: HostMachine
    packages: tuple[InstalledPackage, ...]
    targets: tuple[TargetStatus, ...]
    tools: tuple[Tool, ...] = ()
    extensions: tuple[ExtensionStatus, ...] = ()
    described: MachineDescription | None = None
    """What default schedules are chosen by here: as it was measured, or by the table."""

    @property
    def healthy(self) -> bool:
        """Whether every required package is installed and the CPU target works."""
        missing = any(package.required and package.version is None for package in self.packages)
        return not missing and any(target.name == "cpu" and target.works for target in self.targets)


def examine() -> DoctorReport:
    """Look at this machine."""
    return DoctorReport(
        version=__version__,
        machine=_machine(),
        packages=(
            *(InstalledPackage(name, _version(name), True, use) for name, use in REQUIRED.items()),
            *(InstalledPackage(name, _version(name), False, use) for name, use in OPTIONAL.items()),
        ),
        targets=(_try_cpu(), *_other_processors(), _try_cuda(), _try_accel(), *_others()),
        tools=(_try_artefacts(), _try_libraries(), _try_store()),
        extensions=_extensions(),
        described=described_here(),
    )


def _version(package: str) -> str | None:
    for name in (package, f"{package}-cpu"):  # as what is without libraries of GPUs is called
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _machine() -> HostMachine:
    cpu, features = _host_cpu()
    return HostMachine(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        architecture=platform.machine(),
        cores=os.cpu_count() or 1,
        cpu=cpu,
        features=features,
    )


def _host_cpu() -> tuple[str | None, tuple[str, ...]]:
    """LLVM's name of this CPU, and the names of its features."""
    try:
        from plica.codegen.llvm.toolchain import host
    except (ImportError, OSError):
        return None, ()
    here = host()
    return here.cpu, tuple(sorted(each[1:] for each in here.features if each.startswith("+")))


def _try_cpu() -> TargetStatus:
    """Compile a function that adds two integers, and call it."""
    try:
        from llvmlite import binding, ir
    except (ImportError, OSError) as error:
        return TargetStatus("cpu", False, f"llvmlite cannot be imported: {error}.")
    word = ir.IntType(64)
    module = ir.Module("doctor")
    function = ir.Function(module, ir.FunctionType(word, (word, word)), "add")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.add(*function.args))
    try:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine()
        engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
        engine.finalize_object()
    except RuntimeError as error:
        return TargetStatus("cpu", False, f"LLVM cannot compile for this machine: {error}.")
    address = engine.get_function_address("add")
    total = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)(40, 2)
    if total != 42:
        return TargetStatus("cpu", False, f"A compiled 40 + 2 gave {total}.")
    llvm = ".".join(str(part) for part in binding.llvm_version_info)
    return TargetStatus(
        "cpu", True, f"LLVM {llvm} compiled a function for {machine.triple} and ran it."
    )


def _other_processors() -> tuple[TargetStatus, ...]:
    """Other kinds of processors: code for them is made everywhere, and run here where it can be."""
    from plica.codegen.backend import backend_named

    found = []
    cpu = backend_named("cpu")
    for name in cpu.spellings[1:]:
        why = cpu.why_not(cpu.parse(name))
        found.append(TargetStatus(name, not why, why or "Its code runs here."))
    return tuple(found)


def _try_cuda() -> TargetStatus:
    """Look for the compiler of CUDA C++, then for a GPU to run on."""
    from plica.codegen.cuda.toolchain import version
    from plica.runtime.cuda.driver import device, why_not

    if (made := version()) is None:
        missing = "NVRTC, the compiler of CUDA C++, is not installed"
        return TargetStatus("cuda", False, f"{missing}: pip install 'plica[cuda]'.")
    compiler = f"NVRTC {made[0]}.{made[1]}"
    if (why := why_not()) is not None:
        return TargetStatus("cuda", False, f"{compiler} makes code, but it cannot run here: {why}")
    here = device()
    return TargetStatus(
        "cuda", True, f"{compiler} makes code for {here.name} ({here.architecture})."
    )


def _try_accel() -> TargetStatus:
    """Accelerators are declared as data and run in simulators: one block is multiplied."""
    import numpy as np

    from plica.codegen.accel.conv import Convolution, ConvTiling, convolution
    from plica.codegen.accel.device import run
    from plica.codegen.accel.stream import build
    from plica.codegen.accel.vta import vta
    from plica.codegen.backend import backend_named

    layer = convolution(vta(), Convolution(16, 1, 1, 16, shift=0), ConvTiling(1, 1, 1, 1))
    one, all_ = np.ones((1, 1, 16), np.int8), np.ones((1, 16, 16), np.int8)
    works = bool((run(vta(), build(vta(), layer), {"x": one, "w": all_})["y"] == 16).all())
    names = ", ".join(backend_named("accel").spellings)
    found = f"Integer layers are offloaded to simulators of {names}"
    return TargetStatus("accel", works, f"{found}." if works else "The simulator miscalculates.")


TRIED: Final = frozenset(["cpu", "cuda", "accel"])
"""Targets for which something is compiled here and now."""


def _others() -> tuple[TargetStatus, ...]:
    """The targets of other installed libraries, as far as their records can be read."""
    from plica.codegen.backend import TARGETS, backend_named
    from plica.core.extension import installed_points
    from plica.runtime.error import UnsupportedError

    found = []
    added = {point.name for point in installed_points(TARGETS.name)}
    for name in sorted((added | TARGETS.own.keys()) - TRIED):
        try:
            backend = backend_named(name)
            missing = backend.missing()
            found.append(
                TargetStatus(name, not missing, missing or f"{backend.about.rstrip('.')}.")
            )
        except UnsupportedError as error:
            found.append(TargetStatus(name, False, f"Its record cannot be read: {error}."))
    return tuple(found)


def _extensions() -> tuple[ExtensionStatus, ...]:
    """What other packages add, and why some of it cannot be loaded."""
    from pkgutil import resolve_name

    from plica.core.extension import WHERE, installed_points
    from plica.runtime.error import PlicaError

    found = []
    for point in installed_points():
        works, reason = True, point.value
        if point.group not in WHERE:
            works, reason = False, f"There is no group {point.group}."
        else:
            group = resolve_name(WHERE[point.group])
            try:
                group.points()
                group.records(point)
            except PlicaError as error:
                works, reason = False, str(error)
        found.append(ExtensionStatus(point.group, point.name, str(point), works, reason))
    return tuple(found)


def _try_artefacts() -> Tool:
    """Whether object files can be loaded into a process here."""
    from plica.runtime.link import architecture, can_link

    where = f"{sys.platform} on {architecture()}"
    if can_link():
        return Tool("artefacts", True, f"Object files are loaded on {where}.")
    return Tool("artefacts", False, f"Object files are loaded on Linux only; this is {where}.")


def _try_libraries() -> Tool:
    """Whether `export` finds a C compiler."""
    wanted = os.environ.get("CC") or "cc"
    if (found := shutil.which(wanted)) is None:
        return Tool("libraries", False, f"There is no C compiler {wanted!r} to link them.")
    return Tool("libraries", True, f"{found} links them.")


def _try_store() -> Tool:
    """The location and size of the store."""
    from plica.runtime.store import user_store

    if (store := user_store()) is None:
        return Tool("store", False, "PLICA_CACHE turns it off.")
    count, size = store.size()
    return Tool("store", True, f"{store.folder}: {count} entries, {size} of {store.limit} bytes.")


def to_json(report: DoctorReport) -> str:
    """The report for programs."""
    return json.dumps({**asdict(report), "healthy": report.healthy}, indent=2)


def show(report: DoctorReport) -> None:
    """The report for people."""
    from rich.table import Table
    from rich.text import Text

    console = stdout_console()
    machine = report.machine
    console.print(Text(f"plica {report.version}", style="bold"))
    facts = Table.grid(padding=(0, 2))
    for label, value in (
        ("Python", machine.python),
        ("Platform", machine.platform),
        ("CPU", f"{machine.cpu or 'unknown'} ({machine.architecture}), {machine.cores} cores"),
        ("Features", ", ".join(machine.features) or "unknown"),
    ):
        facts.add_row(Text(label, style="bold"), Text(value))
    console.print(facts)

    if report.described is not None:
        console.print(show_machine(report.described))

    packages = Table("Package", "Version", "Needed for", title="Packages", title_justify="left")
    for package in report.packages:
        missing = "missing" if package.required else "not installed"
        style = "" if package.version else ("bold red" if package.required else "dim")
        packages.add_row(
            package.name, Text(package.version or missing, style=style), package.purpose
        )
    console.print(packages)

    targets = Table("Target", "Works", "Why", title="Targets", title_justify="left")
    for target in report.targets:
        works = Text("yes", style="green") if target.works else Text("no", style="yellow")
        targets.add_row(target.name, works, Text(target.reason))
    console.print(targets)

    tools = Table("Tool", "Works", "Why", title="Tools", title_justify="left")
    for tool in report.tools:
        works = Text("yes", style="green") if tool.works else Text("no", style="yellow")
        tools.add_row(tool.name, works, Text(tool.reason))
    console.print(tools)

    if report.extensions:
        added = Table("Group", "Name", "Package", "Loads", "Where, or why not",
                      title="Extensions", title_justify="left")  # fmt: skip
        for status in report.extensions:
            works = Text("yes", style="green") if status.works else Text("no", style="red")
            added.add_row(status.group, status.name, status.package, works, Text(status.reason))
        console.print(added)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure this machine, store the machine description, and show it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Examine and show; 0 when models can be compiled and run here."""
    if arguments.measure:
        measured_here()
    report = examine()
    if arguments.json or _version("rich") is None:
        print(to_json(report))
    else:
        show(report)
    return 0 if report.healthy else 1


COMMAND: Final = Command(
    "doctor",
    "Show versions, and which targets work here or why not",
    run,
    configure,
    ("plica doctor", "plica doctor --measure", "plica doctor --json"),
)
