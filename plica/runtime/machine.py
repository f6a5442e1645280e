"""Machine descriptions: a processor's throughput per cycle, as data that selects schedules.

    vector    bits of the vectors that code uses: the widest are not always the fastest
    caches    bytes, from the nearest on
    rates     what goes on in a cycle: multiply-adds, reads, writes, bytes, and a parallel region

A description is measured once (`plica doctor --measure`), rounded so coarsely that noise does not
change it, and stored; otherwise it is a table row (`plica.codegen.machine_table`). It is an
ordinary input of compilation: equal descriptions give equal code.

>>> coarse(2.9), coarse(10.4), coarse(0.97)
(3.0, 12.0, 1.0)
>>> usual = MachineDescription("usual")
>>> from_text(usual.to_text()) == usual
True
>>> MachineDescription("slow", rates=CycleRates(fma=1)).rates.spelled()
'fma:1,latency:4,loads:2,stores:1,near:24,far:8,far_all:12,region:1024,issue:6,lookup:12'
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from math import log2
from pathlib import Path
from typing import Final

from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.store import key_of, user_store

TELLING: Final = (
    "vendor_id", "cpu family", "model", "stepping", "flags",
    "CPU implementer", "CPU variant", "CPU part", "Features",
)  # fmt: skip
"""The system's and LLVM's properties that identify a processor."""

MEASURED: Final = "measured"  # the name of the measured description of this machine
STABLE_RATIO: Final = 1.34  # a remeasured figure keeps its old value if the ratio is below this
_CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_PROCESSOR: Final = Path("/proc/cpuinfo")
_LARGEST: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class CycleRates:
    """The throughput of one core per cycle, except for `far_all`, and the cost of a parallel
    region."""

    fma: float = 2
    """Multiply-adds of vectors that begin."""
    latency: float = 4
    """Cycles before the result of a multiply-add can be used."""
    loads: float = 2
    """Vectors that are read from the nearest cache."""
    stores: float = 1
    """Vectors that are written to it."""
    near: float = 24
    """Bytes read and written with all data in the second-level cache."""
    far: float = 8
    """Bytes that are read and written where it does not."""
    far_all: float = 12
    """The same for all cores together."""
    region: float = 1024
    """Cycles in which cores that wait for it begin and end a parallel region that does nothing."""
    issue: float = 6
    """Instructions issued; a product fused with a load counts as one."""
    lookup: float = 12
    """Cycles of a TLB miss that are not hidden by other work."""

    def spelled(self) -> str:
        """The rates as one word, which `rates_of` reads."""
        return ",".join(f"{each.name}:{getattr(self, each.name):g}" for each in fields(self))


def rates_of(text: str) -> CycleRates:
    """The rates that a word spells; those it leaves out are the usual ones."""
    given: dict[str, float] = {}
    known = {each.name for each in fields(CycleRates)}
    for part in text.split(","):
        name, _, number = part.partition(":")
        if name not in known:
            raise ValueError(part)
        given[name] = _rate(float(number))
    return CycleRates(**given)


@dataclass(frozen=True, slots=True)
class VectorWidth:
    """What vectors of a width do: multiply-adds in a cycle, and the clock meanwhile (GHz)."""

    bits: int
    fma: float
    clock: float


@dataclass(frozen=True, slots=True)
class MachineDescription:
    """A processor under a name; bits of 0 and no caches stand for what its features tell."""

    name: str
    vector: int = 0
    caches: tuple[int, ...] = ()
    rates: CycleRates = field(default_factory=CycleRates)
    widths: tuple[VectorWidth, ...] = ()
    """What vectors of each width do: why those of `vector` are used."""

    def to_text(self) -> str:
        """The description as JSON, which `from_text` reads."""
        return json.dumps(asdict(self), sort_keys=True)


def from_text(text: str) -> MachineDescription:
    """The description in a text; raises if it is invalid."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise refused_description("This is no JSON.", text) from error
    match data:
        case {
            "name": str(name),
            "vector": int(vector),
            "caches": [*caches],
            "rates": {**rates},
            "widths": [*widths],
        }:
            pass
        case _:
            raise refused_description("A machine has a name, vectors, caches and rates.", text)
    names = {each.name for each in fields(CycleRates)}
    if set(rates) != names or not 0 <= vector <= 1 << 16:
        raise refused_description(
            "A machine has these rates, and vectors of a width in bits.", text
        )
    try:
        return MachineDescription(
            name,
            vector,
            tuple([_size(cache) for cache in caches]),
            CycleRates(**{str(key): _rate(value) for key, value in rates.items()}),
            tuple([_width(width) for width in widths]),
        )
    except (ValueError, OverflowError) as error:
        raise refused_description("A figure of a machine is a number above 0.", text) from error


def _rate(given: object) -> float:
    if type(given) not in (int, float) or not 0 < float(str(given)) < _LARGEST:
        raise ValueError(given)
    return float(str(given))


def _size(given: object) -> int:
    if type(given) is not int or not 0 < given < _LARGEST:
        raise ValueError(given)
    return int(str(given))


def _width(given: object) -> VectorWidth:
    match given:
        case {"bits": bits, "fma": fma, "clock": clock}:
            return VectorWidth(_size(bits), _rate(fma), _rate(clock))
        case _:
            raise ValueError(given)


def refused_description(message: str, found: object) -> UnsupportedError:
    """The refusal of an invalid description."""
    hint = "`plica doctor --measure` describes this one; a name stands for a row of the table."
    shown = str(found)[:80]
    return UnsupportedError(Diagnostic("unsupported", message, None, "a machine", shown, hint))


# --- rounding -------------------------------------------------------------------------------------


def coarse(figure: float) -> float:
    """The nearest power of two, or half way between two of them."""
    exponent = int(log2(figure) // 1)
    steps = [factor * 2.0**exponent for factor in (1.0, 1.5, 2.0)]
    return min(steps, key=lambda step: max(step / figure, figure / step))


def settled(new: MachineDescription, old: MachineDescription | None) -> MachineDescription:
    """A remeasured description in which figures close to their old value are unchanged."""
    if old is None or (old.caches, len(old.widths)) != (new.caches, len(new.widths)):
        return new
    rates = CycleRates(
        **{
            each.name: _kept(getattr(old.rates, each.name), getattr(new.rates, each.name))
            for each in fields(CycleRates)
        }
    )
    widths = tuple([
        replace(mine, fma=_kept(was.fma, mine.fma), clock=_kept(was.clock, mine.clock))
        for was, mine in zip(old.widths, new.widths, strict=True)
    ])  # fmt: skip
    return replace(new, rates=rates, widths=widths)


def _kept(old: float, new: float) -> float:
    return old if max(old, new) <= STABLE_RATIO * min(old, new) else new


# --- this machine ---------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def processor_facts() -> tuple[str, ...]:
    """The system's properties of the first processor and its caches."""
    told: list[str] = []
    if _PROCESSOR.is_file():
        block = _PROCESSOR.read_text(encoding="ascii", errors="replace").partition("\n\n")[0]
        told += [line for line in block.splitlines() if line.partition("\t")[0] in TELLING]
    sizes = sorted(_CACHES.glob("index*/size"))
    return (*told, *[f"{size} {size.read_text()}" for size in sizes])


def stored_description() -> MachineDescription | None:
    """The stored measured description of this machine, or None."""
    store = user_store()
    kept = None if store is None else store.get(_key())
    if kept is None:
        return None
    try:
        return from_text(kept.decode("utf-8", "replace"))
    except UnsupportedError:
        return None  # of another version of Plica


def keep_description(of: MachineDescription) -> Place:
    """Stores the measured description of this machine and returns its path."""
    if (store := user_store()) is None:
        message = "There is no store to keep what was measured in."
        hint = "PLICA_CACHE turns it off: name a folder there, or leave it out."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
    store.put(_key(), of.to_text().encode())
    return Place(file=str(store.folder))


def _key() -> str:
    return key_of("machine", *processor_facts())
