"""The pipeline: from a module to something one can call.

First the graph is optimised, with the rules a user asks for, and its operators are grouped into
kernels (`plica.codegen.lower.prepare`).  Each kernel takes its schedule from a tuning database or
from rules of thumb.  Then come the memory plan, the fold into LLVM, the toolchain.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph import Function, Var
>>> from plica.ir.module import module
>>> from plica.ir.type import tensor
>>> x = Var(Name("x"), tensor((3,), "f32"))
>>> main = Var(Name("main"), None)
>>> exe = compile(module({main: Function((), (), (x,), None, x * 2.0)}, main))
>>> exe(np.array([1, 2, 3], np.float32))
array([2., 4., 6.], dtype=float32)
>>> exe.inputs[0].type
'Tensor[(3,), f32]'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakValueDictionary

import numpy as np
from attrs import evolve, frozen

from plica import __version__
from plica.codegen.accel.target import AccelTarget, parse_accel
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.cuda.toolchain import version as nvrtc_version
from plica.codegen.cuda.unit import cubins, unit
from plica.codegen.dynamic import build as dynamic
from plica.codegen.dynamic.decide import static_form
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import AnyPlan, fold, kernel_name, launches
from plica.codegen.llvm.processor import known
from plica.codegen.llvm.unit import fingerprint, units
from plica.codegen.lower.prepare import grouped, prepared
from plica.codegen.lower.scheduled import machine_of
from plica.codegen.lower.sequence import sequence
from plica.codegen.open_place import place_open
from plica.codegen.place import Plan, place
from plica.codegen.program import Program, Slot
from plica.codegen.record import kernels, recorded
from plica.codegen.target import Target, parse, unknown_target
from plica.codegen.work import operations
from plica.core.collector import paused
from plica.core.digest import digest
from plica.frontend.specialised import Specialised, at_call, size_text
from plica.ir.dim import known as size_of
from plica.ir.dtype import DType
from plica.ir.graph import Const, Function, attr
from plica.ir.infer import infer
from plica.ir.module import Module
from plica.ir.script import Scripted
from plica.ir.type import TensorType, TupleType, Type
from plica.rewrite.contract import KNOWN, Contract, exact, fused, named, reassociates, signless_zero
from plica.rewrite.derivation import Derivation
from plica.rewrite.history import History
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.rewrite.packs import find_pack
from plica.runtime import archive
from plica.runtime.artefact import (
    ALIGNMENT,
    Artefact,
    Machine,
    Record,
    Tenant,
    aligned_array,
    from_members,
    to_members,
)
from plica.runtime.cuda.code import TRIPLE as CUDA_TRIPLE
from plica.runtime.cuda.driver import architecture_here
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.cuda.step import DeviceProgram
from plica.runtime.cuda.step import arranged as arranged_on_device
from plica.runtime.error import ArtefactError, Diagnostic, Place, UnsupportedError
from plica.runtime.executable import Executable, Interface, Shape
from plica.runtime.host import cores
from plica.runtime.link import can_link
from plica.runtime.load import executable
from plica.runtime.open_executable import OpenExecutable
from plica.runtime.open_port import OpenPort
from plica.runtime.port import Array, Port
from plica.runtime.profile import Launched
from plica.runtime.store import Store, key_of, user_store
from plica.schedule.default import Machine as ScheduleMachine
from plica.schedule.default.gpu import Gpu
from plica.search.choice import Choices, Records, Row, choices, records_of, table
from plica.search.record import Database
from plica.search.record import fingerprint as machine_name
from plica.search.task import tasks_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from plica.runtime.accel.executable import AccelExecutable

_compiled: Final[WeakValueDictionary[object, Executable]] = WeakValueDictionary()


@frozen
class Lowered:
    """Everything known before native code is made: a value, the same wherever it is computed."""

    module: Module
    derivation: Derivation
    program: Program
    plan: AnyPlan
    final: Module
    """The module that was sequenced."""
    fused: bool = False
    """Whether `a * b + c` may be rounded once."""
    signless: bool = False
    """Whether a zero may have another sign."""
    asked: str = ""
    """The contract within which rules were used."""
    packs: tuple[str, ...] = ()
    """The names of the packs that were asked for."""
    tuning: tuple[Row, ...] = ()
    """Which kernels have a schedule of a tuning database, and why others have none."""


def compile(  # noqa: PLR0917  # the public surface says so
    mod: Module | Scripted | str | PathLike[str] | ModelProto,
    target: str | Target | GpuTarget | AccelTarget = "cpu",
    threads: int | None = None,
    database: Database | str | PathLike[str] | None = None,
    cache: bool = True,
    packs: str | Pack | Sequence[str | Pack] = (),
    contract: Contract | str | None = None,
) -> Executable:
    """Native code for a module, or for an ONNX model: a path, or a `ModelProto`.

    Where a size is open, one code serves every size (`plica.runtime.open_executable`).  Where a
    shape depends on the values of inputs, the code is made when it is called, once for each choice
    of them, and kept (`plica.frontend.specialised`).
    The code runs on so many `threads`, as many as this process has cores if none are given.  With
    `cache` a module that is still compiled somewhere in this process is shared, and what was made
    before is taken from the store of this user (`plica.runtime.store`).  The rules of the `packs`,
    by name or as they are, rewrite the module first, then Plica's own; only rules within the
    `contract` are used (`approx(1e-4)` if none is given), and the code rounds products before they
    are added unless it is `fused` or looser.  From a tuning `database` (`plica.tune`) each kernel
    takes the best schedule that was found for this machine; `exe.tuning` says which and why.
    """
    _check_options(threads, database)
    machine = target_of(target)
    wanted = (packs,) if isinstance(packs, str | Pack) else tuple(packs)
    kept = contract_of(contract)
    chosen = packs_of(wanted, kept)
    later_on = partial(
        compile,
        target=machine,
        threads=threads,
        database=database,
        cache=cache,
        packs=packs,
        contract=contract,
    )
    module = at_call(mod, later_on)
    if isinstance(module, Specialised):
        whole = module.whole
        if whole is None or not isinstance(machine, Target) or not can_link():
            return module
        count = cores() if threads is None else threads
        try:
            opened = _compiled_for_cpu(whole, machine, count, kept, chosen, wanted, database, cache)
        except UnsupportedError:
            return module  # some operator of it must know its sizes
        assert isinstance(opened, OpenExecutable)
        return opened.beside(module)
    if isinstance(machine, AccelTarget):
        key = (module, machine, kept, chosen, threads)
        shared = cache and database is None  # what a database holds changes
        same = _compiled.get(key) if shared else None
        if same is None:
            same = on_accelerator(module, machine, partial(later_on, target="cpu"), database)
            if shared:
                _compiled[key] = same
        return same
    if isinstance(machine, GpuTarget):
        known_ = None if database is None else read_records(database, machine)
        return _compiled_for_gpu(module, machine, kept, chosen, wanted, known_, cache)
    count = cores() if threads is None else threads
    machine_ = evolve(machine, cores=count)
    static = static_form(module)
    if static is None:
        return _compiled_with_objects(module, machine_, kept, chosen, database, cache)
    module = static
    return _compiled_for_cpu(module, machine, count, kept, chosen, wanted, database, cache)


def _compiled_for_cpu(  # noqa: PLR0917  # all that decides what the code will be
    module: Module,
    machine: Target,
    count: int,
    kept: Contract,
    chosen: tuple[Pack, ...],
    wanted: tuple[str | Pack, ...],
    database: Database | str | PathLike[str] | None,
    cache: bool,
) -> Executable:
    """Native code for a module without objects, whose sizes may be open."""
    machine_ = evolve(machine, cores=count)
    records = None if database is None else read_records(database, machine_)
    found = "" if records is None else records.digest
    key = (module, machine, kept, chosen, count, found)
    same = _compiled.get(key) if cache else None
    if same is not None:
        return same
    store = user_store() if cache and can_link() and module.main is not None else None
    later = lru_cache(maxsize=1)(partial(lower, module, kept, chosen, machine_, records))
    # What a user's own rules are made of has no digest.
    named_ = store is not None and all(isinstance(each, str) for each in wanted)
    names = [str(each.name) for each in module.main_function().params] if named_ else []
    where = f"{names} {wanted} {kept} {count} {machine!r} {found}"
    entry = key_of("module", digest(module), where, fingerprint()) if named_ else ""
    stored = store.get(entry) if store is not None and entry else None
    with paused():  # nothing the compiler makes is cyclic
        artefact = None if stored is None else _reread(stored, lambda: record(later()))
        if artefact is not None:
            made = executable(artefact, texts=_texts(later, machine, tuned=records is not None))
        else:
            made = build(later(), machine, count, store)
            if store is not None and entry:
                store.put(entry, archive.pack(to_members(made.artefact, with_record=False)))
    if cache:
        _compiled[key] = made
    return made


def _compiled_for_gpu(  # noqa: PLR0917  # as above
    module: Module,
    target: GpuTarget,
    contract: Contract,
    packs: tuple[Pack, ...],
    wanted: Sequence[str | Pack],
    records: Records | None,
    cache: bool,
) -> Executable:
    """The same for a GPU: what is kept is the artefact of the module, and the code of its text."""
    found = "" if records is None else records.digest
    key = (module, target, contract, packs, 0, found)
    same = _compiled.get(key) if cache else None
    if same is not None:
        return same
    store = user_store() if cache else None
    later = lru_cache(maxsize=1)(partial(lower, module, contract, packs, target, records))
    entry = ""
    if store is not None and all(isinstance(each, str) for each in wanted):
        names = [str(each.name) for each in module.main_function().params]
        where = f"{names} {wanted} {contract} {target!r} {found} {nvrtc_version()}"
        entry = key_of("gpu-module", digest(module), where, fingerprint())
    stored = store.get(entry) if store is not None and entry else None
    with paused():
        artefact = None if stored is None else _reread(stored, lambda: record(later()))
        if artefact is None:
            artefact = assemble_for_gpu(later(), target, store)
            if store is not None and entry:
                store.put(entry, archive.pack(to_members(artefact, with_record=False)))
    made = executable(artefact, texts=_gpu_texts(later, artefact, tuned=records is not None))
    if cache:
        _compiled[key] = made
    return made


def _compiled_with_objects(  # noqa: PLR0917  # as `compile`
    module: Module,
    machine: Target,
    contract: Contract,
    chosen: tuple[Pack, ...],
    database: object,
    cache: bool,
) -> Executable:
    """Native code of a program that is no graph: with data, recursion, functions as values."""
    if database is not None:
        message = "Schedules are tuned for programs without data and recursion only."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "None", str(database)))
    key = ("objects", module, machine, contract, chosen)
    same = _compiled.get(key) if cache else None
    if same is not None:
        return same
    store = user_store() if cache and can_link() else None
    with paused():
        lowered = dynamic.lower(infer(module), contract, chosen, machine)
        versions = (("plica", __version__),)
        made = dynamic.build(lowered, machine, machine.cores, store, versions)
    if cache:
        _compiled[key] = made
    return made


def _reread(stored: bytes, later: Callable[[], Record]) -> Artefact | None:
    """The artefact in an entry of the store, None if the entry holds something else."""
    try:  # the store has compared digests
        return from_members(archive.unpack(stored, checked=True), later, checked=True)
    except ArtefactError:
        return None


def contract_of(given: Contract | str | None) -> Contract:
    """The contract meant by a name, or the default."""
    if given is None:
        return DEFAULT_CONTRACT
    found = named(given) if isinstance(given, str) else given
    if isinstance(found, Contract):
        return found
    message = "This float contract is not known."
    raise UnsupportedError(Diagnostic("unsupported", message, None, KNOWN, repr(given)))


def packs_of(wanted: Sequence[str | Pack], contract: Contract) -> tuple[Pack, ...]:
    """The packs meant; one that would do nothing under the contract is refused."""
    chosen = tuple(find_pack(each) if isinstance(each, str) else each for each in wanted)
    wrong = []
    for each in chosen:
        if not isinstance(each, Pack):
            message = "This is no rule pack."
            wrong.append(Diagnostic("unsupported", message, None, "a name or a Pack", repr(each)))
        elif len(each) and not len(each.within(contract)):
            message = f"No rule of the pack {each.name} is within the contract {contract}."
            hint = f"Ask for it: contract='{each.contract}'."
            found = f"{each.name} keeps {each.contract}"
            wrong.append(Diagnostic("unsupported", message, None, str(contract), found, hint))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
    return chosen


def lower(
    module: Module,
    contract: Contract = DEFAULT_CONTRACT,
    packs: Sequence[Pack] = (),
    target: Target | GpuTarget | None = None,
    records: Records | None = None,
) -> Lowered:
    """The program of a module and its memory plan; with a target, scheduled for it.

    Where there are records of tuning, they come before rules of thumb.
    """
    machine = machine_of(target) if isinstance(target, Target) else None
    history = grouped(prepared(module, contract, packs, machine))
    return evolve(
        arranged(history, target, contract, records),
        fused=contract >= fused,
        signless=contract >= signless_zero,
        asked=str(contract),
        packs=tuple([each.name for each in packs]),
    )


def sequenced(
    history: History, target: Target | GpuTarget | None = None, contract: Contract = exact
) -> Lowered:
    """The program of an inferred module, as it is, and its memory plan."""
    return arranged(grouped(history), target, contract)


def arranged(
    history: History,
    target: Target | GpuTarget | None,
    contract: Contract,
    records: Records | None = None,
) -> Lowered:
    """The program of a module that went through all passes, and its memory plan."""
    machine: ScheduleMachine | Gpu | None = None
    if target is not None:
        machine = target.gpu if isinstance(target, GpuTarget) else machine_of(target)
    found = Choices({}, ())
    if records is not None and machine is not None:
        found = choices(tasks_of(history.module, machine, contract), records, machine)
    program = sequence(
        history.module,
        machine,
        reassociates=contract >= reassociates,
        approximates=contract > reassociates,
        chosen=found.chosen,
    )
    source = history.derivation.source
    assert isinstance(source, Module)
    plan = place_open(program) if program.dims else place(program)
    whole = Lowered(source, history.derivation, program, plan, history.module)
    return evolve(whole, tuning=found.rows)


def build(
    lowered: Lowered, target: Target, threads: int = 1, store: Store | None = None
) -> Executable:
    """Native code for a lowered module, loaded into this process."""
    program, plan = lowered.program, lowered.plan
    texts = _texts(lambda: lowered, target, tuned=bool(lowered.tuning))
    toolchain.check_host(target)
    if can_link():
        return executable(assemble(lowered, target, threads, store), texts=texts)
    native = toolchain.build(fold(program, plan, target, lowered.fused, lowered.signless), target)
    return Executable(
        native.address,
        interface(lowered.module.main_function(), program),
        constants=[_bytes(each) for each in program.constants],
        workspace=plan.size if isinstance(plan, Plan) else 0,
        sources=[launch.source for launch in launches(program)],
        texts=texts,
        target=str(target),
        keep=native,
    )


def assemble(
    lowered: Lowered, target: Target, threads: int = 1, store: Store | None = None
) -> Artefact:
    """All that will be loaded, here or elsewhere: the target need not be this machine."""
    program, plan = lowered.program, lowered.plan
    return Artefact(
        interface(lowered.module.main_function(), program),
        Machine(target.triple, target.cpu, target.features),
        threads,
        units(program, plan, target, lowered.fused, store, lowered.signless).objects,
        tuple([_bytes(each) for each in program.constants]),
        plan.size if isinstance(plan, Plan) else 0,
        tuple([launch.source for launch in launches(program)]),
        tuple(
            [
                Launched(
                    kernel_name(each.kernel, program),
                    operations(program.kernels[each.kernel]),
                    0 if program.dims else sum(program.slots[slot].bytes for slot in each.args),
                )
                for each in launches(program)
            ]
        ),
        _tenants(plan) if isinstance(plan, Plan) else (),
        (("llvm", toolchain.llvm_version()), ("plica", __version__)),
        partial(record, lowered),
    )


def _tenants(plan: Plan) -> tuple[Tenant, ...]:
    """Who lives where in the workspace."""
    return tuple(
        [
            Tenant(offset, each.size, each.born, each.last, each.view_of, each.in_place_of)
            for each, offset in zip(plan.memory.tenants, plan.memory.offsets, strict=True)
        ]
    )


def _texts(
    lowered: Callable[[], Lowered], target: Target, *, tuned: bool = False
) -> dict[str, Callable[[], str]]:
    """The code at each stage, made when somebody asks for it."""

    def llvm() -> str:
        of = lowered()
        return fold(of.program, of.plan, target, of.fused, of.signless)

    found = {
        "kernel": lambda: kernels(lowered().program),
        "llvm": llvm,
        "asm": lambda: toolchain.assembly(llvm(), target),
    }
    if tuned:
        found["tuning"] = lambda: table(lowered().tuning)
    return found


def record(lowered: Lowered) -> Record:
    """Where the code of a lowered module comes from."""
    of = lowered
    return recorded(of.derivation, of.final, of.program, of.asked, of.packs)


def target_of(of: str | Target | GpuTarget | AccelTarget) -> Target | GpuTarget | AccelTarget:
    """The target meant: a processor, a GPU, or an accelerator beside a processor."""
    if isinstance(of, GpuTarget | AccelTarget):
        return of
    accel = parse_accel(of) if isinstance(of, str) else None
    if accel is not None:
        return accel
    gpu = parse_gpu(of, architecture_here) if isinstance(of, str) else None
    return gpu or find_target(of)


def find_target(of: str | Target) -> Target:
    """The processor meant: this one, one that differs from it as said, or one given in full."""
    if not isinstance(of, str | Target):
        raise unknown_target(of)
    return known(of if isinstance(of, Target) else parse(of, toolchain.host()))


def on_gpu(lowered: Lowered, target: GpuTarget) -> CudaExecutable:
    """Code for a GPU, loaded onto the one of this machine."""
    artefact = assemble_for_gpu(lowered, target)
    texts = _gpu_texts(lambda: lowered, artefact, tuned=bool(lowered.tuning))
    return CudaExecutable(artefact, texts=texts)


def assemble_for_gpu(lowered: Lowered, target: GpuTarget, store: Store | None = None) -> Artefact:
    """All that will be loaded onto a GPU, here or elsewhere: none need be here."""
    program, plan = lowered.program, lowered.plan
    assert isinstance(plan, Plan)  # sizes are known on a GPU
    made = unit(program)
    layout = arranged_on_device(
        [slot.bytes for slot in program.slots],
        [slot.space for slot in program.slots],
        plan.where,
        plan.size,
        made.scratch,
    )
    codes = cubins(made, target.architecture, fused=lowered.fused, store=store)
    return Artefact(
        interface(lowered.module.main_function(), program),
        Machine(CUDA_TRIPLE, target.architecture, ()),
        1,
        codes,
        tuple([_bytes(each) for each in program.constants]),
        plan.size,
        (),
        made.launched,
        _tenants(plan),
        (("nvrtc", ".".join(map(str, nvrtc_version() or ()))), ("plica", __version__)),
        partial(record, lowered),
        DeviceProgram(made.steps, layout),
        made.text,
    )


def _gpu_texts(
    lowered: Callable[[], Lowered], artefact: Artefact, *, tuned: bool
) -> dict[str, Callable[[], str]]:
    """The code at each stage."""
    found = {"kernel": lambda: kernels(lowered().program), "cuda": lambda: artefact.text}
    if tuned:
        found["tuning"] = lambda: table(lowered().tuning)
    return found


def on_accelerator(
    module: Module,
    target: AccelTarget,
    native: Callable[[Module], Executable],
    database: Database | str | PathLike[str] | None = None,
) -> AccelExecutable:
    """A model whose integer layers run on an accelerator, and the rest as native code.

    Tilings of a `database` are taken where they are the best.
    """
    # Few ask for it, and it is much: everybody else should not wait for it.
    from plica.codegen.accel.offload import assembled, offload
    from plica.runtime.accel.executable import AccelExecutable
    from plica.search.accel.layers import recorded

    split = offload(module, target)
    parts = [native(each.module) for each in split.stages]
    main = infer(module).main_function()
    assert main.ret is not None
    takes = TupleType(tuple([param.type for param in main.params if param.type is not None]))
    face = faced(main, _slots("input", takes), _slots("output", main.ret))
    versions = (("llvm", toolchain.llvm_version()), ("plica", __version__))
    made_of = partial(assembled, split, [each.artefact for each in parts], face, versions)
    if database is None:
        whole = made_of()
    elif isinstance(database, Database):
        whole = made_of(partial(recorded, database, target.machine))
    else:
        with Database(database) as opened:
            whole = made_of(partial(recorded, opened, target.machine))
    made = iter(parts)
    texts = {kind: partial(_joined, parts, kind) for kind in ("kernel", "llvm", "asm")}
    return AccelExecutable(whole, lambda _: next(made), texts)


def _joined(parts: Sequence[Executable], kind: str) -> str:
    """The sources of all native parts, one after the other."""
    return "\n".join([each.source(kind) for each in parts])


def _slots(space: Literal["input", "output"], of: Type) -> list[Slot]:
    """A slot for each tensor of a type whose sizes are known."""
    found: list[Slot] = []
    stack = [of]
    while stack:
        each = stack.pop()
        if isinstance(each, TupleType):
            stack += reversed(each.items)
            continue
        assert isinstance(each, TensorType)  # `offload` has resolved the module
        sizes = tuple([size_of(size) or 0 for size in each.shape])
        assert isinstance(each.dtype, DType)
        found.append(Slot(space, len(found), sizes, each.dtype))
    return found


def interface(main: Function, program: Program) -> Interface:
    """The names and types a caller sees; a tuple's tensors are named after it."""
    return faced(main, program.space("input"), program.space("output"))


def faced(main: Function, slots: Sequence[Slot], space: Sequence[Slot]) -> Interface:
    """The same, from what is taken and what is given."""
    inputs: list[Port] = []
    params: list[tuple[str, Shape]] = []
    for param in main.params:
        assert param.type is not None
        params.append((str(param.name), _ports(str(param.name), param.type, slots, inputs)))
    assert main.ret is not None
    outputs: list[Port] = []
    names = attr(main, "outputs")
    single = not isinstance(main.ret, TupleType)
    if names is None:
        _ports("output", main.ret, space, outputs)
    else:  # a model that was read has names for what it gives
        parts = main.ret.items if isinstance(main.ret, TupleType) else (main.ret,)
        for each, of in zip(names, parts, strict=True):
            _ports(each, of, space, outputs)
    ranges = tuple(attr(main, "dim_ranges", ()))
    return Interface(tuple(params), tuple(inputs), tuple(outputs), single, ranges)


def _ports(name: str, type: Type, slots: Sequence[Slot], into: list[Port]) -> Shape:
    """Add a port for each tensor of a type, and say where they are."""
    if isinstance(type, TupleType):
        inside = [_ports(f"{name}[{i}]", item, slots, into) for i, item in enumerate(type.items)]
        return tuple(inside)
    slot = slots[len(into)]
    if all(isinstance(each, int) for each in slot.shape):
        into.append(Port(name, slot.fixed, slot.dtype.name, slot.dtype.numpy))
    else:
        shape = tuple([each if isinstance(each, int) else size_text(each) for each in slot.shape])
        into.append(OpenPort(name, shape, slot.dtype.name, slot.dtype.numpy))
    return len(into) - 1


def _bytes(of: Const) -> Array:
    """The bytes of a constant at a multiple of 64, where they are if they are at one already."""
    found = np.frombuffer(of.data or b"\0", np.uint8)  # an empty one needs some address too
    if found.__array_interface__["data"][0] % ALIGNMENT == 0:
        return found
    copy = aligned_array(found.size)
    copy[:] = found
    return copy


def read_records(database: Database | str | PathLike[str], target: Target | GpuTarget) -> Records:
    """What a tuning database knows of a machine."""
    name = machine_name(target)
    if isinstance(database, Database):
        return records_of(database, name)
    with Database(database) as found:
        return records_of(found, name)


def _check_options(threads: int | None, database: object) -> None:
    wrong = []
    if threads is not None and (type(threads) is not int or threads < 1):
        message = "The number of threads must be a whole number, at least 1."
        wrong.append(Diagnostic("unsupported", message, None, "1 or more, or None", repr(threads)))
    if isinstance(database, str | PathLike) and not Path(database).is_file():
        message = "There is no tuning database at this path."
        hint = "plica.tune makes one."
        wrong.append(Diagnostic("no-source", message, Place(file=str(database)), None, None, hint))
    elif not isinstance(database, Database | str | PathLike | None):
        message, expected = "This is no tuning database.", "a path, or a Database"
        wrong.append(Diagnostic("unsupported", message, None, expected, repr(database)))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
