"""Units: the object files of a program, one per kernel, so that unchanged kernels are reused. Code
shared by kernels has its own object (`plica.codegen.llvm.common_nest`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from attrs import evolve, frozen

from plica.codegen.llvm import pool, profile, toolchain
from plica.codegen.llvm.fold import alone, fold, kernel_text, regions_text, variants
from plica.codegen.llvm.loop_context import RegionOutside
from plica.codegen.llvm.region import Callee, Variant
from plica.codegen.lower.passes import digest_of
from plica.codegen.program import Program, kernel_name
from plica.codegen.target import Target
from plica.codegen.workers import GroupTask, Workers, together
from plica.core import Memo
from plica.core.deadline import check_deadline
from plica.ir.loop.statement import Kernel
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.host import cores
from plica.runtime.late import lazy_imports
from plica.runtime.store import ArtefactStore, key_of

# Of kernels that know all of their sizes none is shared, of one alone nothing.
with lazy_imports(__name__):
    from plica.analysis.constant_bound import Interval
    from plica.codegen.llvm.common_nest import CommonNest, NestCall, common_nests, nest_call
    from plica.codegen.llvm.fold import Text
    from plica.codegen.llvm.kernel_sharing import Shared, sharing
    from plica.codegen.llvm.line_map import with_lines, write_source
    from plica.codegen.open_memory_plan import AnyPlan

OBJECT: Final = b"\x7fELF"  # what every object in the store begins with
FAILS: Final = 1
SHARES: Final = 2
KERNEL_PREFIX: Final = "k."
NEST_PREFIX: Final = "n."
NAME_PLACEHOLDER: Final = f"{KERNEL_PREFIX}{'?' * 24}"
"""A placeholder for the function's name in a kernel's text."""


@frozen
class Units:
    """The objects of a program, and the names of the kernels that had to be compiled."""

    objects: tuple[bytes, ...]
    compiled: tuple[str, ...]


@frozen
class ObjectOptions:
    """The options of a kernel's object: the machine, contraction, signs of zeros, and optimisation
    level."""

    target: Target
    contract: bool = False
    signless: bool = False
    level: int = 2
    label: str = ""  # the kernel's name in line tables, where the target has them

    def __str__(self) -> str:
        """The options in keys, besides the machine's facts."""
        lines = f" {self.label} {self.target.debug}" if self.label else ""
        return f"{self.contract and self.target.has_fma} {self.signless} {self.level}{lines}"

    def named(self, kernel: str) -> ObjectOptions:
        """The options of a kernel of that name."""
        return evolve(self, label=kernel) if self.target.debug else self

    def text(
        self,
        kernel: Kernel,
        over: int | None,
        name: str,
        bounds: tuple[Interval, ...] = (),
        nests: tuple[NestCall, ...] = (),
    ) -> Text:
        """The function of a kernel, whose name derives from all of this (`kernel_key`)."""
        how = self.target, self.contract, self.signless
        if self.label:
            return with_lines(kernel, over, name, *how, self.label)
        write = partial(kernel_text, kernel, over, name, *how, bounds, nests)
        return write() if name == NAME_PLACEHOLDER else TEXTS.found(name, write)

    def begun(self, text: Text, name: str, renamed: str | None = None) -> Callable[[], bytes]:
        """What LLVM still has to do for the entry of a function, which may get another name."""
        whole = alone(text, name, self.target, self.contract)
        if renamed is not None:
            whole = whole.replace(name, renamed)
        flags = bytes([FAILS * text.can_fail | SHARES * text.shares])  # what callers have to know
        return lambda: flags + emitted(whole, self.target, self.level)


def units(  # noqa: PLR0917  # as `fold`, where objects are kept, and who makes them
    program: Program,
    plan: AnyPlan,
    target: Target,
    contract: bool = False,
    store: ArtefactStore | None = None,
    signless: bool = False,
    level: int = 2,
    workers: Workers | None = None,
) -> Units:
    """The objects of a program, from the store where it has them; LLVM improves them by `level`.

    For another machine everything is one object, because each is compiled in a separate process.
    """
    if target.triple != toolchain.host().triple:
        if target.debug:
            raise _no_lines(target)
        whole = fold(program, plan, target, contract, signless)
        return Units((made(whole, target, store),), program.names)
    options = ObjectOptions(target, contract, signless, level)
    used = variants(program, plan)
    written: dict[Kernel, Text] = {}  # what was looked at before anybody had a name
    served = serving([program.kernels[number] for number, _ in used], options, written)
    nests = _Nests(options, store)
    keyed = _keyed(program, used, served, nests)
    entries: dict[str, bytes] = {}
    tasks: dict[str, GroupTask] = {}
    for key, task in keyed:
        entry = stored_entry(store, key, partial(_done, task), task.name)
        if entry is None:
            tasks[key] = task
        else:
            entries[key] = entry
    entries |= _compiled(tasks, nests, written, workers)
    toolchain.restore()
    if store is not None:
        for key in tasks:
            store.put(entry_key(key), entries[key])
        for key in nests.waiting:
            store.put(entry_key(key), nests.entries[key])
    callees = {
        variant: Callee(task.args[2], bool(entries[key][0] & FAILS), told)
        for variant, (key, task), (_, told) in zip(used, keyed, served, strict=True)
    }
    every = [made(regions_text(program, plan, target, callees), target, store, level=0)]
    every += [entries[key][1:] for key in dict(keyed)]
    every += [nests.entries[key][1:] for key in nests.called]
    every.append(made(profile.peak(target), target, store))
    if any(each[0] & SHARES for each in entries.values()):
        head = f'target triple = "{target.triple}"\n'
        every.append(made(head + pool.text(target.triple), target, store))
    return Units(tuple(every), tuple([group_task.name for group_task in tasks.values()]))


def _no_lines(target: Target) -> UnsupportedError:
    message = "Line tables are made for processors of this machine's kind."
    here = toolchain.host().triple
    return UnsupportedError(Diagnostic("unsupported", message, None, here, target.triple))


def serving(
    kernels: list[Kernel], options: ObjectOptions, written: dict[Kernel, Text]
) -> list[Shared]:
    """For each kernel the one whose code serves it, and its arguments."""
    if not any(each.dims for each in kernels):
        return [(each, ()) for each in kernels]

    def looks(kernel: Kernel) -> bool | None:
        if kernel not in written:
            try:
                written[kernel] = options.text(kernel, None, NAME_PLACEHOLDER)
            except RegionOutside:  # of numbers that are told less can be shown
                return None
        return written[kernel].can_fail

    return sharing(kernels, apart=not options.target.has_far_offsets, looks=looks)


def _keyed(
    program: Program, used: list[Variant], served: list[Shared], nests: _Nests
) -> list[tuple[str, GroupTask]]:
    """The key of each kernel's entry, and how it is made."""
    common: list[tuple[CommonNest, ...]] = [()] * len(used)
    if len(used) > 1 and not nests.options.target.debug:
        pairs = zip(served, used, strict=True)
        common = common_nests([(kernel, over) for (kernel, _), (_, over) in pairs])
    options = nests.options
    found: list[tuple[str, GroupTask]] = []
    for (number, over), (kernel, _), theirs in zip(used, served, common, strict=True):
        calls = tuple([call for their in theirs if (call := nests.call(their)) is not None])
        named = options.named(kernel_name(number, program))
        key = kernel_key(kernel, over, named, calls)
        symbol = kernel_symbol(key, named.label)
        if named.label:
            write_source(kernel, named.label, named.target)
        args = kernel, over, symbol, named, calls
        found.append((key, GroupTask(program.names[number], entry_of, args)))
    return found


def _compiled(
    tasks: dict[str, GroupTask],
    nests: _Nests,
    written: Mapping[Kernel, Text],
    workers: Workers | None,
) -> dict[str, bytes]:
    """The entries of kernels that are not stored; those of nests are compiled alongside."""
    entries: dict[str, bytes] = {}
    waiting: dict[str, Callable[[], bytes]] = {}
    wanted = list(tasks)
    shared = workers is not None and workers.serves(len(tasks))
    with _beside(not shared and len(tasks) + len(nests.waiting) > 1) as later:

        def here(number: int) -> None:
            check_deadline()
            key = wanted[number]
            done = later(_begun(tasks[key], written))
            waiting[key] = partial(bytes, done()) if shared else done

        def there(number: int, data: bytes) -> None:
            entries[wanted[number]] = data

        others = {key: later(make) for key, make in nests.waiting.items()}
        together(list(tasks.values()), here, there, workers)
        for made, of in ((entries, waiting), (nests.entries, others)):
            for key, each in of.items():
                check_deadline()
                made[key] = each()
    return entries


def kernel_key(
    kernel: Kernel, over: int | None, options: ObjectOptions, calls: Sequence[NestCall] = ()
) -> str:
    """The key of a kernel's object: all that it is made from, names of variables apart. Objects of
    one program differ in nothing else, so names of functions derive from it."""
    nests = dict.fromkeys([call.name for call in calls])
    how = " ".join([f"{over} {options}", *nests])
    return key_of("kernel", digest_of(kernel), how, *facts_of(options.target))


def nest_key(nest: CommonNest, options: ObjectOptions) -> str:
    """The key of a nest's object."""
    how = f"{nest.bounds} {options}"
    return key_of("nest", digest_of(nest.kernel), how, *facts_of(options.target))


def entry_key(*parts: str) -> str:
    """The key of something in the store that this version of the compiler makes of the parts."""
    return key_of("entry", *parts, fingerprint())


def stored_entry(
    store: ArtefactStore | None, key: str, make: Callable[[], bytes], what: str
) -> bytes | None:
    """The entry of a kernel or a nest, if the store has it; entries of other kinds are passed
    over."""
    entry = None if store is None else store.found(entry_key(key), make, what)
    return entry if entry is not None and entry.startswith(OBJECT, 1) else None


def kernel_symbol(key: str, label: str = "") -> str:
    """The name of a kernel's function."""
    return f"{KERNEL_PREFIX}{label and f'{label}.'}{key[:24]}"


def nest_symbol(key: str) -> str:
    """The name of a nest's function."""
    return f"{NEST_PREFIX}{key[:24]}"


Later: TypeAlias = Callable[[Callable[[], bytes]], Callable[[], bytes]]
"""Begins to make some bytes; what it gives waits for them."""


@contextmanager
def _beside(overlaps: bool) -> Iterator[Later]:
    """LLVM compiles one kernel while the next is emitted, if there is a next, there are two cores
    and no worker processes. More threads would not help: llvmlite admits one at a time.
    """
    if not overlaps or cores() < 2:
        yield lambda make: make
        return
    with ThreadPoolExecutor(max_workers=1) as worker:
        try:
            yield lambda make: worker.submit(make).result
        except BaseException:
            worker.shutdown(cancel_futures=True)
            raise


class _Nests:
    """The functions of common nests: stored ones, or in progress."""

    def __init__(self, options: ObjectOptions, store: ArtefactStore | None) -> None:
        self.options = options
        self.store = store
        self.entries: dict[str, bytes] = {}
        self.waiting: dict[str, Callable[[], bytes]] = {}
        self.called: dict[str, None] = {}
        self.known: dict[CommonNest, NestCall | None] = {}

    def call(self, nest: CommonNest) -> NestCall | None:
        """The call of a nest, or None if a check in it may fail, so that it stays inlined."""
        if nest not in self.known:
            self.known[nest] = self._begun(nest)
        return self.known[nest]

    def _begun(self, nest: CommonNest) -> NestCall | None:
        options = self.options
        key = nest_key(nest, options)
        name = nest_symbol(key)
        again = partial(nest_entry, nest.kernel, nest.bounds, name, options)
        entry = stored_entry(self.store, key, again, "a nest of several kernels")
        if entry is None:
            text = options.text(nest.kernel, None, name, nest.bounds)
            if text.can_fail:
                return None
            self.waiting[key] = options.begun(text, name)
        else:
            self.entries[key] = entry
        self.called[key] = None
        return nest_call(nest, name)


def nest_entry(
    kernel: Kernel, bounds: tuple[Interval, ...], name: str, options: ObjectOptions
) -> bytes:
    """The entry of a nest, made from nothing but the nest."""
    return options.begun(options.text(kernel, None, name, bounds), name)()


def entry_of(
    kernel: Kernel,
    over: int | None,
    name: str,
    options: ObjectOptions,
    nests: tuple[NestCall, ...] = (),
) -> bytes:
    """The entry of a kernel, made from nothing but the kernel."""
    return options.begun(options.text(kernel, over, name, nests=nests), name)()


def _done(task: GroupTask) -> bytes:
    return task.work(*task.args)


def _begun(task: GroupTask, written: Mapping[Kernel, Text]) -> Callable[[], bytes]:
    """What LLVM still has to do for an entry; a text that is written already is given its name."""
    kernel, over, name, options, nests = task.args
    assert isinstance(options, ObjectOptions)
    if over is None and not nests and kernel in written and not options.label:
        return options.begun(written[kernel], NAME_PLACEHOLDER, name)
    return options.begun(options.text(kernel, over, name, nests=nests), name)


def made(text: str, target: Target, store: ArtefactStore | None, level: int = 2) -> bytes:
    """The object of a text; at level 0 for code that only calls others."""
    make = partial(emitted, text, target, level)
    if store is None:
        return make()
    key = entry_key("text", text, str(level), *facts_of(target))
    found = store.found(key, make, "the code of a text")
    if found is None or not found.startswith(OBJECT):
        found = make()
        store.put(key, found)
    return found


TEXTS: Final[Memo[str, Text]] = Memo(128)
"""The latest texts of kernels and nests, by their names, which derive from their keys."""

EMITTED: Final[Memo[str, bytes]] = Memo(256)
"""The latest objects of this process, by what they are made from: programs that are compiled one
after the other, and segments of one program, share kernels and the code of launches."""


def emitted(text: str, target: Target, level: int = 2) -> bytes:
    """The object file of LLVM text, compiled once while it is among the latest."""
    key = key_of(text, str(level), *facts_of(target))
    return EMITTED.found(key, partial(toolchain.emit, text, target, level))


def facts_of(target: Target) -> tuple[str, ...]:
    """What code depends on besides its source and the compiler."""
    return target.triple, target.cpu, ",".join(target.features), str(target.vector_bits)


FINGERPRINT: Final[Memo[str, str]] = Memo(1)  # the compiler's fingerprint, once known


def fingerprint() -> str:
    """The compiler itself: the version of LLVM, and what Plica's files say, its version in them."""
    return FINGERPRINT.found("", _fingerprint)


def _fingerprint() -> str:
    whole = hashlib.sha256(toolchain.llvm_version().encode())
    root = str(Path(__file__).parents[2])
    found = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
    for path in sorted(each for each in found if each.endswith((".py", ".ll", ".h", ".wgsl"))):
        whole.update(path.removeprefix(root).replace(os.sep, "/").encode())
        with open(path, "rb") as file:
            whole.update(file.read())
    return whole.hexdigest()
