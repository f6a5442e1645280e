"""Values: a scalar term becomes straight LLVM text, with loops for the reductions inside it.

Both sides of a `Select` are computed and one is chosen: no operation can fail, and a load whose
index may be outside its buffer is made only where it is inside.  Whether an index that was outside
mattered is asked afterwards: it did if every guard above the load let it through.  So each node is
emitted once, however much is shared, and the code has no branches but around such loads.

In a vectorized loop a term that depends on its variable becomes a vector of all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from plica.codegen.llvm.access import Access, nothing
from plica.codegen.llvm.lane import FALSE, TRUE, Lanes, Value, constant
from plica.codegen.llvm.scalar import multiply_add, operate
from plica.codegen.llvm.word import literal, register
from plica.codegen.llvm.writer import Writer
from plica.codegen.lower.bound import FACTS, Interval, facts_of, implied, interval
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.core.term import Term
from plica.ir.combiner import MEANING
from plica.ir.dim import known
from plica.ir.dtype import f32, f64, i64
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

FAR: Final = 2**60
"""Numbers less than this may be added and subtracted without a thought for overflow."""


class Scope:
    """What has been emitted since a loop was opened, in order."""

    def __init__(self) -> None:
        self.values: dict[Scalar, Value] = {}
        self.order: list[Scalar] = []
        self.outside: dict[Scalar, Value] = {}  # a load or reduction: whether an index was outside
        self.unsafe: set[Scalar] = set()  # nodes with such a load below them


class Loop:
    """A loop that is open: the labels that close it, and what was in reach before it."""

    def __init__(
        self, var: ScalarVar, count: int, step: int, labels: Sequence[str], mark: int
    ) -> None:
        self.var = var
        self.count = count
        self.step = step
        self.labels = labels
        self.mark = mark


class Values:
    """Emits values into a writer; knows the loops that are open and the buffers there are.

    `fused` allows a product and a sum to be rounded once.
    """

    def __init__(self, w: Writer, fused: bool = False) -> None:
        self.w = w
        self.fused = fused
        self.lanes = Lanes(w)
        self.access = Access(self.lanes)
        self.registers: list[str] = []  # lines that reserve memory in the function's first block
        self.vars: dict[ScalarVar, Value] = {}
        self.lane: ScalarVar | None = None  # the variable of the vectorized loop
        self.ranges: dict[Term, Interval] = {}
        self.intervals: dict[Term, Interval] = {}
        self.fails: str | None = None  # where a failed check is noted
        self.loops = False  # whether some term is a loop

    # --- loops ---------------------------------------------------------------------------------

    def bind(self, var: ScalarVar, value: Value, bounds: Interval) -> None:
        """Give a variable its value, which is within some bounds."""
        if var in self.vars:
            raise CompilerBug(f"The variable {var.name} is bound twice.")
        self.vars[var] = value
        self.ranges[var] = bounds
        self.intervals.clear()

    def unbind(self, var: ScalarVar) -> None:
        """Forget a variable."""
        del self.vars[var], self.ranges[var]
        self.intervals.clear()

    def open(self, var: ScalarVar, count: int, step: int = 1) -> Loop:
        """Begin a loop that runs at least once; what is returned closes it."""
        w = self.w
        mark = self.lanes.mark()
        if count <= step:
            self.bind(var, constant(0), (0, 0))
            return Loop(var, count, step, (), mark)
        body, after, next_, done = w.labels("body", "after", "%next", "done")
        before = w.block
        w.do(f"br label %{body}")
        w.start(body)
        now = w.let(f"phi i64 [ 0, %{before} ], [ {next_}, %{after} ]")
        self.bind(var, Value(now), (0, count - 1))
        return Loop(var, count, step, (body, after, next_, done), mark)

    def close(self, loop: Loop) -> None:
        """End a loop."""
        w = self.w
        if loop.labels:
            body, after, next_, done = loop.labels
            w.do(f"br label %{after}")
            w.start(after)
            w.do(f"{next_} = add nuw nsw i64 {self.vars[loop.var].text}, {loop.step}")
            more = w.let(f"icmp ult i64 {next_}, {loop.count}")
            w.do(f"br i1 {more}, label %{body}, label %{done}")
            w.start(done)
        self.unbind(loop.var)
        self.lanes.release(loop.mark)

    def spread(self, var: ScalarVar, first: Value, count: int) -> None:
        """Begin to do everything in so many lanes, in which the variable counts from `first`."""
        if self.lane is not None:
            raise CompilerBug(f"The vectorized loop {var.name} is inside {self.lane.name}.")
        self.vars[var] = first._replace(step=1 if count > 1 else 0)
        self.lane, self.lanes.count = var, count if count > 1 else 0

    def gather(self) -> None:
        """End what `spread` began."""
        self.lane, self.lanes.count = None, 0

    # --- memory --------------------------------------------------------------------------------

    def reserve(self, kind: str, count: int = 1) -> str:
        """Memory of the function itself."""
        name = self.w.fresh().replace("%", "%own.")
        whole = kind if count == 1 else f"[{count} x {kind}]"
        self.registers.append(f"  {name} = alloca {whole}, align 64")
        return name

    def store(self, buffer: Buffer, indices: Sequence[Scalar], value: Scalar) -> None:
        """`buffer[indices] = value`."""
        for index, size in zip(indices, self.access.places[buffer].shape, strict=True):
            low, high = interval(index, self.ranges, self.intervals)
            if low < 0 or high >= max(1, size):
                raise CompilerBug(f"A store to {buffer.name} may be outside of it.")
        found = self.evaluate([value, *indices])
        self.access.store(buffer, found[1:], found[0], self._sound(indices, found[1:]))

    def _sound(self, indices: Sequence[Scalar], found: Sequence[Value]) -> bool:
        """Whether each index is inside its buffer without the constant it has in the end too."""
        return all(
            0 <= value.plus <= interval(index, self.ranges, self.intervals)[0]
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
                if _find(node, scopes) is not None:
                    continue
                if not isinstance(node, Reduce):
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
            self._note(self._outside(scope, root))
        return [_value(root, scopes) for root in roots]

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
                value = self._operation(node, kids, [_value(kid, scopes) for kid in kids])
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
        return multiply_add(self.w, a, b, c, of, n)

    def _easy(self, node: Scalar, found: Sequence[Value]) -> Value | None:
        """The value of what needs no instruction, or only those of addresses."""
        lanes = self.lanes
        match node:
            case Add() | Sub() | Mul() if dtype_of(node) is i64:
                word = {Add: lanes.add, Sub: lanes.sub, Mul: lanes.mul}[type(node)]
                return word(*found, "nsw " if self._is_near(node, found) else "")
            case And():
                return lanes.both(*found)
            case Or():
                return lanes.either(*found)
            case Not():
                return lanes.negated(*found)
            case Select() if found[0] in (TRUE, FALSE):
                return found[1] if found[0] == TRUE else found[2]
            case Lt(left, right) | Le(left, right) | Eq(left, right) | Ne(left, right):
                return self._decided(node, left, right)
            case FloorDiv() | FloorMod() | Min() | Max() if dtype_of(node) is i64:
                a, b = found[0].number, found[1].number
                if a is None or b is None:
                    return None
                if isinstance(node, Min | Max):
                    return constant(min(a, b) if isinstance(node, Min) else max(a, b))
                if b == 0:
                    return constant(0)
                return constant(a // b if isinstance(node, FloorDiv) else a % b)
            case _:
                return None

    def _is_near(self, node: Scalar, found: Sequence[Value]) -> bool:
        low, high = interval(node, self.ranges, self.intervals)
        return low > -FAR and high < FAR and all(abs(each.plus) < FAR for each in found)

    def _decided(self, node: Scalar, left: Scalar, right: Scalar) -> Value | None:
        """A comparison of integers whose outcome the loops around it tell."""
        if not dtype_of(left).is_integer:
            return None
        a, b = interval(left, self.ranges, self.intervals)
        c, d = interval(right, self.ranges, self.intervals)
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
        low, _ = interval(node.left, self.ranges, self.intervals)
        least, _ = interval(node.right, self.ranges, self.intervals)
        return low >= 0 and least > 0

    def _load(
        self, buffer: Buffer, indices: Sequence[Scalar], found: Sequence[Value]
    ) -> tuple[Value, Value | None]:
        """The element, and whether an index was outside; None where that cannot be."""
        lanes, place = self.lanes, self.access.places[buffer]
        inside = TRUE
        for index, value, count in zip(indices, found, place.shape, strict=True):
            low, high = interval(index, self.ranges, self.intervals)
            if count == 0:
                return nothing(buffer), TRUE
            if low < 0 or high >= count:
                n = 0 if value.is_uniform else lanes.count
                text = lanes.vector(value, i64) if n else lanes.scalar(value)
                fits = f"icmp ult {register(i64, n)} {text}, {literal(count, i64, n)}"
                inside = lanes.both(inside, Value(self.w.let(fits), None if n else 0))
        loaded = self.access.load(buffer, found, inside, self._sound(indices, found))
        return loaded, None if inside == TRUE else lanes.negated(inside)

    # --- reductions ----------------------------------------------------------------------------

    def _open(self, node: Reduce) -> tuple[list[Loop], str, str]:
        n = self._width(node)
        of = dtype_of(node)
        total = self.reserve(register(of, n))
        flag = self.reserve("i1")
        first = _start(node)
        text = self.lanes.vector(first, of) if n else self.lanes.scalar(first)
        self.w.do(f"store {register(of, n)} {text}, ptr {total}")
        self.w.do(f"store i1 false, ptr {flag}")
        self.loops = True
        loops = []
        for var, extent in zip(node.axes, node.extents, strict=True):
            count = known(extent)
            if count is None:
                raise CompilerBug(f"The reduction over {var.name} has no known extent.")
            loops.append(self.open(var, count))
        return loops, total, flag

    def _width(self, node: Reduce) -> int:
        """How many lanes a reduction has: all, if it is another in each."""
        return self.lanes.count if self.lane is not None and self.lane in free_vars(node) else 0

    def _close(
        self, node: Reduce, scopes: list[Scope], loops: list[Loop], total: str, flag: str
    ) -> None:
        w, lanes, n = self.w, self.lanes, self._width(node)
        of = dtype_of(node)
        kind = register(of, n)
        added = self._added(node)
        values = [_value(each, scopes) for each in added]
        texts = [lanes.vector(each, of) if n else lanes.scalar(each) for each in values]
        fails = FALSE
        for each in added:
            fails = lanes.either(fails, self._outside(scopes[-1], each))
        if fails != FALSE:
            before = w.let(f"load i1, ptr {flag}")
            w.do(f"store i1 {w.let(f'or i1 {before}, {lanes.some(fails)}')}, ptr {flag}")
        so_far = w.let(f"load {kind}, ptr {total}")
        if len(texts) == 2:
            joined = multiply_add(w, *texts, so_far, of, n)
        else:
            _, join = MEANING[node.combiner]
            joined = operate(w, join(node.body, node.body), [so_far, *texts], n=n)
        w.do(f"store {kind} {joined}, ptr {total}")
        for loop in reversed(loops):
            self.close(loop)
        scopes.pop()
        scope = scopes[-1]
        scope.values[node] = Value(w.let(f"load {kind}, ptr {total}"), None if n else 0)
        scope.order.append(node)
        if fails != FALSE:
            scope.outside[node] = Value(w.let(f"load i1, ptr {flag}"))
            scope.unsafe.add(node)

    # --- checks --------------------------------------------------------------------------------

    def _note(self, outside: Value) -> None:
        if outside == FALSE:
            return
        if self.fails is None:
            self.fails = self.reserve("i1")
            self.registers.append(f"  store i1 false, ptr {self.fails}")
        before = self.w.let(f"load i1, ptr {self.fails}")
        now = self.w.let(f"or i1 {before}, {self.lanes.some(outside)}")
        self.w.do(f"store i1 {now}, ptr {self.fails}")

    def _outside(self, scope: Scope, root: Scalar) -> Value:
        """Whether an index was outside in a load that `root` really needed."""
        if root not in scope.unsafe:
            return FALSE
        lanes = self.lanes
        alive: dict[Scalar, Value] = {root: TRUE}
        facts: dict[Scalar, tuple[Scalar, ...]] = {root: ()}
        found = FALSE
        for node in reversed(scope.order):
            if node not in scope.unsafe or node not in alive:
                continue
            here = alive[node]
            if node in scope.outside and not self._proved(node, facts[node]):
                found = lanes.either(found, lanes.both(here, scope.outside[node]))
            for kid, guard, holds in self._edges(node):
                if kid not in scope.unsafe:
                    continue
                passes, known_here = here, facts[node]
                if guard is not None:
                    test = scope.values[guard]
                    passes = lanes.both(here, test if holds else lanes.negated(test))
                    fact = guard if holds else negated(guard)
                    known_here = known_here if fact is None else (*known_here, fact)[-FACTS:]
                if kid in alive:
                    alive[kid] = lanes.either(alive[kid], passes)
                    facts[kid] = tuple([fact for fact in facts[kid] if fact in known_here])
                else:
                    alive[kid], facts[kid] = passes, known_here
        return found

    def _proved(self, node: Scalar, conditions: Sequence[Scalar]) -> bool:
        """Whether the guards around a load show that its indices are inside."""
        if not isinstance(node, Load) or not conditions:
            return False
        facts = [fact for condition in conditions for fact in facts_of(condition)]
        shape = self.access.places[node.buffer].shape
        for index, count in zip(node.indices, shape, strict=True):
            low, high = interval(index, self.ranges, self.intervals)
            if low < 0 and not implied(index, facts):
                return False
            if high >= count and not implied(Lit(count - 1, i64) - index, facts):
                return False
        return True

    def _edges(self, node: Scalar) -> list[tuple[Scalar, Scalar | None, bool]]:
        """Each operand with the guard it stands behind, and how that must come out."""
        match node:
            case Select(condition, then, orelse):
                return [
                    (condition, None, True),
                    (then, condition, True),
                    (orelse, condition, False),
                ]
            case And(left, right):
                return [(left, None, True), (right, left, True)]
            case Or(left, right):
                return [(left, None, True), (right, left, False)]
            case Reduce():
                return []  # what is inside was judged there
            case _:
                return [(kid, None, True) for kid in self._operands(node)]


def operands(node: Scalar) -> tuple[Scalar, ...]:
    """The terms whose values an operation takes."""
    match node:
        case Lit() | ScalarVar():
            return ()
        case Load(_, indices):
            return indices
        case _:
            return tuple([kid for kid in node._children if isinstance(kid, Scalar)])


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


def _find(node: Scalar, scopes: Sequence[Scope]) -> Value | None:
    """The value of a node if it is known here; a check made outside says nothing inside."""
    inner = scopes[-1].values.get(node)
    if inner is not None:
        return inner
    for scope in reversed(scopes[:-1]):
        if node in scope.values and node not in scope.unsafe:
            return scope.values[node]
    return None


def _value(node: Scalar, scopes: Sequence[Scope]) -> Value:
    found = _find(node, scopes)
    if found is None:
        raise CompilerBug(f"{node!r} is used before it has a value.")
    return found
