"""Lanes: values in a vectorized loop, and indices that need no instruction.

>>> lanes = Lanes(LlvmWriter())
>>> i, two = LaneValue("%i"), constant(2)
>>> lanes.add(lanes.mul(i, constant(4)), two)
LaneValue(text='%1', step=0, plus=2)
>>> lanes.mul(i, constant(4))
LaneValue(text='%1', step=0, plus=0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from math import gcd
from typing import Final, NamedTuple

from plica.codegen.llvm.dialect import LLVM, literal, register
from plica.codegen.llvm.writer import REGISTER, LlvmWriter
from plica.core import CompilerBug
from plica.ir.type import DType, bool_, i64


class LaneValue(NamedTuple):
    """A value: its name in the text, none for 0; `step` is None if it is a vector."""

    text: str
    step: int | None = 0
    plus: int = 0

    @property
    def is_uniform(self) -> bool:
        """Whether every lane has the same."""
        return self.step == 0

    @property
    def number(self) -> int | None:
        """The i64 that is known now."""
        return self.plus if not self.text and self.step == 0 else None


valued: Final[Callable[[tuple[str, int | None, int]], LaneValue]] = partial(
    tuple.__new__, LaneValue
)
"""A value of its three parts: it is made for every part of every term."""

TRUE: Final = LaneValue("true")
FALSE: Final = LaneValue("false")


@lru_cache(maxsize=4096)
def constant(number: int) -> LaneValue:
    """An i64, modulo 2^64."""
    return LaneValue("", 0, wrapped(number))


@lru_cache(maxsize=1024)  # copies of an unrolled loop ask again
def mask_of(flags: tuple[bool, ...]) -> LaneValue:
    """A condition whose outcome is known in every lane."""
    if all(flags):
        return TRUE
    if not any(flags):
        return FALSE
    return LaneValue(f"<{', '.join([f'i1 {str(flag).lower()}' for flag in flags])}>", None)


@lru_cache(maxsize=1024)  # copies of an unrolled loop ask again
def _ramp(first: int, step: int, count: int, of: DType) -> tuple[str, bool]:
    """A constant ramp of a dtype as text, and whether it has non-zero lanes."""
    kind, bits = register(of), of.bits
    numbers = [wrapped(first + step * lane, bits) for lane in range(count)]
    return f"<{', '.join([f'{kind} {number}' for number in numbers])}>", any(numbers)


class LanesApart(NamedTuple):
    """What all lanes share, and a number that each adds to it."""

    shared: LaneValue
    own: tuple[int, ...]


class Lanes:
    """Writes values; `count` is the number of lanes of the vectorized loop that is open, or 0."""

    def __init__(self, w: LlvmWriter) -> None:
        self.w = w
        self.count = 0
        self._known: dict[str, str] = {}
        self._pure: dict[str, str] = {}
        self._order: list[str] = []
        self.releases = 0  # how often something went out of reach
        self._taken: dict[str, tuple[str, str, int]] = {}  # lanes of vectors, and which they are
        self._multiples: dict[str, int] = {}  # what registers are whole multiples of
        self._apart: dict[str, LanesApart] = {}  # vectors whose lanes are known distances apart

    # --- what is remembered --------------------------------------------------------------------

    def pure(self, text: str) -> str:
        """The name of a pure value, emitted once per scope."""
        known = self._known
        if text in known:
            return known[text]
        found = known[text] = self.w.let(text)
        self._order.append(text)
        self._pure[found] = text
        return found

    def is_known(self, key: str) -> bool:
        """Whether something is remembered by a key."""
        return key in self._known

    def recall(self, key: str) -> str:
        """The name that is remembered by a key."""
        return self._known[key]

    def remember(self, key: str, name: str) -> None:
        """Keep a name by a key that is no text of an instruction, while it is in reach."""
        if key not in self._known:
            self._order.append(key)
        self._known[key] = name

    def forget(self, key: str) -> None:
        """Drops a cached value."""
        self._known.pop(key, None)

    def mark(self) -> int:
        """Begin something whose values are out of reach after it."""
        return len(self._order)

    def release(self, mark: int) -> None:
        """Drops values emitted since a mark."""
        self.releases += 1
        for text in self._order[mark:]:
            self._known.pop(text, None)
        del self._order[mark:]

    # --- how a value is used -------------------------------------------------------------------

    def scalar(self, value: LaneValue) -> str:
        """The value that all lanes have, or that of the first lane."""
        if value.step is None:
            raise CompilerBug("A vector is used as one value.")
        if not value.text:
            return str(value.plus)
        return self.pure(f"add i64 {value.text}, {value.plus}") if value.plus else value.text

    def vector(self, value: LaneValue, of: DType) -> str:
        """A value in every lane."""
        if value.step is None:
            return value.text
        if value.step == 0:
            return self.splat(self.scalar(value), register(of))
        ramp = ", ".join(f"i64 {value.plus + value.step * lane}" for lane in range(self.count))
        if not value.text:
            return f"<{ramp}>"
        first = self.splat(value.text, "i64")
        return self.pure(f"add <{self.count} x i64> {first}, <{ramp}>")

    def splat(self, text: str, kind: str) -> str:
        """One value in every lane."""
        if not text.startswith("%"):
            return f"splat ({kind} {text})"
        if (of := self._taken.get(text)) is not None:
            whole, name, lane = of
            every = ", ".join([f"i32 {lane}"] * self.count)
            return self.pure(
                f"shufflevector {whole} {name}, {whole} poison, <{self.count} x i32> <{every}>"
            )
        many = f"<{self.count} x {kind}>"
        one = self.pure(f"insertelement {many} poison, {kind} {text}, i64 0")
        zero = f"<{self.count} x i32> zeroinitializer"
        return self.pure(f"shufflevector {many} {one}, {many} poison, {zero}")

    def taken(self, whole: str, name: str, lane: int) -> str:
        """One lane of a vector of a type; in every lane it is one exchange of that vector's."""
        found = self.pure(f"extractelement {whole} {name}, i64 {lane}")
        self._taken[found] = whole, name, lane
        return found

    # --- arithmetic of i64 ---------------------------------------------------------------------

    def add(self, a: LaneValue, b: LaneValue, facts: str = "") -> LaneValue:
        """`a + b`; `facts` is `nsw` where that cannot overflow."""
        if a.step is None or b.step is None:
            return self._wide("add", a, b)
        text = a.text or b.text
        if a.text and b.text:
            text = self.pure(f"add {facts}i64 {a.text}, {b.text}")
        return valued((text, a.step + b.step, wrapped(a.plus + b.plus)))

    def sub(self, a: LaneValue, b: LaneValue, facts: str = "") -> LaneValue:
        """`a - b`."""
        if a.step is None or b.step is None:
            return self._wide("sub", a, b)
        text = a.text
        if b.text:
            text = self.pure(f"sub {facts}i64 {a.text or 0}, {b.text}") if a.text != b.text else ""
        return LaneValue(text, a.step - b.step, wrapped(a.plus - b.plus))

    def mul(self, a: LaneValue, b: LaneValue, facts: str = "") -> LaneValue:
        """`a * b`."""
        if b.number is None:
            a, b = b, a
        times = b.number
        if times is not None and a.step is not None:
            if times == 0:
                return constant(0)
            text = a.text
            if text and times != 1:
                text = self.pure(f"mul {facts}i64 {text}, {times}")
            return valued((text, a.step * times, wrapped(a.plus * times)))
        if a.is_uniform and b.is_uniform:
            return LaneValue(self.pure(f"mul i64 {self.scalar(a)}, {self.scalar(b)}"))
        return self._wide("mul", a, b)

    def total(self, written: Sequence[tuple[str, int]], facts: str = "") -> str:
        """Registers, each a given number of times, in one; none is 0."""
        found, multiple = "", 0
        for text, count in written:
            part = text if abs(count) == 1 else self.pure(f"mul {facts}i64 {text}, {count}")
            if count == -1:
                found = self.pure(f"sub {facts}i64 {found or 0}, {part}")
            else:
                found = self.pure(f"add {facts}i64 {found}, {part}") if found else part
            multiple = gcd(multiple, count * self.multiple_of(text))
        if found and multiple != 1:
            self._multiples[found] = multiple
        return found

    def multiple_of(self, text: str) -> int:
        """A number that a register, or 0 if there is none, is known to be a whole multiple of."""
        return self._multiples.get(text, 1) if text else 0

    def is_multiple(self, text: str, of: int) -> None:
        """Note a whole divisor of a register."""
        self._multiples[text] = of

    def distances(self, value: LaneValue) -> LanesApart | None:
        """The value as constants per lane added to a uniform value, or None if unknown."""
        if value.step is None:
            return self._apart.get(value.text)
        own = tuple([value.step * lane for lane in range(self.count)])
        return LanesApart(valued((value.text, 0, value.plus)), own)

    def at_distances(self, shared: LaneValue, own: Sequence[int]) -> LaneValue:
        """What all lanes share, with a number added in each: neighbours, where they are such."""
        steps = {b - a for a, b in pairwise(own)}
        if len(steps) <= 1:
            return valued((shared.text, max(steps, default=0), wrapped(shared.plus + own[0])))
        numbers = f"<{', '.join([f'i64 {each + shared.plus}' for each in own])}>"
        if shared.text:
            first = self.splat(shared.text, "i64")
            numbers = self.pure(f"add <{self.count} x i64> {first}, {numbers}")
        self._apart[numbers] = LanesApart(shared, tuple(own))
        return LaneValue(numbers, None)

    def _wide(self, word: str, a: LaneValue, b: LaneValue) -> LaneValue:
        one, other = self.distances(a), self.distances(b)
        if one is not None and other is not None and (word != "mul" or b.number is not None):
            shared = getattr(self, word)(one.shared, other.shared)
            if word == "mul":
                return self.at_distances(shared, [each * (b.number or 0) for each in one.own])
            sign = 1 if word == "add" else -1
            both = zip(one.own, other.own, strict=True)
            return self.at_distances(shared, [x + sign * y for x, y in both])
        left, right = self.vector(a, i64), self.vector(b, i64)
        return LaneValue(self.w.let(f"{word} <{self.count} x i64> {left}, {right}"), None)

    # --- conditions ----------------------------------------------------------------------------

    def compared(self, word: str, a: LaneValue, b: LaneValue, of: DType = i64) -> LaneValue:
        """A comparison of two i64 that are affine in the lanes or uniform: hoisted out of
        independent loops. `of` is a dtype that holds them: a register has more lanes of a narrower
        one."""
        left, right = self.counted(a, of), self.counted(b, of)
        kind = f"<{self.count} x {register(of)}>"
        return LaneValue(self.ahead(f"icmp {word} {kind} {left}, {right}"), None)

    def fit(self, places: Sequence[tuple[LaneValue, LaneValue]]) -> LaneValue:
        """Whether all indices are below their counts, and not negative."""
        found = TRUE
        for value, count in places:
            if value.step and count.is_uniform:
                found = self.both(found, self.compared("ult", value, count))
                continue
            n = 0 if value.is_uniform else self.count
            at, most = [self.vector(e, i64) if n else self.scalar(e) for e in (value, count)]
            fits = LLVM.inside.format(type=register(i64, n), at=at, count=most)
            written = self.w.let(fits) if n else self.ahead(fits)
            found = self.both(found, LaneValue(written, None if n else 0))
        return found

    def reach(
        self, apart: Sequence[tuple[LaneValue, LaneValue]], at: LaneValue
    ) -> Callable[[int], str] | None:
        """Which of the elements from a place on are inside, where all that are near lanes that are
        lie in one row."""
        if len(apart) != 1 or apart[0][0].step != at.step or not at.step:
            return None
        ((first, count),) = apart

        def inside(start: int) -> str:
            place = LaneValue(first.text, 1, wrapped(first.plus + start))
            return self.vector(self.fit([(place, count)]), bool_)

        return inside

    def counted(self, value: LaneValue, of: DType) -> str:
        """A value in every lane as an integer of a dtype, truncated, because only its sum with an
        offset must fit."""
        kind = register(of)
        numbers, some = _ramp(value.plus, value.step or 0, self.count, of)
        if not value.text:
            return numbers
        many, text = f"<{self.count} x {kind}>", value.text
        narrow = text if of is i64 else self.ahead(f"trunc i64 {text} to {kind}")
        one = self.ahead(f"insertelement {many} poison, {kind} {narrow}, i64 0")
        zero = f"<{self.count} x i32> zeroinitializer"
        first = self.ahead(f"shufflevector {many} {one}, {many} poison, {zero}")
        return self.ahead(f"add {many} {first}, {numbers}") if some else first

    def ahead(self, text: str) -> str:
        """A pure value with all its operands, emitted as early as possible."""
        key = f"ahead: {text}"
        if key not in self._known:
            early = REGISTER.sub(lambda found: self._early(found[0]), text)
            self.remember(key, self.w.ahead(early))
        return self._known[key]

    def _early(self, name: str) -> str:
        return self.ahead(self._pure[name]) if name in self._pure else name

    def both(self, a: LaneValue, b: LaneValue) -> LaneValue:
        """Whether two conditions hold."""
        if a == TRUE or b == FALSE:
            return b
        return a if b == TRUE or a == FALSE else self._join("and", a, b)

    def either(self, a: LaneValue, b: LaneValue) -> LaneValue:
        """The disjunction of two conditions."""
        if a == FALSE or b == TRUE:
            return b
        return a if b == FALSE or a == TRUE else self._join("or", a, b)

    def negated(self, a: LaneValue) -> LaneValue:
        """Whether a condition does not hold."""
        if a in (TRUE, FALSE):
            return FALSE if a == TRUE else TRUE
        n = 0 if a.is_uniform else self.count
        return LaneValue(
            self.w.let(f"xor {register(bool_, n)} {a.text}, {literal(True, bool_, n)}"), a.step
        )

    def some(self, a: LaneValue) -> str:
        """Whether a condition holds in any lane."""
        if a.is_uniform:
            return a.text
        n = self.count
        return self.w.let(f"call i1 @llvm.vector.reduce.or.v{n}i1(<{n} x i1> {a.text})")

    def _join(self, word: str, a: LaneValue, b: LaneValue) -> LaneValue:
        if a.is_uniform and b.is_uniform:
            return LaneValue(self.w.let(f"{word} i1 {a.text}, {b.text}"))
        left, right = self.vector(a, bool_), self.vector(b, bool_)
        return LaneValue(self.w.let(f"{word} {register(bool_, self.count)} {left}, {right}"), None)


def wrapped(number: int, bits: int = 64) -> int:
    """A number modulo a power of 2, as a signed integer of a given number of bits."""
    half = 1 << bits - 1
    return number if -half <= number < half else (number + half) % (2 * half) - half
