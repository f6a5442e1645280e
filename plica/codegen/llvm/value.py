"""Values: a scalar term becomes straight LLVM text, with loops for the reductions inside it.

Both sides of a `Select` are computed and one is chosen: no operation can fail, and a load whose
index may be outside its buffer is made only where it is inside.  Whether an index that was outside
mattered is asked afterwards: it did if every guard above the load let it through.  So each node is
emitted once, however much is shared, and the code has no branches but around such loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from plica.codegen.llvm.scalar import operate, pack, unpack
from plica.codegen.llvm.word import literal, memory, register
from plica.codegen.llvm.writer import Writer
from plica.codegen.lower.bound import FACTS, Interval, facts_of, implied, interval
from plica.ir.combiner import MEANING
from plica.core.diagnostic import CompilerBug
from plica.core.term import Term
from plica.ir.dim import known
from plica.ir.dtype import i64
from plica.ir.scalar import (
    And,
    Buffer,
    FloorDiv,
    FloorMod,
    Le,
    Lit,
    Load,
    Lt,
    Not,
    Or,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
)

Action: TypeAlias = tuple[str, Scalar]


class Scope:
    """What has been emitted since a loop was opened, in order."""

    def __init__(self) -> None:
        self.values: dict[Scalar, str] = {}
        self.order: list[Scalar] = []
        self.outside: dict[Scalar, str] = {}  # a load or reduction: whether an index was outside
        self.unsafe: set[Scalar] = set()  # nodes with such a load below them


class Values:
    """Emits values into a writer; knows the loops that are open and the buffers there are."""

    def __init__(self, w: Writer) -> None:
        self.w = w
        self.pointers: dict[Buffer, str] = {}
        self.registers: list[str] = []  # lines that reserve memory in the function's first block
        self.vars: dict[ScalarVar, str] = {}
        self.ranges: dict[Term, Interval] = {}
        self.intervals: dict[Term, Interval] = {}
        self.fails: str | None = None  # where a failed check is noted

    # --- loops ---------------------------------------------------------------------------------

    def open(self, var: ScalarVar, extent: Scalar) -> tuple[ScalarVar, list[str]]:
        """Begin a loop; what is returned closes it."""
        count = known(extent)
        if count is None:
            raise CompilerBug(f"The loop over {var.name} has no known extent.")
        w = self.w
        head, body, after, step, done = w.labels("head", "body", "after", "%step", "done")
        before = w.block
        w.do(f"br label %{head}")
        w.start(head)
        now = w.let(f"phi i64 [ 0, %{before} ], [ {step}, %{after} ]")
        more = w.let(f"icmp slt i64 {now}, {count}")
        w.do(f"br i1 {more}, label %{body}, label %{done}")
        w.start(body)
        if var in self.vars:
            raise CompilerBug(f"The loop variable {var.name} is bound twice.")
        self.vars[var] = now
        self.ranges[var] = (0, max(0, count - 1))
        self.intervals.clear()
        return var, [head, after, step, done]

    def close(self, opened: tuple[ScalarVar, list[str]]) -> None:
        """End a loop."""
        var, (head, after, step, done) = opened
        w = self.w
        w.do(f"br label %{after}")
        w.start(after)
        w.do(f"{step} = add nuw nsw i64 {self.vars[var]}, 1")
        w.do(f"br label %{head}")
        w.start(done)
        del self.vars[var], self.ranges[var]
        self.intervals.clear()

    # --- memory --------------------------------------------------------------------------------

    def reserve(self, kind: str, count: int = 1) -> str:
        """Memory of the function itself."""
        name = self.w.fresh().replace("%", "%own.")
        many = "" if count == 1 else f", i64 {count}"
        self.registers.append(f"  {name} = alloca {kind}{many}, align 64")
        return name

    def address(self, buffer: Buffer, indices: Sequence[str]) -> str:
        """The address of an element whose indices are inside the buffer."""
        w = self.w
        linear: str | None = None
        for index, size in zip(indices, buffer.shape, strict=True):
            if linear is None:
                linear = index
            else:
                scaled = w.let(f"mul nuw nsw i64 {linear}, {known(size)}")
                linear = w.let(f"add nuw nsw i64 {scaled}, {index}")
        pointer = self.pointers[buffer]
        if linear is None:
            return pointer
        return w.let(f"getelementptr inbounds {memory(buffer.dtype)}, ptr {pointer}, i64 {linear}")

    def store(self, buffer: Buffer, indices: Sequence[Scalar], value: Scalar) -> None:
        """`buffer[indices] = value`."""
        for index, size in zip(indices, buffer.shape, strict=True):
            low, high = interval(index, self.ranges, self.intervals)
            if low < 0 or high >= max(1, known(size) or 0):
                raise CompilerBug(f"A store to {buffer.name} may be outside of it.")
        found = self.evaluate([value, *indices])
        stored = pack(self.w, found[0], buffer.dtype)
        kind, align = memory(buffer.dtype), buffer.dtype.bytes
        place = self.address(buffer, found[1:])
        self.w.do(f"store {kind} {stored}, ptr {place}, align {align}")

    # --- terms ---------------------------------------------------------------------------------

    def evaluate(self, roots: Sequence[Scalar]) -> list[str]:
        """The values of terms here and now; loads are made again each time."""
        scopes = [Scope()]
        opened: list[tuple[list[tuple[ScalarVar, list[str]]], str, str]] = []
        stack: list[Action] = [("visit", root) for root in reversed(roots)]
        while stack:
            action, node = stack.pop()
            scope = scopes[-1]
            if action == "visit":
                if _find(node, scopes) is not None:
                    continue
                if isinstance(node, Reduce):
                    stack += [("close", node), ("visit", node.body), ("open", node)]
                else:
                    stack.append(("leave", node))
                    stack += [("visit", kid) for kid in reversed(operands(node))]
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
            self._note(self._outside(scope, root))
        return [_value(root, scopes) for root in roots]

    def _emit(self, node: Scalar, scopes: list[Scope]) -> None:
        scope = scopes[-1]
        kids = operands(node)
        value: str
        match node:
            case Lit(number, of):
                scope.values[node] = literal(number, of)
                return
            case ScalarVar():
                if node not in self.vars:
                    raise CompilerBug(f"The variable {node.name} is not bound.")
                scope.values[node] = self.vars[node]
                return
            case Load(buffer, indices):
                value, outside = self._load(buffer, indices, [_value(i, scopes) for i in indices])
                if outside is not None:
                    scope.outside[node] = outside
                    scope.unsafe.add(node)
            case _:
                natural = isinstance(node, FloorDiv | FloorMod) and self._natural(node)
                value = operate(self.w, node, [_value(kid, scopes) for kid in kids], natural)
        if not scope.unsafe.isdisjoint(kids):
            scope.unsafe.add(node)
        scope.values[node] = value
        scope.order.append(node)

    def _natural(self, node: FloorDiv | FloorMod) -> bool:
        if not dtype_of(node).is_integer:
            return False
        low, _ = interval(node.left, self.ranges, self.intervals)
        least, _ = interval(node.right, self.ranges, self.intervals)
        return low >= 0 and least > 0

    def _load(
        self, buffer: Buffer, indices: Sequence[Scalar], found: Sequence[str]
    ) -> tuple[str, str | None]:
        """The element, and whether an index was outside; None where that cannot be."""
        w = self.w
        kind, of = memory(buffer.dtype), buffer.dtype
        inside: str | None = None
        for index, value, size in zip(indices, found, buffer.shape, strict=True):
            low, high = interval(index, self.ranges, self.intervals)
            count = known(size)
            assert count is not None
            if count == 0:
                return literal(0, of), "true"
            if low < 0 or high >= count:
                fits = w.let(f"icmp ult i64 {value}, {count}")
                inside = fits if inside is None else w.let(f"and i1 {inside}, {fits}")
        if inside is None:
            stored = w.let(f"load {kind}, ptr {self.address(buffer, found)}, align {of.bytes}")
            return unpack(w, stored, of), None
        read, skip = w.labels("read", "skip")
        before = w.block
        w.do(f"br i1 {inside}, label %{read}, label %{skip}")
        w.start(read)
        stored = w.let(f"load {kind}, ptr {self.address(buffer, found)}, align {of.bytes}")
        w.do(f"br label %{skip}")
        w.start(skip)
        zero = literal(0, of) if kind == register(of) and of.is_float else "0"
        either = w.let(f"phi {kind} [ {stored}, %{read} ], [ {zero}, %{before} ]")
        outside = w.let(f"xor i1 {inside}, true")
        return unpack(w, either, of), outside

    # --- reductions ----------------------------------------------------------------------------

    def _open(self, node: Reduce) -> tuple[list[tuple[ScalarVar, list[str]]], str, str]:
        of = dtype_of(node)
        total = self.reserve(register(of))
        flag = self.reserve("i1")
        start, _ = MEANING[node.combiner]
        first = start(of)
        assert isinstance(first, Lit)
        self.w.do(f"store {register(of)} {literal(first.value, of)}, ptr {total}")
        self.w.do(f"store i1 false, ptr {flag}")
        loops = [self.open(*pair) for pair in zip(node.axes, node.extents, strict=True)]
        return loops, total, flag

    def _close(
        self,
        node: Reduce,
        scopes: list[Scope],
        loops: list[tuple[ScalarVar, list[str]]],
        total: str,
        flag: str,
    ) -> None:
        w = self.w
        of = dtype_of(node)
        kind = register(of)
        value = _value(node.body, scopes)
        outside = self._outside(scopes[-1], node.body)
        if outside is not None:
            before = w.let(f"load i1, ptr {flag}")
            w.do(f"store i1 {w.let(f'or i1 {before}, {outside}')}, ptr {flag}")
        _, join = MEANING[node.combiner]
        so_far = w.let(f"load {kind}, ptr {total}")
        joined = operate(w, join(node.body, node.body), [so_far, value])
        w.do(f"store {kind} {joined}, ptr {total}")
        for each in reversed(loops):
            self.close(each)
        scopes.pop()
        scope = scopes[-1]
        scope.values[node] = w.let(f"load {kind}, ptr {total}")
        scope.order.append(node)
        if outside is not None:
            scope.outside[node] = w.let(f"load i1, ptr {flag}")
            scope.unsafe.add(node)

    # --- checks --------------------------------------------------------------------------------

    def _note(self, outside: str | None) -> None:
        if outside is None:
            return
        if self.fails is None:
            self.fails = self.reserve("i1")
            self.registers.append(f"  store i1 false, ptr {self.fails}")
        before = self.w.let(f"load i1, ptr {self.fails}")
        self.w.do(f"store i1 {self.w.let(f'or i1 {before}, {outside}')}, ptr {self.fails}")

    def _outside(self, scope: Scope, root: Scalar) -> str | None:
        """Whether an index was outside in a load that `root` really needed."""
        if root not in scope.unsafe:
            return None
        w = self.w
        alive: dict[Scalar, str] = {root: "true"}
        facts: dict[Scalar, tuple[Scalar, ...]] = {root: ()}
        found: str | None = None
        for node in reversed(scope.order):
            if node not in scope.unsafe or node not in alive:
                continue
            here = alive[node]
            if node in scope.outside and not self._proved(node, facts[node]):
                bad = scope.outside[node]
                bad = bad if here == "true" else w.let(f"and i1 {here}, {bad}")
                found = bad if found is None else w.let(f"or i1 {found}, {bad}")
            for kid, guard, holds in edges(node):
                if kid not in scope.unsafe:
                    continue
                passes, known_here = here, facts[node]
                if guard is not None:
                    test = scope.values[guard]
                    test = test if holds else w.let(f"xor i1 {test}, true")
                    passes = test if here == "true" else w.let(f"and i1 {here}, {test}")
                    fact = guard if holds else negated(guard)
                    known_here = known_here if fact is None else (*known_here, fact)[-FACTS:]
                if kid in alive:
                    alive[kid] = w.let(f"or i1 {alive[kid]}, {passes}")
                    facts[kid] = tuple([fact for fact in facts[kid] if fact in known_here])
                else:
                    alive[kid], facts[kid] = passes, known_here
        return found

    def _proved(self, node: Scalar, conditions: Sequence[Scalar]) -> bool:
        """Whether the guards around a load show that its indices are inside."""
        if not isinstance(node, Load) or not conditions:
            return False
        facts = [fact for condition in conditions for fact in facts_of(condition)]
        for index, size in zip(node.indices, node.buffer.shape, strict=True):
            low, high = interval(index, self.ranges, self.intervals)
            count = known(size)
            assert count is not None
            if low < 0 and not implied(index, facts):
                return False
            if high >= count and not implied(Lit(count - 1, i64) - index, facts):
                return False
        return True


def operands(node: Scalar) -> tuple[Scalar, ...]:
    """The terms whose values an operation takes."""
    match node:
        case Lit() | ScalarVar():
            return ()
        case Load(_, indices):
            return indices
        case _:
            return tuple([kid for kid in node._children if isinstance(kid, Scalar)])


def edges(node: Scalar) -> list[tuple[Scalar, Scalar | None, bool]]:
    """Each operand with the guard it stands behind, and how that must come out."""
    match node:
        case Select(condition, then, orelse):
            return [(condition, None, True), (then, condition, True), (orelse, condition, False)]
        case And(left, right):
            return [(left, None, True), (right, left, True)]
        case Or(left, right):
            return [(left, None, True), (right, left, False)]
        case Reduce():
            return []  # what is inside was judged there
        case _:
            return [(kid, None, True) for kid in operands(node)]


def negated(condition: Scalar) -> Scalar | None:
    """The contrary of a condition as a fact, None where it tells nothing useful."""
    match condition:
        case Lt(left, right):
            return Le(right, left)
        case Le(left, right):
            return Lt(right, left)
        case Not(value):
            return value
        case Or(left, right):
            one, two = negated(left), negated(right)
            return And(one, two) if one is not None and two is not None else one or two
        case _:
            return None


def _find(node: Scalar, scopes: Sequence[Scope]) -> str | None:
    """The value of a node if it is known here; a check made outside says nothing inside."""
    inner = scopes[-1].values.get(node)
    if inner is not None:
        return inner
    for scope in reversed(scopes[:-1]):
        if node in scope.values and node not in scope.unsafe:
            return scope.values[node]
    return None


def _value(node: Scalar, scopes: Sequence[Scope]) -> str:
    found = _find(node, scopes)
    if found is None:
        raise CompilerBug(f"{node!r} is used before it has a value.")
    return found
