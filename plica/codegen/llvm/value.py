"""Values: a scalar term becomes straight LLVM text, with loops for the reductions inside it.

Both sides of a `Select` are computed and one is chosen: no operation can fail, and a load whose
index may be outside is made only where it is inside.  Whether that mattered is asked afterwards
(`plica.codegen.llvm.scope`).  So each node is emitted once, however much is shared, and the code
has no branches but around such loads.

In a vectorized loop a term that depends on its variable becomes a vector of all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from plica.codegen.llvm.access import Access, nothing
from plica.codegen.llvm.around import Around, Loop
from plica.codegen.llvm.lane import FALSE, TRUE, Lanes, Value, constant
from plica.codegen.llvm.scalar import multiply_add, operate
from plica.codegen.llvm.scope import Scope, find, more_than_inside, operands, outside, value_of
from plica.codegen.llvm.word import flag as flag_of
from plica.codegen.llvm.word import literal, register
from plica.codegen.llvm.writer import Writer
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.ir.combiner import MEANING
from plica.ir.dim import known
from plica.ir.dtype import bool_, f32, f64, i64
from plica.ir.scalar import (
    Add,
    And,
    Buffer,
    Eq,
    FloorDiv,
    FloorMod,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    Sub,
    dtype_of,
)

Action: TypeAlias = tuple[str, Scalar]


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
        self.registers: list[str] = []  # lines that reserve memory in the function's first block
        self.fails: str | None = None  # where a failed check is noted
        self.loops = False  # whether some term is a loop

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
        sizes = [max(1, size) for size in self.access.places[buffer].shape]
        pairs = list(zip(indices, sizes, strict=True))
        unsure = [pair for pair in pairs if not around.is_inside(*pair)]
        if unsure and not around.facts:
            raise CompilerBug(f"A store to {buffer.name} may be outside of it.")
        found = self.evaluate([value, *indices])
        where = dict(zip(indices, found[1:], strict=True))
        fits = self._fit([(where[index], size) for index, size in unsure])
        self._note(lanes.negated(fits))
        sound = self._sound(indices, found[1:])
        if not fits.is_uniform:
            self.access.store(buffer, found[1:], found[0], lanes.both(around.mask, fits), sound)
            return
        with self.access.only_where(fits):
            self.access.store(buffer, found[1:], found[0], around.mask, sound)

    def _fit(self, places: Sequence[tuple[Value, int]]) -> Value:
        """Whether all indices are below their counts, and not negative."""
        lanes, found = self.lanes, TRUE
        for value, count in places:
            n = 0 if value.is_uniform else lanes.count
            text = lanes.vector(value, i64) if n else lanes.scalar(value)
            fits = f"icmp ult {register(i64, n)} {text}, {literal(count, i64, n)}"
            found = lanes.both(found, Value(self.w.let(fits), None if n else 0))
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
            case Lit(number, of):
                scope.values[node] = (
                    constant(int(number)) if of is i64 else Value(literal(number, of))
                )
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
        """The terms whose values an operation takes; three where it multiplies and adds at once."""
        product = self._product(node)
        return operands(node) if product is None else product

    def _product(self, node: Scalar) -> tuple[Scalar, Scalar, Scalar] | None:
        """The factors and the other side of a sum or difference that may be rounded once."""
        if not self.fused or not isinstance(node, Add | Sub) or dtype_of(node) not in (f32, f64):
            return None
        if isinstance(node.right, Mul):
            return node.right.left, node.right.right, node.left
        if isinstance(node.left, Mul):
            return node.left.left, node.left.right, node.right
        return None

    def _added(self, node: Reduce) -> tuple[Scalar, ...]:
        """What is evaluated in each step of a reduction: the body, or the factors of it."""
        body = node.body
        if self.fused and node.combiner == "sum" and isinstance(body, Mul):
            return (body.left, body.right) if dtype_of(body) in (f32, f64) else (body,)
        return (body,)

    def _operation(self, node: Scalar, kids: Sequence[Scalar], found: Sequence[Value]) -> Value:
        easy = self._easy(node, found)
        if easy is not None:
            return easy
        lanes = self.lanes
        n = 0 if all(each.is_uniform for each in found) else lanes.count
        texts = [
            lanes.vector(value, dtype_of(kid)) if n else lanes.scalar(value)
            for kid, value in zip(kids, found, strict=True)
        ]
        if self._product(node) is not None:
            text = self._multiplied(node, texts, n)
        else:
            natural = isinstance(node, FloorDiv | FloorMod) and self._natural(node)
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

    def _easy(self, node: Scalar, found: Sequence[Value]) -> Value | None:
        """The value of what needs no instruction, or only those of addresses."""
        lanes = self.lanes
        match node:
            case Add() | Sub() | Mul() if dtype_of(node) is i64:
                word = {Add: lanes.add, Sub: lanes.sub, Mul: lanes.mul}[type(node)]
                a, b = found
                return word(a, b, "nsw " if self.around.is_near(node, found) else "")
            case And():
                return lanes.both(*found)
            case Or():
                return lanes.either(*found)
            case Not():
                return lanes.negated(*found)
            case Select() if found[0] in (TRUE, FALSE):
                return found[1] if found[0] == TRUE else found[2]
            case Select(_, Load(), Lit(value)) if value == 0 and str(value) != "-0.0":
                return found[1] if self._says_inside(node) else None
            case Lt(left, right) | Le(left, right) | Eq(left, right) | Ne(left, right):
                return self._decided(node, left, right)
            case FloorDiv() | FloorMod() | Min() | Max() if dtype_of(node) is i64:
                x, y = found[0].number, found[1].number
                return None if x is None or y is None else _folded(node, x, y)
            case _:
                return None

    def _says_inside(self, choice: Select) -> bool:
        """Whether a condition says no more than that a load is inside: elsewhere that gives 0."""
        return all(
            isinstance(each, Lt | Le) and self._decided(each, each.left, each.right) == TRUE
            for each in more_than_inside(choice)
        )

    def _decided(self, node: Scalar, left: Scalar, right: Scalar) -> Value | None:
        """A comparison of integers whose outcome the loops around it tell."""
        if not dtype_of(left).is_integer:
            return None
        a, b = self.around.interval(left)
        c, d = self.around.interval(right)
        match node:
            case Lt():
                yes, no = b < c, a >= d
            case Le():
                yes, no = b <= c, a > d
            case Eq():
                yes, no = a == b == c == d, b < c or d < a
            case _:
                yes, no = b < c or d < a, a == b == c == d
        return TRUE if yes else FALSE if no else None

    def _natural(self, node: FloorDiv | FloorMod) -> bool:
        if not dtype_of(node).is_integer:
            return False
        low, _ = self.around.interval(node.left)
        least, _ = self.around.interval(node.right)
        return low >= 0 and least > 0

    def _load(
        self, buffer: Buffer, indices: Sequence[Scalar], found: Sequence[Value]
    ) -> tuple[Value, Value | None]:
        """The element, and whether an index was outside; None where that cannot be."""
        lanes, around = self.lanes, self.around
        unsure: list[tuple[Value, int]] = []
        needed = TRUE
        shape = self.access.places[buffer].shape
        for index, value, count in zip(indices, found, shape, strict=True):
            low, high = around.interval(index)
            if count == 0:
                return nothing(buffer), TRUE
            if low >= 0 and high < count:
                continue
            if around.is_inside(index, count):
                needed = around.mask  # it is inside in the lanes that take part
            else:
                unsure.append((value, count))
        fits = self._fit(unsure)
        inside = lanes.both(fits, needed)
        loaded = self.access.load(buffer, found, inside, self._sound(indices, found))
        return loaded, lanes.negated(fits) if unsure else None

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
            count = known(extent)
            if count is None:
                raise CompilerBug(f"The reduction over {var.name} has no known extent.")
            loops.append(self.around.open(var, constant(count), (count, count)))
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


def _folded(node: FloorDiv | FloorMod | Min | Max, x: int, y: int) -> Value:
    """An operation on two numbers that are known."""
    match node:
        case Min():
            return constant(min(x, y))
        case Max():
            return constant(max(x, y))
        case _ if y == 0:
            return constant(0)
        case _:
            return constant(x // y if isinstance(node, FloorDiv) else x % y)


def _start(node: Reduce) -> Value:
    """What a reduction begins with."""
    start, _ = MEANING[node.combiner]
    first = start(dtype_of(node))
    assert isinstance(first, Lit)
    return (
        constant(int(first.value))
        if first.dtype is i64
        else Value(literal(first.value, first.dtype))
    )
