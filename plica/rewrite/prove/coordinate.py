"""Proofs by coordinates: rules of slices, pads, joins and flips, along every axis alike.

A place is one coordinate for each axis, and each operator here changes coordinates along each axis
by itself.  Both sides are read at symbolic coordinates, sizes and attributes for some ranks; the
solver shows for each that the right side is well formed, of the same shape, and equal.

# Note [Ranks that are enough]
Take a counterexample of any rank.  Whether it is one depends on an axis on which an obligation
fails, on one axis for each condition that is false in it (a condition is a conjunction over axes),
on one axis for each two different places of a tensor that are read, and on the axes that are named
alone.  All other axes can be left out, but for as many as the guard asks for: what was true along
all axes stays true, and tensors can have the same elements at the places that are left.  So there
is a counterexample whose rank is at most the number of these, and a proof for all ranks up to it is
one for all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

import attrs

from plica.core import Term, post_order
from plica.ir.contract import signless_zero
from plica.ir.graph.expression import Apply, Expr
from plica.ir.type import bool_
from plica.rewrite.check.verdict import Proved
from plica.rewrite.packs import per_axis as words
from plica.rewrite.packs.per_axis import AlongEachAxis
from plica.rewrite.pattern import Derived, Hole, TermFunction
from plica.rewrite.prove.open_tensor import Unprovable
from plica.rewrite.prove.role import check_roles
from plica.rewrite.prove.solver import MISSING, answer, is_available
from plica.rewrite.rule import Rule

Sort: TypeAlias = Literal["Bool", "Real"]
Coordinates: TypeAlias = tuple[str, ...]

MAX_RANK: Final = 7
RING: Final = {"add": "+", "subtract": "-", "multiply": "*"}
CONDITIONS: Final = {"logical_and": "and", "logical_or": "or"}


@attrs.frozen(eq=False)
class GridTensor:
    """A tensor of one rank: its size along each axis, its element at coordinates, its dtype."""

    sizes: Coordinates
    at: Callable[[Coordinates], str]
    sort: Sort
    dtype: str  # the name of a tensor or attribute that has the same dtype


class GridReading:
    """Both sides of a rule at one rank: what is declared, assumed and owed."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.declared: dict[str, str] = {}
        self.given: dict[str, None] = {}
        self.owed: list[str] = []
        self.conditions: set[str] = set()
        self.reads: dict[str, set[Coordinates]] = {}
        self.alone: set[str] = set()
        self.arithmetic = False
        self.dtypes: dict[str, str] = {}
        self.is_left = True
        self.bounded: set[str] = set()
        """Attributes of which the guard says that they have a number for each axis."""

    # --- numbers ----------------------------------------------------------------------------------

    def integer(self, name: str) -> str:
        self.declared[name] = f"(declare-fun {name} () Int)"
        return name

    def integers(self, label: str) -> Coordinates:
        """Unknown numbers, one along each axis."""
        return tuple(self.integer(f"{label}_{t}") for t in range(self.rank))

    def assume(self, facts: Iterable[str]) -> None:
        self.given.update(dict.fromkeys(facts))

    def require(self, facts: Iterable[str]) -> None:
        """Facts that the left side says, and that are owed on the right."""
        if self.is_left:
            self.assume(facts)
        else:
            self.owed.extend(facts)

    def numbers(self, given: Any) -> Coordinates:
        """A number along each axis."""
        match given:
            case int():
                return (f"{given}" if given >= 0 else f"(- {-given})",) * self.rank
            case Hole(name):
                return self.bounded_numbers(name, name)
            case Derived(function, args) if function in MEANINGS:
                return MEANINGS[function](self, *args)
        raise Unprovable("a number along each axis is not modelled")

    def bounded_numbers(self, name: str, label: str) -> Coordinates:
        if name not in self.bounded:
            raise Unprovable(f"the guard does not say that {name} has all axes")
        return self.integers(label)

    def pad_numbers(self, given: Any, side: str) -> Coordinates:
        match given:
            case Hole(name):
                widths = self.bounded_numbers(name, f"{name}_{side}")
                if self.is_left:
                    self.assume(_along("(<= 0 {})", widths))
                return widths
            case Derived(function, (low, high)) if function is words.widths:
                return self.numbers(low if side == "low" else high)
            case Derived(function, (first, second, _)) if function is words.widths_together:
                pair = (self.pad_numbers(each, side) for each in (first, second))
                return _along("(+ {} {})", *pair)
        raise Unprovable("these widths of a pad are not modelled")

    def on_axis(self, axis: Any) -> Coordinates:
        """For each axis whether it is the one that is named."""
        if not isinstance(axis, Hole):
            raise Unprovable("an axis that is written out")
        name = self.integer(f"axis_{axis.name}")
        self.assume([f"(and (<= 0 {name}) (< {name} {self.rank}))"])
        self.alone.add(name)
        return tuple(f"(= {name} {t})" for t in range(self.rank))

    def in_axes(self, axes: Any) -> Coordinates:
        """For each axis whether it is among some."""
        if not isinstance(axes, Hole):
            raise Unprovable("axes that are written out")
        names = [f"in_{axes.name}_{t}" for t in range(self.rank)]
        self.declared.update((name, f"(declare-fun {name} () Bool)") for name in names)
        return tuple(names)

    def sizes(self, of: Hole) -> Coordinates:
        sizes = self.integers(f"size_{of.name}")
        self.assume(_along("(<= 0 {})", sizes))
        return sizes

    def learn(self, guard: object) -> None:
        """What a guard says; nothing is known of one of another kind."""
        if not isinstance(guard, AlongEachAxis):
            return
        self.bounded.add(guard.of)
        for first, _, second in guard.relations:
            for side in (first, second):
                named = post_order(side) if isinstance(side, Term) else ()
                self.bounded |= {each.name for each in named if isinstance(each, Hole)}
        for first, word, second in guard.relations:
            relation = f"({word if word != '==' else '='} {{}} {{}})"
            self.assume(_along(relation, self.numbers(first), self.numbers(second)))

    def same_size(self, a: GridTensor, b: GridTensor, but: Coordinates = ()) -> None:
        """Two sizes agree along each axis: assumed on the left side, owed on the right."""
        same = _along("(= {} {})", a.sizes, b.sizes)
        self.require(_along("(or {} {})", but, same) if but else same)

    def same_dtype(self, *tensors: GridTensor) -> None:
        for a, b in pairwise(self.dtype_of(tensor.dtype) for tensor in tensors):
            if a != b and not self.is_left:
                raise Unprovable("the dtypes may differ")
            if a != b:
                self.dtypes[b] = a

    def dtype_of(self, name: str) -> str:
        while name in self.dtypes:
            name = self.dtypes[name]
        return name

    def all_of(self, inside: Sequence[str]) -> str:
        """A condition along all axes."""
        text = f"(and true {' '.join(inside)})"
        self.conditions.add(text)
        return text

    # --- tensors ----------------------------------------------------------------------------------

    def tensor(self, node: Any) -> GridTensor:
        match node:
            case Hole():
                return self._hole(node)
            case Apply(name, args, _):
                given = dict(node.attrs)
                if name == "concat":
                    return self._concat([self.tensor(arg) for arg in args], given["axis"])
                if name == "broadcast_to":
                    self._ranked(args[0])
                if name in READERS and len(args) == 1:
                    return READERS[name](self, self.tensor(args[0]), given)
                if name == "iota":
                    return self._iota(given)
                if name == "full":
                    return self._filled(self.numbers(given["shape"]), given)
                if name == "where":
                    return self._where(*map(self.tensor, args))
                if name in CONDITIONS or name in RING:
                    return self._elementwise(name, [self.tensor(arg) for arg in args])
                raise Unprovable(f"{name} is not modelled by coordinates")
        raise Unprovable(f"{type(node).__name__} is not modelled by coordinates")

    def _hole(self, node: Hole) -> GridTensor:
        constraint, name = node.constraint, node.name
        if constraint.ranks is not None or constraint.shape is not None:
            raise Unprovable("a tensor of known rank")
        sort: Sort = "Bool" if constraint.dtypes == (bool_,) else "Real"
        takes = " ".join(["Int"] * self.rank)
        self.declared[f"at_{name}"] = f"(declare-fun at_{name} ({takes}) {sort})"

        def at(place: Coordinates) -> str:
            self.reads.setdefault(name, set()).add(place)
            return f"(at_{name} {' '.join(place)})" if place else f"at_{name}"

        return GridTensor(self.sizes(node), at, sort, "bool" if sort == "Bool" else name)

    def _filled(
        self, sizes: Coordinates, given: Mapping[str, Any], like: GridTensor | None = None
    ) -> GridTensor:
        dtype, value = given["dtype"], given["value"]
        sort, text = self._value(value)
        if dtype is bool_:
            name = "bool"
        elif isinstance(dtype, Hole):
            name = f"dtype {dtype.name}"
        elif dtype is None and like is not None:
            name = like.dtype
        else:
            raise Unprovable("a tensor filled with numbers of another dtype")
        if (name == "bool") != (sort == "Bool"):
            raise Unprovable("a number of an unknown dtype")
        return GridTensor(sizes, lambda _: text, sort, name)

    def _value(self, value: Any) -> tuple[Sort, str]:
        if isinstance(value, bool):
            return "Bool", "true" if value else "false"
        if value == 0 and isinstance(value, int):
            return "Real", "0.0"
        if isinstance(value, Hole):
            self.declared[f"value_{value.name}"] = f"(declare-fun value_{value.name} () Real)"
            return "Real", f"value_{value.name}"
        raise Unprovable(f"the number {value!r} is not modelled")

    def _slice(self, of: GridTensor, given: Mapping[str, Any]) -> GridTensor:
        """A slice, whose bounds must be places in order: no other is modelled."""
        if given["axes"] is not None:
            raise Unprovable("a slice of some axes")
        starts, stops = self.numbers(given["starts"]), self.numbers(given["stops"])
        steps = given["steps"]
        self.owed.extend(_along("(<= 0 {} {} {})", starts, stops, of.sizes))
        if steps is None:
            sizes = _along("(- {} {})", stops, starts)
            return attrs.evolve(of, sizes=sizes, at=lambda q: of.at(_along("(+ {} {})", starts, q)))
        by = self.numbers(steps)
        self.owed.extend(_along("(< 0 {})", by))
        sizes = self.counts(starts, stops, by)

        def at(q: Coordinates) -> str:
            order = "(and (<= 0 (* {1} {0})) (<= (* {1} {0}) (* {1} (- {2} 1))))"
            inside = "(and (<= 0 {0}) (< {0} {2}) (< 0 {1}))"
            self.assume(_along(f"(=> {inside} {order})", q, by, sizes))  # products keep the order
            return of.at(_along("(+ {} (* {} {}))", starts, by, q))

        return attrs.evolve(of, sizes=sizes, at=at)

    def counts(self, starts: Coordinates, stops: Coordinates, steps: Coordinates) -> Coordinates:
        """How many elements a slice has along each axis: the quotient, rounded up."""
        self.declared["count"] = "(declare-fun count (Int Int) Int)"
        spans = _along("(- {} {})", stops, starts)
        counts = _along("(count {} {})", spans, steps)
        bound = "(and (< (* {1} (- {2} 1)) {0}) (<= {0} (* {1} {2})))"
        fact = f"(=> (and (<= 0 {{0}}) (< 0 {{1}})) (and (<= 0 {{2}}) {bound}))"
        self.assume(_along(fact, spans, steps, counts))
        return counts

    def _ranked(self, node: Term) -> None:
        """A broadcast may add axes, unless the guard speaks of all axes of what it repeats."""
        parts = [node, *(arg for each in post_order(node) if isinstance(each, Apply)
                         for arg in each.args)]  # fmt: skip
        if any(isinstance(part, Hole) and part.name not in self.bounded for part in parts):
            raise Unprovable("a broadcast may add axes")

    def _broadcast(self, of: GridTensor, given: Mapping[str, Any]) -> GridTensor:
        """A broadcast to a shape of as many axes."""
        sizes = self.numbers(given["shape"])
        self.require(_along("(or (= {0} 1) (= {0} {1}))", of.sizes, sizes))
        place = "(ite (= {1} 1) 0 {0})"
        return attrs.evolve(of, sizes=sizes, at=lambda q: of.at(_along(place, q, of.sizes)))

    def _iota(self, given: Mapping[str, Any]) -> GridTensor:
        """Places along an axis; what dtype they are cast to does not matter for equal places."""
        if not isinstance(given["dtype"], Hole):
            raise Unprovable("places of a dtype that is written out")
        here, sizes = self.on_axis(given["axis"]), self.numbers(given["shape"])

        def at(q: Coordinates) -> str:
            return f"(to_real (+ 0 0 {' '.join(_along('(ite {} {} 0)', here, q))}))"

        return GridTensor(sizes, at, "Real", f"dtype {given['dtype'].name}")

    def _pad(self, of: GridTensor, given: Mapping[str, Any]) -> GridTensor:
        if given["mode"] != "constant":
            raise Unprovable("a pad without a constant")
        sort, value = self._value(given["constant_values"])
        if sort != of.sort:
            raise Unprovable("a pad with a number of another dtype")
        if self.is_left and isinstance(given["pad_width"], Hole):
            self.bounded.add(given["pad_width"].name)  # a pad names all axes, or is for each alike
        low = self.pad_numbers(given["pad_width"], "low")
        high = self.pad_numbers(given["pad_width"], "high")
        self.owed.extend(_along("(<= 0 {})", (*low, *high)))
        sizes = _along("(+ {} {} {})", low, of.sizes, high)

        def at(q: Coordinates) -> str:
            place = _along("(- {} {})", q, low)
            inside = _along("(<= 0 {0}) (< {0} {1})", place, of.sizes)
            return f"(ite {self.all_of(inside)} {of.at(place)} {value})"

        return attrs.evolve(of, sizes=sizes, at=at)

    def _flip(self, of: GridTensor, given: Mapping[str, Any]) -> GridTensor:
        turned, place = self.in_axes(given["axis"]), "(ite {0} (- (- {2} 1) {1}) {1})"
        return attrs.evolve(of, at=lambda q: of.at(_along(place, turned, q, of.sizes)))

    def _concat(self, parts: list[GridTensor], axis: Any) -> GridTensor:
        here = self.on_axis(axis)
        self.same_dtype(*parts)
        if len({part.sort for part in parts}) != 1:
            raise Unprovable("the parts of concat may have different dtypes")
        first, *others = parts
        for grid_tensor in others:
            self.same_size(first, grid_tensor, here)
            first = self._joined(first, grid_tensor, here)
        return first

    def _joined(self, a: GridTensor, b: GridTensor, here: Coordinates) -> GridTensor:
        sizes = _along("(ite {0} (+ {1} {2}) {1})", here, a.sizes, b.sizes)

        def at(q: Coordinates) -> str:
            inside = _along("(=> {} (< {} {}))", here, q, a.sizes)
            rest = _along("(ite {0} (- {1} {2}) {1})", here, q, a.sizes)
            return f"(ite {self.all_of(inside)} {a.at(q)} {b.at(rest)})"

        return attrs.evolve(a, sizes=sizes, at=at)

    def _where(self, condition: GridTensor, a: GridTensor, b: GridTensor) -> GridTensor:
        if condition.sort != "Bool" or a.sort != b.sort:
            raise Unprovable("the dtypes of where may differ")
        self.same_dtype(a, b)
        self.owe_same(condition, a, b)
        return attrs.evolve(a, at=lambda q: f"(ite {condition.at(q)} {a.at(q)} {b.at(q)})")

    def _elementwise(self, name: str, args: list[GridTensor]) -> GridTensor:
        wanted: Sort = "Bool" if name in CONDITIONS else "Real"
        if any(arg.sort != wanted for arg in args):
            raise Unprovable(f"{name} of other dtypes")
        self.same_dtype(*args)
        self.owe_same(*args)
        self.arithmetic |= wanted == "Real"
        word = CONDITIONS.get(name) or RING[name]
        return attrs.evolve(args[0], at=lambda q: f"({word} {' '.join(e.at(q) for e in args)})")

    def owe_same(self, *tensors: GridTensor) -> None:
        """Elementwise operators are modelled for one shape: broadcasting is not."""
        for a, b in pairwise(tensors):
            self.owed.extend(_along("(= {} {})", a.sizes, b.sizes))


def _along(template: str, *coordinates: Sequence[str]) -> Coordinates:
    """A template filled in along each axis."""
    return tuple(template.format(*here) for here in zip(*coordinates, strict=True))


READERS: Final[Mapping[str, Callable[[GridReading, GridTensor, Mapping[str, Any]], GridTensor]]] = {
    "slice": GridReading._slice, "pad": GridReading._pad, "flip": GridReading._flip,
    "broadcast_to": GridReading._broadcast,
    "full_like": lambda reading, of, given: reading._filled(of.sizes, given, of),
}  # fmt: skip


def _each(template: str) -> Callable[..., Coordinates]:
    """A template over numbers along each axis."""
    return lambda of, *given: _along(template, *map(of.numbers, given))


MEANINGS: Final[Mapping[TermFunction, Callable[..., Coordinates]]] = {
    words.sums: _each("(+ {} {})"),
    words.differences: _each("(- {} {})"),
    words.greatest: _each("(ite (<= {0} {1}) {1} {0})"),
    words.where_zero: _each("(ite (= {} 0) {} {})"),
    words.counts: lambda of, i, j, s: of.counts(*map(of.numbers, (i, j, s))),
    words.integers: lambda of, n: of.numbers(n),
    words.extents: lambda of, x: of.sizes(x),
    words.extent_along: lambda of, x, w: _along("(ite {} {} 0)", of.on_axis(w), of.sizes(x)),
    words.extents_beside: lambda of, x, w: _along("(ite {} 0 {})", of.on_axis(w), of.sizes(x)),
    words.along: lambda of, w, n: _along("(ite {} {} 0)", of.on_axis(w), of.numbers(n)),
    words.beside: lambda of, w, n: _along("(ite {} 0 {})", of.on_axis(w), of.numbers(n)),
    words.flipped_along: lambda of, axes, *numbers: _along(
        "(ite {} {} {})", of.in_axes(axes), *map(of.numbers, numbers)
    ),
    words.before: lambda of, t: of.pad_numbers(t, "low"),
    words.behind: lambda of, t: of.pad_numbers(t, "high"),
}
"""Functions of numbers along each axis, and what they mean."""


def coordinate_proof(rule: Rule) -> Proved:
    """A proof by coordinates, or the reason (`Unprovable`) why there is none."""
    if not isinstance(rule.left, Expr) or not isinstance(rule.right, Expr):
        raise Unprovable("a side is no graph term")
    check_roles(rule.left, rule.right)
    scripts: list[str] = []
    rank = least = rule.when.least_rank if isinstance(rule.when, AlongEachAxis) else 0
    last, arithmetic = rank, False
    while rank <= last:
        reading, script = _script(rule, rank)
        if reading is not None:
            arithmetic |= reading.arithmetic
            if arithmetic and rule.contract <= signless_zero:
                raise Unprovable("arithmetic of numbers is that of reals here")
            last = max(last, _enough(reading) + least)
            if not is_available("z3"):
                raise Unprovable(MISSING["z3"])
            said = answer(script)
            if said != "unsat":
                word = "the sides differ" if said == "sat" else "z3 does not decide it"
                raise Unprovable(f"{word} by coordinates at rank {rank}")
            if last > MAX_RANK and rank >= 2:
                raise Unprovable(f"ranks up to {last} would have to be tried")
            scripts.append(script)
        else:
            last = max(last, 1)
        rank += 1
    laws = ("real arithmetic",) if arithmetic else ()
    return Proved(rule.name, f"by coordinates at ranks up to {last}", laws, tuple(scripts))


def _enough(reading: GridReading) -> int:
    """The rank of note [Ranks that are enough]."""
    pairs = sum(len(read) * (len(read) - 1) // 2 for read in reading.reads.values())
    return len(reading.conditions) + pairs + len(reading.alone) + 1


def _script(rule: Rule, rank: int) -> tuple[GridReading | None, str]:
    """The script that says that the sides differ at a rank; no reading where there is no such."""
    assert isinstance(rule.left, Expr)
    assert isinstance(rule.right, Expr)
    reading = GridReading(rank)
    if any(isinstance(node, Derived) for node in post_order(rule.left)):
        raise Unprovable("the left side is derived")
    reading.learn(rule.when)
    left = reading.tensor(rule.left)
    reading.is_left = False
    right = reading.tensor(rule.right)
    if left.sort != right.sort or reading.dtype_of(left.dtype) != reading.dtype_of(right.dtype):
        raise Unprovable("the sides may have different dtypes")
    place = reading.integers("place")
    inside = _along("(<= 0 {0}) (< {0} {1})", place, left.sizes)
    differ = f"(distinct {left.at(place)} {right.at(place)})"
    shapes = _along("(= {} {})", left.sizes, right.sizes)
    owed = " ".join(dict.fromkeys((*reading.owed, *shapes)))
    if reading.alone and not rank:
        return None, ""
    lines = [
        "(set-logic ALL)",
        *reading.declared.values(),
        *(f"(assert {each})" for each in reading.given),
        f"(assert (or (not (and true {owed})) (and true {' '.join(inside)} {differ})))",
        "(check-sat)",
        "",
    ]
    return reading, "\n".join(lines)
