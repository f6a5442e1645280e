"""Values in CUDA C++: an expression for a scalar term, after the lines it needs before it.

What a term uses more than once gets a name, so the text is as long as the term, whatever is shared.
A side of `Select`, `And` or `Or` that reads memory is written inside an `if`: a load behind a false
guard never happens.  Everything else can be computed anywhere, since nothing traps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from plica.codegen.cuda.lines import Lines
from plica.codegen.cuda.operation import operation
from plica.codegen.cuda.word import Names, in_memory, in_register, literal
from plica.core.diagnostic import CompilerBug
from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir.dim import polynomial
from plica.ir.dtype import bool_, i64
from plica.ir.scalar import (
    And,
    Buffer,
    Cast,
    Lit,
    Load,
    Or,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.vector import has_vectors

LONGEST: Final = 96
"""An expression that is longer gets a name."""

# Any: a step asks for the value of another term, and is sent the text of it.
Walk: TypeAlias = Generator[Scalar, str, str]


class Values:
    """Writes values; knows the names of variables, buffers and what has been computed."""

    def __init__(self, lines: Lines, names: Names) -> None:
        self.lines, self.names = lines, names
        self.vars: dict[ScalarVar, str] = {}
        self.buffers: dict[Buffer, str] = {}
        self.helpers: set[str] = set()
        self.natural: set[Term] = set()
        """Variables that are never negative."""
        self._known: list[dict[Term, str]] = [{}]

    def of(self, root: Scalar, given: Mapping[Term, str] | None = None) -> str:
        """The expression of a term; `given` are values that are there already."""
        if has_vectors(root):
            raise CompilerBug("Lowering left a vector in a kernel for threads.")
        uses: dict[Term, int] = {}
        reads: dict[Term, bool] = {}
        _count(root, uses, reads)
        self._known = [dict(given or {})]
        answer = self._seen(root)
        stack: list[Walk] = [] if answer is not None else [self._value(root, uses, reads)]
        while stack:
            try:
                asked = stack[-1].send(answer)  # type: ignore[arg-type]  # None begins a walk
            except StopIteration as done:
                stack.pop()
                answer = done.value
                continue
            answer = self._seen(asked)
            if answer is None:
                stack.append(self._value(asked, uses, reads))
        assert answer is not None
        return answer

    def place(self, buffer: Buffer, indices: Sequence[Scalar]) -> str:
        """The element of a buffer, as it can be read or written."""
        return f"{self.buffers[buffer]}[{self.of(linear(buffer, indices))}]"

    def packed(self, value: str, of: Any) -> str:  # Any: a dtype
        """A value as it is stored."""
        if of.is_coded:
            return f"{self.help(f'p_pack_{of.name}')}({value})"
        return value

    def help(self, name: str) -> str:
        """The name of a function of the prelude, which is then written out."""
        self.helpers.add(name)
        return name

    def _seen(self, node: Scalar) -> str | None:
        if isinstance(node, Lit):
            return literal(node.value, node.dtype)
        if isinstance(node, ScalarVar) and node in self.vars:
            return self.vars[node]
        return next((each[node] for each in reversed(self._known) if node in each), None)

    def _value(self, node: Scalar, uses: dict[Term, int], reads: dict[Term, bool]) -> Walk:
        match node:
            case Lit() | ScalarVar():
                found = self._seen(node)
                if found is None:
                    raise CompilerBug(f"{node!r} is not bound in the kernel.")
                return found
            case Load(buffer, indices):
                where = linear(buffer, indices)
                _count(where, uses, reads)
                at = yield where
                text = self.unpacked(f"{self.buffers[buffer]}[{at}]", buffer)
            case Select(condition, then, orelse) if reads[then] or reads[orelse]:
                return (yield from self._chosen(node, condition, (then, orelse)))
            case And(left, right) if reads[right]:
                return (yield from self._chosen(node, left, (right, Lit(False, bool_))))
            case Or(left, right) if reads[right]:
                return (yield from self._chosen(node, left, (Lit(True, bool_), right)))
            case Reduce():
                raise CompilerBug("Lowering left a reduction in an expression.")
            case _:
                kids = []
                for each in node._children:
                    if isinstance(each, Scalar):
                        kids.append((yield each))
                text = operation(node, kids, self.help, self._is_natural, reads[node])
        if uses.get(node, 0) > 1 or len(text) > LONGEST:
            name = self.names.fresh("t")
            self.lines.do(f"const {in_register(dtype_of(node))} {name} = {text};")
            text = name
        self._known[-1][node] = text
        return text

    def _chosen(self, node: Scalar, condition: Scalar, sides: tuple[Scalar, Scalar]) -> Walk:
        """One of two values, of which only the one that is chosen is computed."""
        test = yield condition
        name = self.names.fresh("s")
        self.lines.do(f"{in_register(dtype_of(node))} {name};")
        for head, side in zip((f"if ({test})", "else"), sides, strict=True):
            if head == "else":
                self.lines.turn(head)
            else:
                self.lines.open(head)
            self._known.append({})
            value = yield side
            self._known.pop()
            self.lines.do(f"{name} = {value};")
        self.lines.close()
        self._known[-1][node] = name
        return name

    def unpacked(self, element: str, buffer: Buffer) -> str:
        """The value of an element of a buffer."""
        of = buffer.dtype
        if of.is_coded:
            return f"{self.help(f'p_unpack_{of.name}')}({element})"
        return f"({element} != 0)" if of is bool_ else element

    def _is_natural(self, node: Scalar) -> bool:
        """Whether an index term is shown not to be negative, by its form alone."""
        return all(
            isinstance(each, Load) is False
            and (not isinstance(each, Lit) or each.value >= 0)
            and (not isinstance(each, ScalarVar) or each in self.natural)
            and (type(each).__name__ in _GROWING or (isinstance(each, Cast) and each.dtype is i64))
            for each in post_order(node)
            if isinstance(each, Scalar)
        )


def _count(root: Scalar, uses: dict[Term, int], reads: dict[Term, bool]) -> None:
    """Add how often a term uses others, and which of them depend on memory."""
    for node in post_order(root):
        if isinstance(node, Scalar) and node not in reads:
            below = [kid for kid in node._children if isinstance(kid, Scalar)]
            reads[node] = isinstance(node, Load) or any(reads[kid] for kid in below)
            for kid in below:
                uses[kid] = uses.get(kid, 0) + 1


_GROWING: Final = frozenset(
    {"Lit", "ScalarVar", "Add", "Mul", "FloorDiv", "FloorMod", "Min", "Max"}
)
"""Terms that are not negative where what they are made of is not."""


def linear(buffer: Buffer, indices: Sequence[Scalar]) -> Scalar:
    """Where an element is, counted from the first."""
    if len(indices) == 1 and not buffer.strides:
        return indices[0]
    strides = list(buffer.strides)
    if not strides:
        step: Scalar = index(1)
        for size in reversed(buffer.shape):
            strides.insert(0, step)
            step = step * size
    found: Scalar | None = None
    for at, stride in zip(indices, strides, strict=True):
        of = dtype_of(at)
        by = _constant(stride)
        term = at if by == 1 else at * Lit(by, of)
        found = term if found is None else found + term
    return index(0) if found is None else found


def _constant(of: Scalar) -> int:
    terms = polynomial(of)
    if not terms:
        return 0
    ((atoms, factor),) = terms.values()
    if atoms:
        raise CompilerBug("A buffer of a kernel for threads has symbolic strides.")
    return factor


def is_stored_plainly(of: Buffer) -> bool:
    """Whether an element in memory is the value itself."""
    return in_memory(of.dtype) == in_register(of.dtype)


def mentions(terms: Iterable[Scalar], variable: ScalarVar) -> bool:
    """Whether a variable is in one of some terms."""
    return any(variable in post_order(each) for each in terms)


__all__ = ["LONGEST", "Values", "i64", "is_stored_plainly", "linear", "mentions"]
