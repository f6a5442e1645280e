"""Writer: LLVM text under construction, with fresh names and what it refers to.

>>> w = LlvmWriter()
>>> w.let("add i64 1, 2")
'%1'
>>> w.call("tanf", "float", [("float", "%x")])
'%2'
>>> print(*w.lines, *declarations(w.functions), sep="\\n")
  %1 = add i64 1, 2
  %2 = call float @tanf(float %x)
declare float @tanf(float) nounwind willreturn memory(none)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from attrs import frozen

from plica.codegen.emit.dialect import Dialect, Way
from plica.ir.loop.scalar import FloorDiv, FloorMod
from plica.ir.loop.statement import Stmt
from plica.ir.type import DType

PLAIN: Final = '"plica-loops"="plain"'
"""Says of a function that LLVM should look at its loops: no schedule has."""


@frozen
class CodeTraits:
    """Permitted floating-point transformations, and properties of the machine."""

    fused: bool = False  # a product and the sum it is added to may be rounded once
    signless: bool = False  # the sign of a zero does not matter
    width: int = 0  # bits of the vectors LLVM should use, 0 if that is up to it
    shared: bool = False  # iterations of parallel loops are given to the pool
    masks: bool = False  # single lanes of a vector are read and written
    whole: bool = False  # a vector is read whole, no part of it by one instruction
    far: bool = False  # any number may stand beside an address at no cost
    open: bool = False  # how far rows are apart is known when it runs: no number beside an address
    near: int = 0  # as may this many times the size of what is read there
    corrects: bool = False  # the rest of a quotient is exact: a product and a sum, rounded once
    registers: int = 0  # vectors that are held at once, 0 if that is not known
    saturates: bool = False  # floats become the nearest integers there are by one instruction
    picks: int = 0  # registers there are, where a product takes a lane of one for all of another
    marks: tuple[Stmt, ...] = ()  # statements whose lines are marked by their number


ANYWHERE: Final = CodeTraits()

MARK: Final = "  ; statement "  # the marker of the statement that the following lines implement


class LlvmWriter:
    """The lines of one function; `block` is the label of the current block."""

    def __init__(self, block: str = "entry", traits: CodeTraits = ANYWHERE) -> None:
        self.traits = traits
        self.lines: list[str] = []
        self.block = block
        self.helpers: set[tuple[str, int]] = set()
        self.functions: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._count = 0
        self._heads: list[tuple[int, int]] = []  # of open loops: lines and names before them
        self._ahead: dict[str, int] = {}  # names that are there before a loop: as if so numbered

    def fresh(self) -> str:
        """A new name for a value."""
        self._count += 1
        return f"%{self._count}"

    def let(self, text: str) -> str:
        """A line that gives a value; the name of the value."""
        self._count += 1
        name = f"%{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def enter(self) -> None:
        """Begins a loop: hoisted code is placed here."""
        self._heads.append((len(self.lines), self._count))

    def leave(self) -> None:
        """Ends the innermost loop."""
        self._heads.pop()

    def ahead(self, text: str) -> str:
        """Like `let`, for pure values, hoisted out of all loops that its operands are defined
        outside of."""
        since = max([self._since(name) for name in REGISTER.findall(text)], default=0)
        for depth, (line, count) in enumerate(self._heads):
            if since <= count:
                self._count += 1
                name = f"%ahead.{self._count}"
                self._ahead[name] = count
                self.lines.insert(line, f"  {name} = {text}")
                moved = [(each + 1, many) for each, many in self._heads[depth:]]
                self._heads[depth:] = moved
                return name
        return self.let(text)

    def _since(self, name: str) -> float:
        """How many names were given when this one was there."""
        if name[1:].isdigit():
            return int(name[1:])
        if name in self._ahead:
            return self._ahead[name]
        return 0 if _PARAMETER.fullmatch(name) else inf

    def do(self, text: str) -> None:
        """A line that gives none."""
        self.lines.append(f"  {text}")

    def look_through(self) -> None:
        """Makes the structure of addresses visible to LLVM."""
        opaque, end = OPAQUE
        for number, line in enumerate(self.lines):
            if opaque in line:
                name, address = line.removesuffix(end).split(opaque)
                self.lines[number] = f"{name}getelementptr i8, ptr {address}, i64 0"

    def labels(self, *stems: str) -> list[str]:
        """New labels that belong together."""
        self._count += 1
        return [f"{stem}.{self._count}" for stem in stems]

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def call(self, name: str, result: str, args: Sequence[tuple[str, str]]) -> str:
        """Call a pure function of the machine or of its library; the latter must be declared."""
        if not name.startswith("llvm."):
            self.functions[name] = (result, tuple([kind for kind, _ in args]))
        return self.let(f"call {result} @{name}({', '.join(f'{k} {v}' for k, v in args)})")

    def help(  # as `call`, and which helper it is
        self, helper: str, name: str, result: str, args: Sequence[tuple[str, str]], lanes: int = 0
    ) -> str:
        """Call a helper, and remember that it is needed for a given number of lanes."""
        self.helpers.add((helper, lanes))
        end = f".v{lanes}" if lanes else ""
        return self.let(f"call {result} @{name}{end}({', '.join(f'{k} {v}' for k, v in args)})")


OPAQUE: Final = ("call ptr @llvm.launder.invariant.group.p0(ptr ", ")")
"""The wrapper of an address that LLVM should treat as opaque.

Copies of a statement use several offsets from one address. LLVM's strength reduction considers each
as an induction variable, only to find that one suffices, and takes up to a third of LLVM's time for
that, and half if rows have an open stride: there, addresses are sums of many parts.
"""

SHORT: Final = {"float": "f32", "double": "f64"}
"""Types that are called otherwise in the names of LLVM's functions."""


class LlvmPlace:
    """The context of an operator: its writer and lane count.

    No lanes (0): a single value.  `naturals` tells of a quotient that neither side is negative, nor
    the right one 0.
    """

    __slots__ = ("_kinds", "dialect", "divides_naturals", "flag", "lanes", "let", "w")

    def __init__(
        self,
        dialect: Dialect[LlvmPlace],
        w: LlvmWriter,
        lanes: int = 0,
        naturals: Callable[[FloorDiv | FloorMod], bool] = lambda node: False,
    ) -> None:
        self.dialect, self.w, self.lanes = dialect, w, lanes
        self.divides_naturals = naturals
        self.let = w.let
        self.flag = self.wide("i1")
        """The type of a condition."""
        self._kinds: dict[DType, str] = {}

    def wide(self, kind: str) -> str:
        """The type of all lanes of a kind."""
        lanes = self.lanes
        return self.dialect.lanes.format(type=kind, lanes=lanes) if lanes else kind

    def register(self, of: DType) -> str:
        """The type of a value."""
        if (found := self._kinds.get(of)) is None:
            found = self._kinds[of] = self.dialect.register(of, self.lanes)
        return found

    def literal(self, value: float, of: DType) -> str:
        """A constant."""
        return self.dialect.literal(value, of, self.lanes)

    def suffix(self, of: DType) -> str:
        """How the names of LLVM's functions on such values end."""
        kind = self.dialect.register(of)
        short = SHORT.get(kind, kind)
        return f"v{self.lanes}{short}" if self.lanes else short

    def select(self, when: str, kind: str, one: str, two: str) -> str:
        """One of two values of a type."""
        return self.let(f"select {self.flag} {when}, {kind} {one}, {kind} {two}")

    def call(self, name: str, kind: str, args: Sequence[str]) -> str:
        """Call a pure function from values of a type to one, whose name ends with no type."""
        return self.w.call(name, kind, [(kind, arg) for arg in args])

    def intrinsic(self, name: str, of: DType, args: Sequence[str]) -> str:
        """Call a function of LLVM's own on values of a dtype."""
        return self.call(f"llvm.{name}.{self.suffix(of)}", self.register(of), args)

    def help(self, helper: str, name: str, kinds: tuple[str, str], args: Sequence[str]) -> str:
        """Call a helper from values of a type of one lane to one of another."""
        before, after = (self.wide(kind) for kind in kinds)
        given = [(before, arg) for arg in args]
        return self.w.help(helper, f"plica.{name}", after, given, self.lanes)

    def converted(self, way: Way, value: str, of: DType) -> str:
        """Converts a value of a dtype without registers, by a helper."""
        own, code = self.dialect.register(of), self.dialect.memory(of)
        kinds = {"pack": (own, code), "unpack": (code, own), "round": (own, own)}[way]
        return self.help(of.name, f"{way}.{of.name}", kinds, (value,))

    def by_lane(self, kind: str, args: Sequence[str], of_one: Callable[..., str]) -> str:
        """A scalar operation applied to each lane in turn."""
        if not self.lanes:
            return of_one(*args)
        found, many = "poison", self.wide(kind)
        for lane in range(self.lanes):
            kids = [self.let(f"extractelement {many} {arg}, i64 {lane}") for arg in args]
            one = of_one(*kids)
            found = self.let(f"insertelement {many} {found}, {kind} {one}, i64 {lane}")
        return found


REGISTER: Final = re.compile(r"%[\w.]+")  # the name of a value
_PARAMETER: Final = re.compile(r"%[bd]\d+|%own\.\d+")
"""An open size, a buffer parameter, or local memory."""


def declarations(functions: Mapping[str, tuple[str, tuple[str, ...]]]) -> list[str]:
    """Function declarations, sorted by name; functions with a result are pure, unless variadic."""
    return [
        f"declare {result} @{name}({', '.join(params)}) nounwind"
        + (" willreturn memory(none)" if result != "void" and "..." not in params else "")
        for name, (result, params) in sorted(functions.items())
    ]
