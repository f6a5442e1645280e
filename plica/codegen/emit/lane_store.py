"""Lane stores: a loop over lanes as one statement, where the language has vectors of such a length.

for (v < 16) sum[a + v] = sum[a + v] + y[b + v] * x[c];
*(float16_ *)&sum[a] = p_fma_f32_16(*(float16_ *)&y[b], (float16)(x[c]), *(float16_ *)&sum[a]);
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from plica.codegen.emit.clike import count_of
from plica.codegen.emit.clike_operator import by_template
from plica.codegen.emit.contraction import accumulations, factors
from plica.codegen.emit.expression import Expressions, linear
from plica.core import Name, free_vars, fresh, post_order, substitute
from plica.ir.loop import NOTHING, Branch, For, Store, scalar as sc
from plica.ir.type import f32, f64, i32, known, polynomial

LARGEST: Final = (1 << 31) - 1  # the largest index in a vector of indices
STEPS: Final = (1, 2)  # how far elements may be apart that are read at once
LENGTHS: Final = (2, 4, 8, 16)  # how many lanes a vector may have
FORMULAS: Final = ("erf", "expm1", "log1p")
"""Functions that drivers compute lane by lane: vectors of them are Plica's own formulas."""

SIGNS: Final = {sc.Add: "+", sc.Sub: "-", sc.Mul: "*"}
EXTREMES: Final = {sc.Min: "min", sc.Max: "max"}

ROLLED: Final = "#pragma nounroll"
"""A pragma that keeps a loop, so that the compiler vectorises it instead of unrolling."""

_Lanes: TypeAlias = "tuple[bool, str]"  # whether a text is a vector, and the text


def has_lanes(loop: For) -> bool:
    """Whether a loop over lanes can be one statement: it stores as many neighbours as a vector."""
    store = loop.body
    if known(loop.extent) not in LENGTHS or not isinstance(store, Store):
        return False
    step = _step(store.buffer, store.indices, loop.var)
    return store.buffer.dtype in (f32, f64, i32) and step == 1


def in_lanes(loop: For) -> tuple[For, ...]:
    """A loop over lanes as loops over vectors, the longest first; nothing where no vector of lanes
    can be one statement.  Lanes behind a guard that the last ones fail are fewer."""
    count, kind, body = known(loop.extent) or 0, sc.dtype_of(loop.var), loop.body
    match body:
        case Branch(sc.Lt(sc.ScalarVar() as var, sc.Lit(int(most))), then, rest) if (
            var is loop.var and rest is NOTHING
        ):
            count, body = min(count, most), then
    if body is loop.body and count in LENGTHS:
        return ()
    used = {each.name for each in post_order(body) if isinstance(each, sc.ScalarVar)}
    lane, turn = (sc.ScalarVar(fresh(Name(each), used), kind) for each in ("lane", "turn"))

    def lanes(extent: int, start: sc.Scalar) -> For:
        inside = substitute(body, {loop.var: start + lane})
        return For(lane, sc.index(extent), "vectorized", inside)

    loops: list[For] = []
    done = 0
    for length in reversed(LENGTHS):
        turns = (count - done) // length
        if turns > 1:
            inner = lanes(length, turn * length + done)
            loops.append(For(turn, sc.index(turns), "serial", inner))
        elif turns:
            inner = lanes(length, sc.Lit(done, kind))
            loops.append(inner)
        if turns and not has_lanes(inner):
            return ()
        done += turns * length
    if done < count:
        loops.append(lanes(count - done, sc.Lit(done, kind)))
    return tuple(loops) if len(loops) > 1 or done else ()


def _step(buffer: sc.Buffer, indices: Sequence[sc.Scalar], var: sc.ScalarVar) -> int:
    """How far the elements of neighbouring lanes are apart in memory; 0 where that differs."""
    found = 0
    for atoms, factor in polynomial(linear(buffer, indices)).values():
        if var in atoms and len(atoms) == 1:
            found = factor
        elif any(var in free_vars(atom) for atom in atoms):
            return 0
    return found


class LaneStore:
    """Writes stores of all lanes of a loop; `fused` allows `a * b + c` to be rounded once."""

    def __init__(self, values: Expressions, fused: bool, space: Callable[[sc.Buffer], str]) -> None:
        self.values, self.fused, self.space = values, fused, space
        """`space` is the address space qualifier of a buffer."""

    def write(self, loop: For) -> bool:
        """Emits a vectorized loop as one statement; False if it must stay a loop."""
        if not has_lanes(loop):
            return False
        store, values, count = loop.body, self.values, known(loop.extent) or 0
        assert isinstance(store, Store)
        values.known.bound(loop.var, (0, count - 1))
        if values.unproved(store.buffer, store.indices):
            return False
        self._loop, self._count, self._of_lane = loop, count, store.buffer.dtype
        self._kind = f"{values.dialect.register(self._of_lane)}{count}"
        self._sums = accumulations(store.buffer, store.value) if self.fused else frozenset()
        value = self._wide(self._of(store.value))
        self._first()
        values.lines.do(f"{self._lanes(store.buffer, store.indices)} = {value};")
        return True

    def _lanes(self, buffer: sc.Buffer, indices: Sequence[sc.Scalar]) -> str:
        """Neighbours in memory from a place on, at any multiple of an element."""
        place, where = self.values.place(buffer, indices), self.space(buffer)
        self.values.help(f"{self._kind}_")
        return f"*({where} {self._kind}_ *)&{place}"

    def _read(self, buffer: sc.Buffer, indices: Sequence[sc.Scalar]) -> str:
        """Loads elements from an index on, contiguous or every other one: the even ones from the
        first half of the covered range, the odd ones from the second."""
        self._first()
        if _step(buffer, indices, self._loop.var) == 1:
            return self._lanes(buffer, indices)
        place, where = self.values.place(buffer, indices), self.space(buffer)
        self.values.help(f"{self._kind}_")
        halves = [f"(*({where} {self._kind}_ *)(&{place} + {at}))" for at in (0, self._count - 1)]
        return f"({self._kind})({halves[0]}.even, {halves[1]}.odd)"

    def _first(self) -> None:
        """Places are those of the first lane from here on."""
        var = self._loop.var
        self.values.vars[var] = self.values.dialect.literal(0, sc.dtype_of(var))

    def _of(self, node: sc.Scalar) -> _Lanes:
        """The text of a term; terms that reach here are as small as a stored value."""
        values, var, of = self.values, self._loop.var, self._of_lane
        if var not in free_vars(node):
            return False, values.of(node)
        kids = [child for child in node._children if isinstance(child, sc.Scalar)]
        match node:
            case sc.Load(buffer, indices):
                near = buffer.dtype is of and _step(buffer, indices, var) in STEPS
                if near and not values.unproved(buffer, indices):
                    return True, self._read(buffer, indices)
                return self._one_by_one(node)
            case sc.Add() | sc.Sub() | sc.Mul():
                if (three := factors(node, self._sums)) is not None:
                    helper = values.help(f"p_fma_{of.name}_{self._count}")
                    parts = [self._wide(self._of(scalar)) for scalar in three]
                    return True, f"{helper}({', '.join(parts)})"
                one, two = [self._wide(self._of(child)) for child in kids]
                return True, f"({one} {SIGNS[type(node)]} {two})"
            case sc.Div() if of.is_float:
                one, two = [self._wide(self._of(child)) for child in kids]
                return True, f"({one} / {two})"
            case sc.Min() | sc.Max() if of.is_float:
                parts = [self._wide(self._of(child)) for child in kids]
                helper = values.help(f"p_{EXTREMES[type(node)]}_{of.name}_{self._count}")
                return True, f"{helper}({', '.join(parts)})"
            case sc.Intrinsic(name, (only,)) if of is f32 and name in FORMULAS:
                helper = values.help(f"p_{name}_f32_{self._count}")
                return True, f"{helper}({self._wide(self._of(only))})"
            case sc.Intrinsic(_, args) if of is f32 and _is_function(node):
                row = sc.row_of(node)
                assert row is not None  # as was asked
                parts = [self._wide(self._of(arg)) for arg in args]
                return True, by_template(row.words("c")[of.kind], row, of, parts, values)
            case sc.Select(guard, sc.Load(buffer, indices), orelse) if (
                var not in free_vars(orelse) and _step(buffer, indices, var) in STEPS
            ):
                return self._guarded(node, guard, values.unproved(buffer, indices))
            case _:
                return self._one_by_one(node)

    def _guarded(
        self, node: sc.Select, guard: sc.Scalar, doubtful: list[tuple[sc.Scalar, int]]
    ) -> _Lanes:
        """A guarded load: one vector if all of it is in the buffer, masked by the guard."""
        values, dialect, load = self.values, self.values.dialect, node.then
        assert isinstance(load, sc.Load)
        buffer, indices = load.buffer, load.indices
        step = _step(buffer, indices, self._loop.var)
        starts = count_of(buffer) - step * (self._count - 1)
        mask = self._mask(guard) if self._of_lane.bytes == 4 and starts > 0 else None
        places = [(self._vector(at), most) for at, most in doubtful]
        if mask is None or any(at is None for at, _ in places):
            return self._one_by_one(node)
        self._first()
        name, signs = values.names.fresh("guarded"), f"int{self._count}"
        values.lines.do(dialect.variable.format(type=self._kind, name=name))
        test = values.inside([values.of(linear(buffer, indices))], [starts])
        values.lines.open(f"if ({test})")
        if places:
            inside = " & ".join([f"(as_u{signs}({at}) < (u{signs})({n}))" for at, n in places])
            values.lines.do(f"if (any({mask} & ~({inside}))) {dialect.failure}")
        other = f"({self._kind})({values.of(node.orelse)})"
        values.lines.do(f"{name} = select({other}, {self._read(buffer, indices)}, {mask});")
        values.lines.turn("else")
        values.lines.do(f"{name} = {self._one_by_one(node)[1]};")
        values.lines.close()
        return True, name

    def _mask(self, guard: sc.Scalar) -> str | None:
        """The mask of a guard as all-ones lanes, or None if it cannot be computed by vectors."""
        match guard:
            case sc.And(left, right):
                sides = self._mask(left), self._mask(right)
                return None if None in sides else f"({sides[0]} & {sides[1]})"
            case sc.Lt(left, right) | sc.Le(left, right) if self._loop.var in free_vars(guard):
                one, two = self._vector(left), self._vector(right)
                sign = "<" if isinstance(guard, sc.Lt) else "<="
                return None if one is None or two is None else f"({one} {sign} {two})"
            case _ if self._loop.var in free_vars(guard):
                return None
        return f"(int{self._count})(-({self.values.of(guard)}))"

    def _vector(self, term: sc.Scalar) -> str | None:
        """An index per lane, or None if it is not affine or too large."""
        values, var = self.values, self._loop.var
        low, high = values.known.interval(term)
        if not sc.dtype_of(term).is_integer or low < -LARGEST or high > LARGEST:
            return None
        step = 0
        for atoms, factor in polynomial(term).values():
            if atoms == (var,):
                step = factor
            elif any(var in free_vars(atom) for atom in atoms):
                return None
        self._first()
        first, signs = f"(int)({values.of(term)})", f"int{self._count}"
        if not step:
            return f"({signs})({first})"
        lanes = ", ".join(str(step * lane) for lane in range(self._count))
        return f"(({signs})({first}) + ({signs})({lanes}))"

    def _one_by_one(self, node: sc.Scalar) -> _Lanes:
        """A term computed lane by lane, then collected in a vector."""
        values, dialect, loop = self.values, self.values.dialect, self._loop
        name = values.names.fresh("lanes")
        kind = dialect.register(self._of_lane)
        values.lines.do(dialect.allocation.format(type=kind, name=name, count=self._count))
        values.lines.do(ROLLED)
        values.open(loop.var, loop.extent)
        text = values.of(node)
        values.lines.do(f"{name}[{values.vars[loop.var]}] = {text};")
        values.lines.close()
        values.help(f"{self._kind}_")
        return True, f"*({self._kind}_ *){name}"

    def _wide(self, found: _Lanes) -> str:
        return found[1] if found[0] else f"({self._kind})({found[1]})"


def _is_function(node: sc.Scalar) -> bool:
    """Whether an operator is a function of the library, which such languages have for vectors."""
    row = sc.row_of(node)
    word = "" if row is None else row.words("c").get("float", "")
    return word.startswith(("exp{e}(", "log{e}(", "tanh{e}(", "sqrt{e}(", "fabs{e}(", "floor{e}("))


__all__ = ["FORMULAS", "LENGTHS", "ROLLED", "LaneStore", "has_lanes", "in_lanes"]
