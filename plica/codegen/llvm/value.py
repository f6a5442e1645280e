"""Values: a scalar term becomes straight LLVM text, with loops for the reductions inside it.

Both sides of a `Select` are computed and one is chosen: no operation can fail, and a load whose
index may be outside is made only where it is inside.  Whether that mattered is asked afterwards
(`plica.codegen.llvm.scope`).  So each node is emitted once, however much is shared, and the code
has no branches but around such loads.

In a vectorized loop a term that depends on its variable becomes a vector of all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from plica.codegen.llvm.access import Access, Size, nothing
from plica.codegen.llvm.around import Around, Loop, within
from plica.codegen.llvm.easy import easy, is_natural, summed
from plica.codegen.llvm.lane import FALSE, TRUE, Lanes, Value, wrapped
from plica.codegen.llvm.recipe import Recipe, factors, of_literal, parts, recipe
from plica.codegen.llvm.scalar import multiply_add, operate
from plica.codegen.llvm.scope import Scope, find, outside, value_of
from plica.codegen.llvm.word import flag as flag_of
from plica.codegen.llvm.word import literal, register
from plica.codegen.llvm.writer import Writer
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.ir.combiner import MEANING
from plica.ir.dim import known
from plica.ir.dtype import DType, bool_, f32, f64, i64
from plica.ir.scalar import (
    Buffer,
    FloorDiv,
    FloorMod,
    Lit,
    Load,
    Mul,
    Reduce,
    Scalar,
    ScalarVar,
    Sub,
    dtype_of,
)

Action: TypeAlias = tuple[str, Scalar]

_UNKNOWN: Final = ""


class Values:
    """Emits values into a writer; knows the loops that are open and the buffers there are.

    `fused` allows a product and a sum to be rounded once.
    """

    def __init__(self, w: Writer, fused: bool = False) -> None:
        self.w = w
        self.fused = fused
        self.lanes = Lanes(w)
        self.around = Around(self.lanes)
        self.access = Access(self.lanes)
        self.access.size = self._size
        self.registers: list[str] = []  # lines that reserve memory in the function's first block
        self.fails: str | None = None  # where a failed check is noted
        self.loops = False  # whether some term is a loop
        self._recipes: dict[tuple[Scalar, ...], Recipe | None] = {}

    # --- memory --------------------------------------------------------------------------------

    def reserve(self, kind: str, count: int = 1) -> str:
        """Memory of the function itself."""
        name = self.w.fresh().replace("%", "%own.")
        whole = kind if count == 1 else f"[{count} x {kind}]"
        self.registers.append(f"  {name} = alloca {whole}, align 64")
        return name

    def store(self, buffer: Buffer, indices: Sequence[Scalar], value: Scalar) -> None:
        """`buffer[indices] = value`; what only a condition keeps inside is checked if need be."""
        lanes, around = self.lanes, self.around
        found = self.evaluate((value, *indices))
        # Nothing is stored in an empty buffer: the loops around do not run.
        shape = self.access.places[buffer].shape
        sizes: list[Size] = [max(1, size) if isinstance(size, int) else size for size in shape]
        pairs = list(zip(indices, sizes, strict=True))
        unsure = [pair for pair in pairs if not around.is_inside(*pair)]
        if unsure and not around.facts:
            raise CompilerBug(f"A store to {buffer.name} may be outside of it.")
        sound = self._sound(indices, found[1:])
        if not unsure:
            self.access.store(buffer, found[1:], found[0], around.mask, sound)
            return
        where = dict(zip(indices, found[1:], strict=True))
        fits = self._fit([(where[index], size) for index, size in unsure])
        self._note(lanes.negated(fits))
        if not fits.is_uniform:
            self.access.store(buffer, found[1:], found[0], lanes.both(around.mask, fits), sound)
            return
        with self.access.only_where(fits):
            self.access.store(buffer, found[1:], found[0], around.mask, sound)

    def _fit(self, places: Sequence[tuple[Value, Size]]) -> Value:
        """Whether all indices are below their counts, and not negative."""
        lanes, found = self.lanes, TRUE
        for value, count in places:
            n = 0 if value.is_uniform else lanes.count
            text = lanes.vector(value, i64) if n else lanes.scalar(value)
            if isinstance(count, int):
                most = literal(count, i64, n)
            else:
                size = self._size(count)
                most = lanes.vector(size, i64) if n else lanes.scalar(size)
            fits = f"icmp ult {register(i64, n)} {text}, {most}"
            found = lanes.both(found, Value(self.w.let(fits), None if n else 0))
        return found

    def _size(self, of: Scalar) -> Value:
        """The value of an open size."""
        (found,) = self.evaluate([of])
        return found

    def _sound(self, indices: Sequence[Scalar], found: Sequence[Value]) -> bool:
        """Whether each index is inside its buffer without the constant it has in the end too."""
        return all(
            0 <= value.plus <= self.around.interval(index)[0]
            for index, value in zip(indices, found, strict=True)
        )

    # --- terms ---------------------------------------------------------------------------------

    def evaluate(self, roots: Sequence[Scalar]) -> list[Value]:
        """The values of terms here and now; loads are made again each time."""
        key = tuple(roots)
        known_ = self._recipes.get(key, _UNKNOWN)
        if isinstance(known_, str):
            known_ = self._recipes[key] = recipe(key, self.fused)
        return self._walk(roots) if known_ is None else self._follow(known_)

    def _follow(self, of: Recipe) -> list[Value]:
        """The values of terms by their recipe."""
        around = self.around
        around.prepare(of.bounds)
        found = list(of.start)
        checked: dict[Scalar, Value] = {}
        for word, number, node, kids, dtypes in of.steps:
            if word == "var":
                if node not in around.vars:
                    raise CompilerBug(f"{node!r} is not bound.")
                found[number] = around.vars[node]
            elif word == "add":
                a, b = found[kids[0]], found[kids[1]]
                if a.step is None or b.step is None or (a.text and b.text):
                    found[number] = summed(node, a, b, around)
                else:
                    text, step = a.text or b.text, a.step + b.step
                    found[number] = Value(text, step, wrapped(a.plus + b.plus))
            elif word == "mul":
                a, b = found[kids[0]], found[kids[1]]
                if a.text or b.text or a.step != 0 or b.step != 0:
                    found[number] = summed(node, a, b, around)
                else:
                    found[number] = Value("", 0, wrapped(a.plus * b.plus))
            elif word == "sub":
                found[number] = summed(node, found[kids[0]], found[kids[1]], around)
            elif word == "load":
                assert isinstance(node, Load)
                places = [found[kid] for kid in kids]
                found[number], failed = self._load(node.buffer, node.indices, places)
                if failed is not None:
                    checked[node] = failed
            else:
                values = [found[kid] for kid in kids]
                value = easy(node, values, around) if word == "easy" else None
                found[number] = self._instruction(node, dtypes, values) if value is None else value
        if checked:
            scope = self._scope(of, found, checked)
            for root in of.roots:
                self._note(outside(scope, of.nodes[root], around, self._operands))
        return [found[root] for root in of.roots]

    def _scope(self, of: Recipe, found: Sequence[Value], checked: dict[Scalar, Value]) -> Scope:
        """What was written by a recipe, as if walked through."""
        scope = Scope()
        scope.values = dict(zip(of.nodes, found, strict=True))
        scope.outside = checked
        for _, _, node, kids, _ in of.steps:
            if node in checked or not scope.unsafe.isdisjoint([of.nodes[kid] for kid in kids]):
                scope.unsafe.add(node)
            if not isinstance(node, ScalarVar):
                scope.order.append(node)
        return scope

    def _walk(self, roots: Sequence[Scalar]) -> list[Value]:
        """The values of terms in which there are loops."""
        scopes = [Scope()]
        opened: list[tuple[list[Loop], str, str]] = []
        stack: list[Action] = [("visit", root) for root in reversed(roots)]
        while stack:
            action, node = stack.pop()
            scope = scopes[-1]
            if action == "visit":
                if find(node, scopes) is not None:
                    continue
                if isinstance(node, Lit | ScalarVar):
                    self._emit(node, scopes)
                elif not isinstance(node, Reduce):
                    stack.append(("leave", node))
                    stack += [("visit", kid) for kid in reversed(self._operands(node))]
                elif any(known(extent) == 0 for extent in node.extents):
                    scope.values[node] = _start(node)
                else:
                    stack.append(("close", node))
                    stack += [("visit", each) for each in reversed(self._added(node))]
                    stack.append(("open", node))
            elif action == "leave":
                if node not in scope.values:
                    self._emit(node, scopes)
            elif action == "open" and isinstance(node, Reduce):
                opened.append(self._open(node))
                scopes.append(Scope())
            elif isinstance(node, Reduce):
                self._close(node, scopes, *opened.pop())
        (scope,) = scopes
        for root in roots:
            self._note(outside(scope, root, self.around, self._operands))
        return [value_of(root, scopes) for root in roots]

    def _emit(self, node: Scalar, scopes: list[Scope]) -> None:
        scope = scopes[-1]
        kids = self._operands(node)
        value: Value
        match node:
            case Lit():
                scope.values[node] = of_literal(node)
                return
            case ScalarVar():
                if node not in self.around.vars:
                    raise CompilerBug(f"The variable {node.name} is not bound.")
                scope.values[node] = self.around.vars[node]
                return
            case Load(buffer, indices):
                value, failed = self._load(buffer, indices, [value_of(i, scopes) for i in indices])
                if failed is not None:
                    scope.outside[node] = failed
                    scope.unsafe.add(node)
            case _:
                value = self._operation(node, kids, [value_of(kid, scopes) for kid in kids])
        if not scope.unsafe.isdisjoint(kids):
            scope.unsafe.add(node)
        scope.values[node] = value
        scope.order.append(node)

    def _operands(self, node: Scalar) -> tuple[Scalar, ...]:
        return parts(node, self.fused)

    def _added(self, node: Reduce) -> tuple[Scalar, ...]:
        """What is evaluated in each step of a reduction: the body, or the factors of it."""
        body = node.body
        if self.fused and node.combiner == "sum" and isinstance(body, Mul):
            return (body.left, body.right) if dtype_of(body) in (f32, f64) else (body,)
        return (body,)

    def _operation(self, node: Scalar, kids: Sequence[Scalar], found: Sequence[Value]) -> Value:
        value = easy(node, found, self.around)
        if value is not None:
            return value
        return self._instruction(node, [dtype_of(kid) for kid in kids], found)

    def _instruction(self, node: Scalar, dtypes: Sequence[DType], found: Sequence[Value]) -> Value:
        """The value of a node that takes an instruction."""
        lanes = self.lanes
        n = 0
        for each in found:
            if each.step != 0:
                n = lanes.count
        texts = [
            lanes.vector(value, of) if n else lanes.scalar(value)
            for of, value in zip(dtypes, found, strict=True)
        ]
        if factors(node, self.fused) is not None:
            text = self._multiplied(node, texts, n)
        else:
            natural = isinstance(node, FloorDiv | FloorMod) and is_natural(node, self.around)
            text = operate(self.w, node, texts, natural, n)
        return Value(text, None if n else 0)

    def _multiplied(self, node: Scalar, texts: Sequence[str], n: int) -> str:
        a, b, c = texts
        of = dtype_of(node)
        if isinstance(node, Sub):
            kind = register(of, n)
            if isinstance(node.right, Mul):
                a = self.w.let(f"fneg {kind} {a}")
            else:
                c = self.w.let(f"fneg {kind} {c}")
        return multiply_add(self.w, (a, b, c), of, n)

    def _load(
        self, buffer: Buffer, indices: Sequence[Scalar], found: Sequence[Value]
    ) -> tuple[Value, Value | None]:
        """The element, and whether an index was outside; None where that cannot be."""
        lanes, around = self.lanes, self.around
        unsure: list[tuple[Value, Size]] = []
        needed, sound = TRUE, True
        shape = self.access.places[buffer].shape
        for index, value, count in zip(indices, found, shape, strict=True):
            low, high = around.interval(index)
            if not 0 <= value.plus <= low:
                sound = False
            if count == 0:
                return nothing(buffer), TRUE
            if isinstance(count, int) and low >= 0 and high < count:
                continue
            if around.is_inside(index, count):
                needed = around.mask  # it is inside in the lanes that take part
            else:
                unsure.append((value, count))
        if not unsure:
            return self.access.load(buffer, found, needed, sound), None
        fits = self._fit(unsure)
        loaded = self.access.load(buffer, found, lanes.both(fits, needed), sound)
        return loaded, lanes.negated(fits)

    # --- reductions ----------------------------------------------------------------------------

    def _open(self, node: Reduce) -> tuple[list[Loop], str, str]:
        n = self._width(node)
        of = dtype_of(node)
        total = self.reserve(register(of, n))
        flag = self.reserve(flag_of(n))
        first = _start(node)
        text = self.lanes.vector(first, of) if n else self.lanes.scalar(first)
        self.w.do(f"store {register(of, n)} {text}, ptr {total}")
        self.w.do(f"store {flag_of(n)} {literal(False, bool_, n)}, ptr {flag}")
        self.loops = True
        loops = []
        for var, extent in zip(node.axes, node.extents, strict=True):
            (many,) = self.evaluate([extent])
            bounds = self.around.interval(extent)
            loops.append(self.around.open(var, many, bounds))
            self.around.facts += within(var, extent)
        return loops, total, flag

    def _width(self, node: Reduce) -> int:
        """How many lanes a reduction has: all, if it may be another in each."""
        around = self.around
        if around.lane is None or (around.lane not in free_vars(node) and around.mask.is_uniform):
            return 0
        return self.lanes.count

    def _close(
        self, node: Reduce, scopes: list[Scope], loops: list[Loop], total: str, flag: str
    ) -> None:
        w, lanes, n = self.w, self.lanes, self._width(node)
        of = dtype_of(node)
        kind = register(of, n)
        added = self._added(node)
        values = [value_of(each, scopes) for each in added]
        texts = [lanes.vector(each, of) if n else lanes.scalar(each) for each in values]
        fails = FALSE
        for each in added:
            fails = lanes.either(fails, outside(scopes[-1], each, self.around, self._operands))
        if fails != FALSE:
            before = Value(w.let(f"load {flag_of(n)}, ptr {flag}"), None if n else 0)
            now = lanes.either(before, fails)
            w.do(f"store {flag_of(n)} {lanes.vector(now, bool_) if n else now.text}, ptr {flag}")
        so_far = w.let(f"load {kind}, ptr {total}")
        if len(texts) == 2:
            joined = multiply_add(w, (*texts, so_far), of, n)
        else:
            _, join = MEANING[node.combiner]
            joined = operate(w, join(node.body, node.body), [so_far, *texts], n=n)
        w.do(f"store {kind} {joined}, ptr {total}")
        for loop in reversed(loops):
            self.around.close(loop)
        for var, extent in zip(node.axes, node.extents, strict=True):
            told = within(var, extent)
            del self.around.facts[len(self.around.facts) - len(told) :]
        scopes.pop()
        scope = scopes[-1]
        scope.values[node] = Value(w.let(f"load {kind}, ptr {total}"), None if n else 0)
        scope.order.append(node)
        if fails != FALSE:
            scope.outside[node] = Value(w.let(f"load {flag_of(n)}, ptr {flag}"), None if n else 0)
            scope.unsafe.add(node)

    # --- checks --------------------------------------------------------------------------------

    def _note(self, failed: Value) -> None:
        """Remember that an index was outside, in a lane that takes part."""
        failed = self.lanes.both(self.around.mask, failed)
        if failed == FALSE:
            return
        if self.fails is None:
            self.fails = self.reserve("i1")
            self.registers.append(f"  store i1 false, ptr {self.fails}")
        before = self.w.let(f"load i1, ptr {self.fails}")
        now = self.w.let(f"or i1 {before}, {self.lanes.some(failed)}")
        self.w.do(f"store i1 {now}, ptr {self.fails}")


def _start(node: Reduce) -> Value:
    """What a reduction begins with."""
    start, _ = MEANING[node.combiner]
    first = start(dtype_of(node))
    assert isinstance(first, Lit)
    return of_literal(first)
