"""Expressions of C-like targets: the text of a scalar term, after the lines it needs before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from plica.analysis.constant_bound import KnownBounds
from plica.codegen.emit import scalar
from plica.codegen.emit.clike_operator import TextPlace
from plica.codegen.emit.contraction import summed_factors
from plica.codegen.emit.dialect import Dialect, Way
from plica.codegen.emit.identifier import Identifiers
from plica.codegen.emit.lines import Lines
from plica.core import CompilerBug, Term, post_order
from plica.ir.loop import MEANING, scalar as sc
from plica.ir.loop.vector import has_vectors
from plica.ir.type import DType, bool_, evaluate, i64, known, normal_dim

LONGEST: Final = 96  # an expression that is longer gets a name


class Expressions:
    """Emits expressions; knows the names of variables, buffers and computed values."""

    def __init__(self, dialect: Dialect[TextPlace], lines: Lines, names: Identifiers) -> None:
        self.dialect, self.lines, self.names = dialect, lines, names
        self.vars: dict[sc.ScalarVar, str] = {}
        self.buffers: dict[sc.Buffer, str] = {}
        self.helpers: set[str] = set()
        self.known = KnownBounds()
        self.contracted: set[sc.Scalar] = set()
        """Products that may be rounded together with the running sums they are added to."""
        self._uses: dict[Term, int] = {}
        self._reads: dict[Term, bool] = {}

    def of(self, root: sc.Scalar, given: Mapping[Term, str] | None = None) -> str:
        """The expression of a term; `given` are existing values."""
        if has_vectors(root):
            raise CompilerBug("Lowering left a vector in a kernel whose lanes are loops.")
        around = self._uses, self._reads
        self._uses, self._reads = {}, {}
        _count(root, self._uses, self._reads)
        before = given or {}
        order = scalar.order((root,), self._operands, self._row, self.literal, before.get)
        found = scalar.fold(order, self._within).results[0]
        self._uses, self._reads = around
        return found

    def place(self, buffer: sc.Buffer, indices: Sequence[sc.Scalar]) -> str:
        """The element of a buffer, as it can be read or written."""
        at = self.of(linear(buffer, indices))
        return self.dialect.element.format(buffer=self.buffers[buffer], at=at)

    def read(self, buffer: sc.Buffer, at: str) -> str:
        """The value of a buffer's element at an address."""
        element = self.dialect.element.format(buffer=self.buffers[buffer], at=at)
        return scalar.unpack_element(element, buffer.dtype, self)

    def store(self, buffer: sc.Buffer, indices: Sequence[sc.Scalar], value: str) -> None:
        """Write a value into an element of a buffer."""
        self.lines.do(
            f"{self.place(buffer, indices)} = {scalar.pack_element(value, buffer.dtype, self)};"
        )

    def unproved(
        self, buffer: sc.Buffer, indices: Sequence[sc.Scalar]
    ) -> list[tuple[sc.Scalar, int]]:
        """The indices of an access that are not proved in bounds, with their extents.

        None if the target assumes all indices in bounds.
        """
        found: list[tuple[sc.Scalar, int]] = []
        for at, size in zip(indices, buffer.shape, strict=True) if self.dialect.failure else ():
            count = evaluate(size, {})
            if count is None:
                raise CompilerBug(f"The buffer {buffer.name} has a symbolic dim.")
            if not self.known.is_inside(at, count):
                found.append((at, count))
        return found

    def inside(self, places: Sequence[str], counts: Sequence[int]) -> str:
        """The condition that indices are inside."""
        pairs = zip(places, counts, strict=True)
        return " && ".join([self.dialect.inside.format(at=at, count=n) for at, n in pairs])

    def open(self, var: sc.ScalarVar, extent: sc.Scalar) -> None:
        """Begin a loop; the lines' `close` ends it."""
        count = self.of(extent)
        self.known.bound(var, (0, max(0, self.known.interval(extent)[1] - 1)))
        name = self.vars[var] = self.names.of(var.name, var)
        kind = self.dialect.register(sc.dtype_of(var))
        self.lines.open(self.dialect.loop.format(type=kind, name=name, extent=count))

    # --- what operators ask --------------------------------------------------------------------

    def help(self, name: str) -> str:
        """The name of a helper, which is then written out."""
        self.helpers.add(name)
        return name

    def call(self, helper: str, dtypes: Sequence[DType], args: Sequence[str]) -> str:
        """The call of a helper for some dtypes, which is then written out."""
        types = [self.dialect.register(dtype) for dtype in dtypes]
        needed, called = self.dialect.helper(helper, dtypes, types)
        self.helpers.add(needed)
        return f"{called}({', '.join(args)})"

    def converted(self, way: Way, value: str, of: DType) -> str:
        """Converts a value of a dtype without registers, by a helper.

        A value stored as loaded is moved unchanged, and a value rounded for its store is rounded
        once.
        """
        if way == "pack":
            if (code := _given(value, f"p_unpack_{of.name}")) is not None:
                return code
            value = _given(value, f"p_round_{of.name}") or value
        return self.call(f"p_{way}_{of.name}", (), (value,))

    def divides_naturals(self, node: sc.FloorDiv | sc.FloorMod) -> bool:
        """Whether neither side of a quotient is negative, nor the right one 0."""
        return self.known.divides_naturals(node)

    def is_read(self, node: sc.Scalar) -> bool:
        """Whether a term depends on memory."""
        return self._reads[node]

    def is_contracted(self, node: sc.Scalar) -> bool:
        """Whether a product may be rounded together with the sum it is added to."""
        return node in self.contracted

    # --- the order in which parts are written --------------------------------------------------

    def literal(self, node: sc.Lit) -> str:
        """A literal in the target's syntax."""
        return self.dialect.literal(node.value, node.dtype)

    def _row(self, node: sc.Scalar) -> scalar.Row[str] | tuple[str, object]:
        if isinstance(node, sc.ScalarVar):
            return self._variable
        if isinstance(node, sc.Load):
            return self._load
        if isinstance(node, sc.Reduce):
            return scalar.nest(self._reduced)
        return scalar.nest(self._guarded) if self._sides(node) is not None else self._operator

    def _operands(self, node: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """The operands evaluated before a term, in its scope."""
        if isinstance(node, sc.Load):
            where = linear(node.buffer, node.indices)
            _count(where, self._uses, self._reads)
            checked = [term for term, _ in self.unproved(node.buffer, node.indices)]
            for term in checked:
                self._uses[term] = self._uses.get(term, 0) + 1
            return (where, *checked)
        return scalar.operands(node) if self._sides(node) is None else (node._children[0],)  # type: ignore[return-value]  # a scalar: the guard

    def _sides(self, node: sc.Scalar) -> tuple[sc.Scalar, sc.Scalar] | None:
        """The guarded value and its alternative, or None if there is no guard."""
        reads = self._reads
        match node:
            case sc.Select(_, then, orelse) if reads[then] or reads[orelse]:
                return then, orelse
            case sc.And(_, right) if reads[right]:
                return right, sc.Lit(False, bool_)
            case sc.Or(_, right) if reads[right]:
                return sc.Lit(True, bool_), right
            case _:
                return None

    def _within(self, roots: Sequence[sc.Scalar], frame: scalar.Frame[str]) -> scalar.Order[str]:
        """The evaluation order of a branch, given the values known around it."""
        known = scalar.visible_values(frame)
        return scalar.order(roots, self._operands, self._row, self.literal, known)

    # --- rows ----------------------------------------------------------------------------------

    def _variable(self, step: scalar.OrderStep, frame: scalar.Frame[str]) -> str:
        name = self.vars.get(step.node)
        if name is None:
            raise CompilerBug(f"{step.node!r} is not bound in the kernel.")
        return name

    def _load(self, step: scalar.OrderStep, frame: scalar.Frame[str]) -> str:
        node, (at, *checked) = step.node, frame.operands(step)
        value = self.read(node.buffer, at)
        if not checked:
            return self.named(node, value)
        counts = [count for _, count in self.unproved(node.buffer, node.indices)]
        dialect, lines, name = self.dialect, self.lines, self.names.fresh("s")
        lines.do(dialect.variable.format(type=dialect.register(node.buffer.dtype), name=name))
        lines.open(f"if ({self.inside(checked, counts)})")
        lines.do(f"{name} = {value};")
        lines.turn("else")
        lines.do(f"{name} = {dialect.literal(0, node.buffer.dtype)};")
        lines.do(dialect.failure)
        lines.close()
        return name

    def _operator(self, step: scalar.OrderStep, frame: scalar.Frame[str]) -> str:
        return self.named(step.node, scalar.operation(step.node, frame.operands(step), self))

    def named(self, node: sc.Scalar, text: str) -> str:
        """A text, or a name for it where it is long or used again."""
        if self._uses.get(node, 0) <= 1 and len(text) <= LONGEST:
            return text
        name = self.names.fresh("t")
        kind = self.dialect.register(sc.dtype_of(node))
        self.lines.do(self.dialect.value.format(type=kind, name=name, text=text))
        return name

    def _guarded(self, step: scalar.OrderStep, frame: scalar.Frame[str]) -> scalar.Walk[str]:
        """One of two values, of which only the one that is chosen is computed."""
        sides, (test,) = self._sides(step.node), frame.operands(step)
        assert sides is not None
        name = self.names.fresh("s")
        kind = self.dialect.register(sc.dtype_of(step.node))
        self.lines.do(self.dialect.variable.format(type=kind, name=name))
        for head, side in zip((f"if ({test})", "else"), sides, strict=True):
            if head == "else":
                self.lines.turn(head)
            else:
                self.lines.open(head)
            inner = yield (side,)
            self.lines.do(f"{name} = {inner.results[0]};")
        self.lines.close()
        return name

    def _reduced(self, step: scalar.OrderStep, frame: scalar.Frame[str]) -> scalar.Walk[str]:
        """A reduction: loops around an accumulation."""
        node, dialect, lines = step.node, self.dialect, self.lines
        start, join = MEANING[node.combiner]
        first = start(sc.dtype_of(node))
        assert isinstance(first, sc.Lit)
        name = self.names.fresh("r")
        lines.do(dialect.variable.format(type=dialect.register(sc.dtype_of(node)), name=name))
        lines.do(f"{name} = {self.literal(first)};")
        for var, extent in zip(node.axes, node.extents, strict=True):
            self.open(var, extent)
        if summed_factors(node) is not None:
            self.contracted.add(node.body)
        inner = yield (node.body,)
        joined = join(node.body, node.body)
        _count(joined, self._uses, self._reads)
        lines.do(f"{name} = {scalar.operation(joined, [name, inner.results[0]], self)};")
        for _ in node.axes:
            lines.close()
        return name


def _given(text: str, function: str) -> str | None:
    """The argument of a call of a function, or None for other texts.

    >>> _given("f(x[g(2)])", "f"), _given("f(x) + f(y)", "f")
    ('x[g(2)]', None)
    """
    if not text.startswith(f"{function}(") or not text.endswith(")"):
        return None
    inside, depth = text[len(function) + 1 : -1], 0
    for letter in inside:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return None
    return inside


def _count(root: sc.Scalar, uses: dict[Term, int], reads: dict[Term, bool]) -> None:
    """Add how often a term uses others, and which of them depend on memory."""
    for node in post_order(root):
        if isinstance(node, sc.Scalar) and node not in reads:
            below = [kid for kid in node._children if isinstance(kid, sc.Scalar)]
            reads[node] = isinstance(node, sc.Load) or any(reads[kid] for kid in below)
            for kid in below:
                uses[kid] = uses.get(kid, 0) + 1


def linear(buffer: sc.Buffer, indices: Sequence[sc.Scalar]) -> sc.Scalar:
    """Where an element is, counted from the first."""
    if len(indices) == 1 and not buffer.strides:
        return indices[0]
    strides = list(buffer.strides)
    if not strides:
        step: sc.Scalar = sc.index(1)
        for size in reversed(buffer.shape):
            strides.insert(0, step)
            step = step * size
    found: sc.Scalar | None = None
    for at, stride in zip(indices, strides, strict=True):
        of, by = sc.dtype_of(at), known(normal_dim(stride))
        if by is None:  # a dim, which the kernel is told
            term: sc.Scalar = (at if of is i64 else sc.Cast(at, i64)) * stride
        else:
            term = at if by == 1 else at * sc.Lit(by, of)
        found = term if found is None else found + term
    return sc.index(0) if found is None else found


def mentions(terms: Iterable[sc.Scalar], variable: sc.ScalarVar) -> bool:
    """Whether a variable is in one of some terms."""
    return any(variable in post_order(term) for term in terms)
