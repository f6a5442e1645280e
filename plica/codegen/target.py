"""Targets: what code is made for, as data.

>>> plain = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64-v2", ("+sse4.1", "-avx"))
>>> print(plain)
cpu (x86_64-unknown-linux-gnu, x86-64-v2)
>>> plain.has("sse4.1"), plain.has("avx"), plain.vector_bits, plain.cache(1)
(True, False, 128, 32768)

What is not said follows from the features and from the table of machines
(`plica.codegen.machine_table`).  A description in full is one line, which reads back to the same
target; parts of it may be left out or put otherwise, and a name stands for a processor as the table
has it.

>>> print(plain.describe())
cpu triple=x86_64-unknown-linux-gnu cpu=x86-64-v2 features=+sse4.1,-avx
>>> narrow = parse("cpu vector=256 cores=2", plain)
>>> narrow.vector_bits, narrow.cores, narrow.triple == plain.triple
(256, 2, True)
>>> parse("cpu:neoverse-n1", plain).describe()
'cpu triple=aarch64-unknown-linux-gnu cpu=neoverse-n1'

Detecting this machine is an effect, and lives with the toolchain (`plica.codegen.llvm.toolchain`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any, ClassVar, Final

from attrs import evolve, frozen

from plica.codegen.machine_table import ARCHITECTURES, row_of
from plica.core import ExtensionGroup, did_you_mean
from plica.core.extension import WHERE
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.machine import CycleRates, MachineDescription, rates_of

NAMES: Final = ("cpu",)  # the targets that are described here
ELSEWHERE: Final = ("cuda", "accel")
"""Targets whose code is not made where only processors are known."""

USUAL: Final = {"riscv64": "+m,+a,+f,+d,+c", "armv7": "+neon,+vfp3"}
"""The features of machines that nobody builds without."""

OTHERS: Final = (
    "cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:aarch64", "cpu:riscv64", "cpu:armv7",
)  # fmt: skip
"""Kinds of processors that targets are usually written for, beside this one."""

# The first feature that a machine has gives the bits of its vectors and how many it holds.  Vectors
# whose length is known only when the program runs (SVE, RISC-V) count for what all of them have.
# fmt: off
_VECTORS: Final[dict[str, tuple[tuple[str, tuple[int, int]], ...]]] = {
    "x86_64":  (("avx512f", (512, 32)), ("avx", (256, 16)), ("", (128, 16))),
    "aarch64": (("",        (128, 32)),),
    "arm64":   (("",        (128, 32)),),
    "riscv64": (("v",       (128, 32)), ("",    (64, 32))),
    "armv7":   (("neon",    (128, 16)), ("",    (64, 16))),
    "wasm32":  (("simd128", (128, 16)), ("",    (64, 16))),
}
# fmt: on


@frozen
class Target:
    """A kind of machine: LLVM's triple, its name of the processor, and its features.

    `vector` and `registers` are the bits of a vector and how many vectors are at hand, 0 for what
    the features tell; `caches` are bytes from the nearest on, of one core but for the last.
    `rates` are what the machine does in a cycle, those of the table where none are said.  With
    `debug`, code has line tables, and that folder the texts of kernels that they refer to.
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    vector: int = 0
    registers: int = 0
    caches: tuple[int, ...] = ()
    cores: int = 1
    rates: CycleRates | None = None
    debug: str = ""

    backend: ClassVar[str] = "cpu"

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature, by LLVM's name of it."""
        return f"+{feature}" in self.features

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.split("-", maxsplit=1)[0]

    @property
    def vector_bits(self) -> int:
        """How many bits of a vector the machine takes at once."""
        return self.vector or min(self._vectors[0], self._row.vector or self._vectors[0])

    @property
    def widest(self) -> int:
        """The bits of the widest vectors that the features tell of."""
        return self._vectors[0]

    @property
    def vector_registers(self) -> int:
        """How many vectors the machine holds in registers."""
        return self.registers or self._vectors[1]

    @property
    def _vectors(self) -> tuple[int, int]:
        for feature, found in _VECTORS.get(self.architecture, ()):
            if not feature or self.has(feature):
                return found
        return 64, 16

    def cache(self, level: int) -> int:
        """The bytes of a cache, 1 the nearest; a machine has what is usual if nothing is known."""
        known = self.caches or self._row.caches
        return known[min(level, len(known)) - 1]

    @property
    def cycle_rates(self) -> CycleRates:
        """What the machine does in a cycle, as far as it is known."""
        return self.rates or self._row.rates

    @property
    def _row(self) -> MachineDescription:
        return row_of(self.architecture, self.cpu, self._vectors[0])

    def described(self, of: MachineDescription) -> Target:
        """The target as the machine is described: its vectors are no wider than features allow."""
        vector = min(of.vector, self.widest)
        return evolve(self, vector=vector, caches=of.caches or self.caches, rates=of.rates)

    @property
    def machine(self) -> str:
        """What schedules were chosen by, in one line."""
        caches = ",".join(str(self.cache(level)) for level in (1, 2, 3))
        return (
            f"vector={self.vector_bits} registers={self.vector_registers} caches={caches} "
            f"cores={self.cores} rates={self.cycle_rates.spelled()}"
        )

    @property
    def waiting_elements(self) -> int:
        """Registers beside that of the one in use in which single elements wait to be multiplied
        by vectors: none where a multiply-add takes an element from memory for all lanes."""
        return 0 if self.has("avx512f") else self.vector_registers // 8 - 1

    @property
    def has_half(self) -> bool:
        """Whether f16 is converted by the machine; otherwise the code does it bit by bit."""
        return self.architecture in ("aarch64", "arm64") or self.has("f16c")

    @property
    def has_scale(self) -> bool:
        """Whether numbers are multiplied by powers of two in one instruction."""
        return self.has("avx512f")

    @property
    def has_extremes(self) -> bool:
        """Whether the lesser or greater of two floats is one instruction by which nan stays nan."""
        return self.architecture in ("aarch64", "arm64", "wasm32")

    @property
    def saturates(self) -> bool:
        """Whether floats become the nearest integers there are, and nan 0, by one instruction."""
        return self.architecture in ("aarch64", "arm64", "wasm32")

    @property
    def picks_lanes(self) -> bool:
        """Whether a product takes one lane of a vector for all lanes of another."""
        return self.architecture in ("aarch64", "arm64")

    @property
    def has_masks(self) -> bool:
        """Whether single lanes of a vector are read and written at no extra cost."""
        return self.has("avx512vl") and self.has("avx512bw")

    @property
    def reads_parts(self) -> bool:
        """Whether some lanes of a vector are read by one instruction."""
        return self.has("avx")

    @property
    def has_far_offsets(self) -> bool:
        """Whether an instruction reads any number of bytes beside an address, not a few only."""
        return self.architecture in ("x86_64", "amd64")

    @property
    def offset_steps(self) -> int:
        """How many times its own size an instruction reads beside an address, 0 if any bytes or
        none are the same to it."""
        return 4096 if self.architecture in ("aarch64", "arm64") else 0

    @property
    def has_fma(self) -> bool:
        """Whether the machine multiplies and adds with one rounding."""
        return self.architecture in ("aarch64", "arm64") or self.has("fma")

    @property
    def has_multiply_add(self) -> bool:
        """Whether a product and a sum are one instruction, however that rounds."""
        return self.has_fma or self.has("relaxed-simd")

    def __str__(self) -> str:
        return f"{self.name} ({self.triple}, {self.cpu})"

    def describe(self) -> str:
        """Everything that was said of the machine, in one line that `parse` reads."""
        words = [self.name]
        for key, value in (
            ("triple", self.triple),
            ("cpu", self.cpu),
            ("vector", self.vector),
            ("registers", self.registers),
            ("caches", ",".join(map(str, self.caches))),
            ("cores", self.cores if self.cores != 1 else 0),
            ("rates", "" if self.rates is None else self.rates.spelled()),
            ("features", ",".join(self.features)),
            ("debug", self.debug),
        ):
            if value:
                words.append(f"{key}={value}")
        return " ".join(words)


def parse(text: str, known: Target) -> Target:
    """The target a line describes; what it leaves out is as in the one that is known."""
    whole, *words = text.split() or [""]
    name, colon, processor = whole.partition(":")
    if name not in NAMES or bool(colon) != bool(processor):
        others = name not in NAMES and name in target_names()
        raise unknown_target(whole, NAMES if others else ())
    if processor:
        known = _named(name, processor, known)
    given: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in _READERS:
            raise _unreadable(f"A target has no attribute {key!r}.", key)
        try:
            given[key] = _READERS[key](value)
        except ValueError as error:
            raise _unreadable(
                f"The attribute {key!r} of a target is not {value!r}.", key
            ) from error
    if "triple" in given and given["triple"] != known.triple:
        # Nothing that was found out about one machine is known of another.
        known = Target(name, given["triple"], "generic")
    return evolve(known, **given)


def _named(name: str, processor: str, known: Target) -> Target:
    """A processor by LLVM's name: as the table has it, else of the architecture that is known."""
    of = ARCHITECTURES.get(processor, known.architecture)
    system = "linux-gnueabihf" if of == "armv7" else "linux-gnu"
    triple = known.triple if of == known.architecture else f"{of}-unknown-{system}"
    if processor == of:
        return Target(name, triple, "generic", tuple(filter(None, USUAL.get(of, "").split(","))))
    return Target(name, triple, processor)


def _number(text: str) -> int:
    found = int(text)
    if found < 1:
        raise ValueError(text)
    return found


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "triple": str,
    "cpu": str,
    "features": lambda text: tuple(text.split(",")) if text else (),
    "vector": _number,
    "registers": _number,
    "caches": lambda text: tuple(_number(each) for each in text.split(",")),
    "cores": _number,
    "rates": rates_of,
    "debug": str,
}


def _unreadable(message: str, key: str) -> UnsupportedError:
    expected = ", ".join(_READERS)
    return UnsupportedError(
        Diagnostic("unsupported", message, None, expected, key, did_you_mean(key, tuple(_READERS)))
    )


def target_names() -> tuple[str, ...]:
    """The names of all targets that are registered, as texts begin with them."""
    group: ExtensionGroup[Any] = resolve_name(WHERE["plica.targets"])  # Any: a backend
    return tuple(group.points())


def unknown_target(given: object, kinds: Sequence[str] = ()) -> UnsupportedError:
    """The refusal of anything that is no target, where there are such kinds of them: all that are
    registered if none are said."""
    message = f"There is no target {given!r}."
    kinds = kinds or target_names()
    hint, expected = None, ", ".join(kinds)
    if isinstance(given, str):
        word = given.partition(":")[0].lower()
        near = did_you_mean(given, kinds) or did_you_mean(word, kinds)
        hint = f"Did you mean {word!r}?" if word in kinds else near
        if word not in kinds and did_you_mean(word, ("gpu", "nvidia")):
            hint = "GPUs are the target 'cuda'."
    if isinstance(given, str) and given.partition(":")[0] in ELSEWHERE:
        expected = " or ".join(NAMES)
    if isinstance(given, str) and given.partition(":")[0] == "cuda":
        message = "This is done for processors; a GPU is not one."
        hint = "Use target='cpu'; plica.compile(model, target='cuda') runs a model on a GPU."
    if isinstance(given, str) and given.partition(":")[0] == "accel":
        message = "This is done for processors; an accelerator is not one."
        hint = "Use target='cpu'; plica.compile(model, target='accel') offloads integer layers."
    return UnsupportedError(Diagnostic("unsupported", message, None, expected, repr(given), hint))


class SpelledTarget:
    """A target whose text reads back to it."""

    __slots__ = ()

    def describe(self) -> str:
        """A line that its backend's `parse` reads."""
        return str(self)


@frozen
class NamedTarget(SpelledTarget):
    """A target of which nothing is said but its name."""

    backend: str

    def __str__(self) -> str:
        return self.backend


def named_target(name: str) -> Callable[[str], NamedTarget]:
    """The reader of targets without options: their text is their name."""

    def parse(text: str) -> NamedTarget:
        if text.strip() != name:
            raise unknown_target(text)
        return NamedTarget(name)

    return parse
