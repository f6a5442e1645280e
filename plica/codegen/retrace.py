"""Retracing: the kernels of an artefact made again from its traces, and held to its code.

    kernel before --trace--> scheduled kernel --lowering--> lowered kernel --emission--> code

Nothing of the artefact is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

from attrs import astuple, frozen

from plica.codegen.artefact_target import target_of_artefact
from plica.codegen.backend import registered
from plica.codegen.llvm import unit
from plica.codegen.llvm.common_nest import NestCall, nests_of
from plica.codegen.llvm.toolchain import host
from plica.codegen.lower.barrier import barriers
from plica.codegen.lower.kernel_call import all_written
from plica.codegen.lower.passes import LOWERING
from plica.codegen.target import Target
from plica.core import at, digest, first_difference
from plica.ir.contract import Contract, fused, named, signless_zero
from plica.ir.loop.statement import Barrier, Kernel, statements
from plica.ir.passes import RENAMED, Pass, PassError, installed_pass
from plica.ir.text.script import from_text
from plica.runtime.artefact import Artefact
from plica.runtime.elf import UNDEFINED, parse
from plica.runtime.error import ArtefactError, Diagnostic, PlicaError
from plica.runtime.record import CompilationRecord, KernelTrace
from plica.runtime.store import key_of
from plica.schedule.certified import certified
from plica.schedule.replay import kernel_of, scheduled
from plica.schedule.trace import Trace
from plica.schedule.trace_contract import trace_contract

NARROW_PASS: Final = "narrow-indices"  # the pass after which nothing is proved of indices


@frozen
class Retraced:
    """What was made again: kernels, steps of traces, proofs, barriers and objects."""

    kernels: int = 0
    steps: int = 0
    proved: int = 0
    unproved: int = 0
    """Accesses of which nothing is shown, since sizes are open that are compared when it runs."""
    barriers: int = 0
    rebuilt: int = 0
    not_rebuilt: str = ""
    """Why code was not made again, where it was not."""


@frozen
class WrongTrace:
    """What is wrong with a kernel of an artefact."""

    kernel: str
    message: str
    expected: str | None = None
    found: str | None = None


def retraced(
    artefact: Artefact, record: CompilationRecord, *, prove: bool = False, rebuild: bool = False
) -> Retraced:
    """Take every trace of an artefact again; an ArtefactError names what differs, all at once."""
    if artefact.device is not None:
        # Traces name intrinsics, which a process that has compiled nothing has not declared yet.
        import plica.schedule.default.gpu.choose  # noqa: F401  # it declares what traces name
    wrong: list[WrongTrace] = []
    texts = texts_of(record)
    kernels: dict[str, Kernel] = {}
    steps = proved = unproved = waiting = 0
    asked = named(record.asked)
    if isinstance(passes := passes_of(artefact, record), str):
        raise _refused([WrongTrace("", passes)])
    if len(record.digests) != len(record.traces):
        count = f"{len(record.digests)} digests of kernels"
        message = "Each trace needs the digest of the kernel that it makes."
        raise _refused([WrongTrace("", message, f"{len(record.traces)} traces", count)])
    for number, trace in enumerate(record.traces):
        compiled = record.digests[number]
        made = _made(trace, compiled, passes, asked)
        if isinstance(made, MadeAgain) and digest(made.kernel) != compiled:
            made = _made(trace, compiled, passes, asked, zeroed=True)
        if isinstance(made, WrongTrace):
            wrong.append(made)
            continue
        kernels[trace.kernel] = made.kernel
        steps += made.steps
        waiting += _barriers(made.kernel)
        if digest(made.kernel) != record.digests[number]:
            message = "Its trace makes another kernel than the one that was compiled."
            wrong.append(WrongTrace(trace.kernel, message, digest(made.kernel),
                                    record.digests[number]))  # fmt: skip
        wrong += _text_problems(trace.kernel, made.kernel, texts)
        wrong += _barrier_problems(trace.kernel, made.waits)
        if prove:
            bounds = certified(made.scheduled)
            # What a program asks of open sizes before it runs the kernel is not recorded.
            sure = () if made.scheduled.dims else bounds.wrong
            proved += bounds.proved
            unproved += len(bounds.open) + len(bounds.wrong) - len(sure)
            wrong += [WrongTrace(trace.kernel, f"{problem}.") for problem in sure]
    if wrong:
        raise _refused(wrong)
    again = rebuilt(artefact, kernels, asked) if rebuild else "nobody asked for it"
    if not isinstance(again, str):
        if again[1]:
            raise _refused(again[1])
        return Retraced(len(kernels), steps, proved, unproved, waiting, again[0])
    return Retraced(len(kernels), steps, proved, unproved, waiting, 0, again)


def joined(parts: Sequence[Retraced]) -> Retraced:
    """What was made again in all parts of an artefact."""
    reasons = dict.fromkeys([part.not_rebuilt for part in parts if part.not_rebuilt])
    counts = [astuple(part)[:-1] for part in parts] or [(0,) * 6]  # a program may have no kernels
    kernels, steps, proved, unproved, waiting, again = map(sum, zip(*counts, strict=True))
    return Retraced(kernels, steps, proved, unproved, waiting, again, "; ".join(reasons))


def _refused(wrong: Sequence[WrongTrace]) -> ArtefactError:
    told = [
        Diagnostic(
            "bad-artefact",
            f"The kernel {trace.kernel}: {trace.message}" if trace.kernel else trace.message,
            None,
            trace.expected,
            trace.found,
        )
        for trace in wrong
    ]
    return ArtefactError(told[0], *told[1:])


def passes_of(artefact: Artefact, record: CompilationRecord) -> tuple[Pass, ...] | str:
    """The lowering passes of a record; a reason where one of them is not here."""
    usual = LOWERING["cpu" if artefact.device is None else "gpu"]
    lowering = tuple([RENAMED.get(name, name) for name in record.lowering])
    if not lowering or lowering == usual.names:
        return usual.passes
    tables = [*LOWERING.values(), *[backend.lowering for backend in registered()], usual]
    for table in tables:
        if lowering == table.names:
            return table.passes
    known = {pass_.name: pass_ for table in tables for pass_ in table}  # the usual ones come last
    found = []
    for name in lowering:
        try:
            found.append(known[name] if name in known else installed_pass(name))
        except PassError:
            return f"The lowering pass {name!r}, which made its kernels, is not here."
    return tuple(found)


@frozen(eq=False)
class MadeAgain:
    """A kernel after its trace, after lowering, and where it waits: before nothing is proved."""

    scheduled: Kernel
    kernel: Kernel
    waits: Kernel
    steps: int


def _made(
    of: KernelTrace,
    compiled: str,
    passes: Sequence[Pass],
    asked: Contract | None,
    *,
    zeroed: bool = False,
) -> MadeAgain | WrongTrace:
    """The kernel of a trace; `zeroed` begins outputs that a user's kernel leaves out as zeros."""
    try:
        trace = Trace.from_json(of.json)
        _, _, before = kernel_of(from_text(of.before))
        after = scheduled(trace, before)
        if zeroed:
            after = all_written(after, before)
        kept = trace_contract(trace, before)
        same = Trace.from_python(of.python) is trace
    except PlicaError as error:
        return WrongTrace(of.kernel, f"Its trace cannot be taken: {error.diagnostics[0].message}")
    if not same:
        return WrongTrace(of.kernel, "Its trace is one in Python, and another in JSON.")
    if asked is not None and not kept <= asked:
        message = "The steps of its trace do not keep the contract."
        return WrongTrace(of.kernel, message, str(asked), str(kept))
    if not trace.steps and digest(before) == compiled:
        return MadeAgain(after, before, before, 0)  # it is as plain as it was compiled
    kernel = waits = after
    for pass_ in passes:
        try:
            kernel = pass_.run(kernel)
        except PlicaError as error:
            said = error.diagnostics[0].message
            return WrongTrace(of.kernel, f"It cannot be lowered by {pass_.name}: {said}")
        waits = waits if pass_.name == NARROW_PASS else kernel
    return MadeAgain(after, kernel, waits, len(trace.steps))


def texts_of(record: CompilationRecord) -> dict[str, str]:
    """The text of each kernel, by its name."""
    return {match[1]: match[0].rstrip() for match in _KERNEL_TEXT.finditer(record.kernels)}


_KERNEL_TEXT: Final = re.compile(
    r"^@plica\.kernel.*\ndef (\w+)\((?:.*\n(?!@plica\.kernel))*", re.MULTILINE
)


def _text_problems(name: str, kernel: Kernel, texts: dict[str, str]) -> Iterator[WrongTrace]:
    if name not in texts:
        yield WrongTrace(name, "There is no text of it.")
        return
    try:
        _, _, told = kernel_of(from_text(texts[name]))
    except PlicaError as error:
        yield WrongTrace(name, "Its text is no kernel.", None, error.diagnostics[0].message)
        return
    if (path := first_difference(kernel, told)) is not None:
        missing = _barriers(told) < _barriers(kernel)
        what = "A barrier is missing in its text." if missing else "Its text is another kernel's."
        expected, found = [str(at(each, path)).partition("\n")[0] for each in (kernel, told)]
        yield WrongTrace(name, what, expected, found)


def _barriers(kernel: Kernel) -> int:
    return sum(isinstance(statement, Barrier) for statement in statements(kernel.body))


def _barrier_problems(name: str, kernel: Kernel) -> Iterator[WrongTrace]:
    again = barriers(kernel)
    if again is not kernel:
        message = "Threads meet where none of them waits."
        expected, found = f"{_barriers(again)} barriers", f"{_barriers(kernel)} barriers"
        yield WrongTrace(name, message, expected, found)


# --- code -----------------------------------------------------------------------------------------

Rebuilt: TypeAlias = tuple[int, list[WrongTrace]]
Level: TypeAlias = Literal[1, 2]
LEVELS: Final[tuple[Level, ...]] = (2, 1)


def rebuilt(
    artefact: Artefact, kernels: dict[str, Kernel], asked: Contract | None
) -> Rebuilt | str:
    """How many objects of kernels were made again, and those that differ; or why none was."""
    if artefact.device is not None:
        return "code of a GPU is not made again"
    target = target_of_artefact(artefact)
    if not isinstance(target, Target) or target.triple != host().triple:
        return f"it is one object for {artefact.machine}: give its model, with --replay"
    if asked is None:
        return "the contract it was made under is not known"
    objects = _objects(artefact)
    count, wrong = 0, list[WrongTrace]()
    left = set(objects)
    for name, symbol, code in _emitted(kernels, asked, target, objects):
        if symbol not in left:
            continue
        left.remove(symbol)
        count += 1
        if (again := code()) != (data := objects[symbol].data):
            message = "Its code is not what the compiler makes of it."
            wrong.append(WrongTrace(name, message, key_of(again)[:16], key_of(data)[:16]))
    if not count and any(b".debug_line" in each.data for each in objects.values()):
        return "its line tables name a folder, which only the target says"
    if not count:
        return "another version of the compiler made it"
    wrong += [
        WrongTrace(each, "It is the code of no kernel with a trace.") for each in sorted(left)
    ]
    return count, wrong


@frozen(eq=False)
class KernelObject:
    """An object that defines the function of a kernel or a nest, and the nests that it calls."""

    data: bytes
    nests: frozenset[str]


def _objects(artefact: Artefact) -> dict[str, KernelObject]:
    """The objects of kernels and of nests, by the symbol that each defines."""
    found: dict[str, KernelObject] = {}
    for data in artefact.objects:
        names = [symbol for symbol in parse(data).symbols if symbol.is_global]
        outside = [name.name for name in names if name.section == UNDEFINED]
        nests = frozenset([each for each in outside if each.startswith(unit.NEST_PREFIX)])
        for name in names:
            if name.section != UNDEFINED and name.name.startswith(
                (unit.KERNEL_PREFIX, unit.NEST_PREFIX)
            ):
                found[name.name] = KernelObject(data, nests)
    return found


Emitted: TypeAlias = tuple[str, str, Callable[[], bytes]]
"""The name of a kernel, a symbol that its code may have, and what makes the object."""


def _emitted(
    kernels: dict[str, Kernel], asked: Contract, target: Target, objects: dict[str, KernelObject]
) -> Iterator[Emitted]:
    """All objects that kernels may have: which input is written over, the effort and which nests
    are functions of their own is said by nothing but the artefact's code."""
    called = {each.nests for each in objects.values()}
    for level in LEVELS:
        options = unit.ObjectOptions(target, asked >= fused, asked >= signless_zero, level)
        served = unit.serving(list(kernels.values()), options, {})
        for name, (kernel, _) in zip(kernels, served, strict=True):
            for over in (None, *range(kernel.inputs)):
                calls = {}
                for nest in nests_of(kernel, over):
                    symbol = unit.nest_symbol(unit.nest_key(nest, options))
                    calls[nest] = NestCall(nest, symbol)
                    make = partial(unit.nest_entry, nest.kernel, nest.bounds, symbol, options)
                    yield name, symbol, partial(_without_flags, make)
                for some in called:
                    wanted = {nest for nest, call in calls.items() if call.name in some}
                    nests = tuple(
                        [calls[each] for each in dict.fromkeys(nests_of(kernel, over, wanted))]
                    )
                    named = options.named(name)
                    key = unit.kernel_key(kernel, over, named, nests)
                    symbol = unit.kernel_symbol(key, named.label)
                    make = partial(unit.entry_of, kernel, over, symbol, named, nests)
                    yield name, symbol, partial(_without_flags, make)


def _without_flags(entry: Callable[[], bytes]) -> bytes:
    """The object in an entry of the store."""
    return entry()[1:]
