"""The scalar fold: emits scalar expression DAGs, each distinct subterm once, operands first.

`order` sorts the subterms of some roots topologically and numbers them. `fold` walks this order and
calls a row for each subterm, looked up by node class; how a row represents a value (C text, an LLVM
register) is the caller's choice.

    row     emits a subterm from the values of its operands, and returns its value
    nest    a row with inner scopes, as a generator: it yields the terms of a scope, and is sent the
            `Frame` in which they were emitted

A subterm with its own scope (a reduction, a guarded load) is one step of the outer order. Its inner
terms are ordered when it is reached, and reuse the values visible by then. An order does not depend
on where it is emitted, so the copies of an unrolled loop share one.

>>> from plica.ir.loop.tensor import axis
>>> i = axis("i")
>>> made = order((i * 4 + 1, i * 4), operands, lambda node: type(node).__name__, str)
>>> [(step.row, step.kids) for step in made.steps], made.roots
([('ScalarVar', ()), ('Mul', (0, 1)), ('Add', (2, 3))], (4, 2))

>>> rows = {ScalarVar: lambda step, frame: "i",
...         Add: lambda step, frame: "({} + {})".format(*frame.operands(step))}
>>> made = order((i + 1,), operands, lambda node: rows[type(node)], lambda lit: str(lit.value))
>>> fold(made).results
['(i + 1)']

`operation` emits one operator in a dialect:

    specials         the dialect's own code for an operator name, unless it returns None
    words            otherwise, the template in the operator's row for the kind of its operands
    round_to_dtype   finally, rounds float results of a dtype that has no registers (f16 in an f32)

`unpack_element` converts an element of memory to a value, `pack_element` a value to an element.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence, Set
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from attrs import frozen

from plica.codegen.emit.dialect import OperatorPlace
from plica.core import CompilerBug
from plica.ir.loop.scalar import (
    Add,
    Cast,
    Intrinsic,
    Lit,
    Load,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    row_of,
)
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.loop.scalar_table import DECLARED
from plica.ir.type import DType
from plica.runtime.error import Diagnostic, Place, UnsupportedError

__all__ = [
    "Add", "Frame", "Nest", "Order", "OrderStep", "Row", "V", "Walk", "Within", "fold", "nest",
    "operands", "operation", "order", "pack_element", "round_to_dtype", "unpack_element",
    "visible_values",
]  # fmt: skip


def operation(node: Scalar, operands: Sequence[str], place: OperatorPlace) -> str:
    """Emits the operator at the root of a term, given the values of its operands."""
    dialect = place.dialect
    intrinsic = isinstance(node, Intrinsic)
    of = dtype_of(_dtype_operand(node))
    special = dialect.specials.get(node.name if intrinsic else type(node).__name__)  # type: ignore[attr-defined]  # as was asked
    if special is not None and (value := special(node, of, operands, place)) is not None:
        return value
    if (row := row_of(node)) is None:
        raise CompilerBug(f"{node!r} is no operation on scalars.")
    if isinstance(node, Intrinsic) and (into := dtype_of(node)).is_narrow and into is not of:
        return _reinterpret_bits(node.args[0], into, operands[0], place)
    if (word := row.words(dialect.name).get(of.kind)) is None:
        raise _missing_word(row, of, dialect.name)
    text = dialect.written(word, row, of, operands[: row.arity], place)
    return (
        round_to_dtype(text, of, place) if row.rounds and of.is_float and not row.is_bool else text
    )


def _missing_word(row: ScalarRow, of: DType, dialect: str) -> Exception:
    """Why a row has no word for a dialect: a bug, unless a user declared the row."""
    message = f"{row.name} of {of} has no text in the dialect {dialect}."
    if row.name not in DECLARED:
        return CompilerBug(message)
    hint = "Give its row a word for this target, or compile for one that it has a word for."
    return UnsupportedError(
        Diagnostic("unsupported", message, Place(node=row.name), suggestion=hint)
    )


def _reinterpret_bits(code: Scalar, into: DType, value: str, place: OperatorPlace) -> str:
    """Decodes the low bits of an integer as a value of a narrow dtype (a bitcast)."""
    of, wanted = dtype_of(code), DType(f"u{into.bits}")
    cast = place.dialect.specials["Cast"]
    bits = value if of is wanted else cast(Cast(code, wanted), of, (value,), place)
    assert bits is not None
    return place.converted("unpack", bits, into)


def _dtype_operand(node: Scalar) -> Scalar:
    """The term whose dtype selects the word for an operator: its first operand, or a `Select`."""
    if isinstance(node, Intrinsic):
        return node.args[0]
    return node if isinstance(node, Select) else node._children[0]  # type: ignore[return-value]  # a scalar


def round_to_dtype(value: str, of: DType, place: OperatorPlace) -> str:
    """Rounds the result of an operation in the wider register type to its dtype."""
    return value if of.name in place.dialect.registers else place.converted("round", value, of)


def pack_element(value: str, of: DType, place: OperatorPlace) -> str:
    """Converts a value to its form in memory."""
    dialect = place.dialect
    if of.name not in dialect.registers:
        return place.converted("pack", value, of)
    return value if is_plain(of, place) else dialect.stored(value, of, place)


def unpack_element(element: str, of: DType, place: OperatorPlace) -> str:
    """Converts an element in memory to its value."""
    dialect = place.dialect
    if of.name not in dialect.registers:
        return place.converted("unpack", element, of)
    return element if is_plain(of, place) else dialect.loaded(element, of, place)


def is_plain(of: DType, place: OperatorPlace) -> bool:
    """Whether the dialect has one type for elements in memory and for values."""
    return place.dialect.memory(of) == place.dialect.register(of)


V = TypeVar("V")  # the type of emitted values: a text, a register …


class OrderStep(NamedTuple):
    """One subterm: the row that emits it, its number, and the numbers of its operands."""

    row: Any  # as `fold` calls it
    number: int
    node: Any  # a scalar, of the class that its row is for
    kids: tuple[int, ...]
    dtypes: tuple[DType, ...]


@frozen(eq=False)
class Order(Generic[V]):
    """The subterms of `roots`, operands first; `start` holds literals and values known before."""

    steps: tuple[OrderStep, ...]
    numbers: Mapping[Scalar, int]
    start: tuple[V | None, ...]
    roots: tuple[int, ...]


def operands(node: Scalar) -> tuple[Scalar, ...]:
    """The operands of a node in its own scope; the body of a reduction is in an inner one."""
    match node:
        case Lit() | ScalarVar() | Reduce():
            return ()
        case Load(_, indices):
            return indices
        case _:
            return tuple([kid for kid in node._children if isinstance(kid, Scalar)])


def _nothing(node: Scalar) -> None:
    return None


def order(
    roots: Sequence[Scalar],
    operands_of: Callable[[Scalar], tuple[Scalar, ...]],
    row_of: Callable[[Scalar], Any],  # Any: as in `OrderStep`
    literal: Callable[[Lit], V],
    known: Callable[[Scalar], V | None] = _nothing,
) -> Order[V]:
    """Orders the subterms of `roots`; those that `known` has values for need no step."""
    numbers: dict[Scalar, int] = {}
    steps: list[OrderStep] = []
    start: list[V | None] = []
    # Any: a term to visit, or (term, operands) once its operands have been visited
    stack: list[Any] = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            node, kids = node
            if node in numbers:
                continue
        else:
            if node in numbers:
                continue
            if isinstance(node, Lit):
                numbers[node] = len(numbers)
                start.append(literal(node))
                continue
            if (value := known(node)) is not None:
                numbers[node] = len(numbers)
                start.append(value)
                continue
            if kids := operands_of(node):
                stack.append((node, kids))
                stack.extend(kids[::-1])
                continue
        number = numbers[node] = len(numbers)
        start.append(None)
        operand_numbers = tuple([numbers[kid] for kid in kids])
        dtypes = tuple([dtype_of(kid) for kid in kids])
        steps.append(OrderStep(row_of(node), number, node, operand_numbers, dtypes))
    return Order(tuple(steps), numbers, tuple(start), tuple([numbers[root] for root in roots]))


class Frame(Generic[V]):
    """A scope being emitted: the values by number, and the enclosing scope `outer`."""

    __slots__ = ("checked", "order", "outer", "rest", "values")

    def __init__(self, order: Order[V], outer: Frame[V] | None) -> None:
        self.order, self.outer = order, outer
        self.values: list[Any] = list(order.start)  # Any: a V, or None until it is emitted
        self.rest = iter(order.steps)
        self.checked: dict[Scalar, V] = {}
        """For each subterm with a run-time check (a load): whether the check passed."""

    @property
    def results(self) -> list[V]:
        """The values of the roots."""
        values = self.values
        return [values[root] for root in self.order.roots]

    def operands(self, step: OrderStep) -> list[V]:
        """The values of the operands of a step."""
        values = self.values
        return [values[kid] for kid in step[3]]

    def value(self, node: Scalar) -> V | None:
        """The value of a subterm, or None if it is not emitted in this scope yet."""
        number = self.order.numbers.get(node)
        return None if number is None else self.values[number]


def visible_values(
    frame: Frame[V], hidden: Callable[[Frame[V]], Set[Scalar]] = lambda frame: frozenset()
) -> Callable[[Scalar], V | None]:
    """Looks a subterm up in a frame and its enclosing ones, except those `hidden` in a frame."""
    frames: list[tuple[Frame[V], Set[Scalar]]] = []
    at: Frame[V] | None = frame
    while at is not None:
        frames.append((at, hidden(at)))
        at = at.outer

    def known(node: Scalar) -> V | None:
        for scope, excluded in frames:
            value = scope.value(node)
            if value is not None and node not in excluded:
                return value
        return None

    return known


Row: TypeAlias = Callable[[OrderStep, Frame[V]], V]
Walk: TypeAlias = Generator[Sequence[Scalar], Frame[V], V]
Nest: TypeAlias = Callable[[OrderStep, Frame[V]], "Walk[V]"]
Within: TypeAlias = Callable[[Sequence[Scalar], Frame[V]], Order[V]]
"""Orders the terms of a scope inside a frame, given the values visible there."""

_NESTED: Final = "_NESTED"


def nest(of: Nest[V]) -> tuple[str, Nest[V]]:
    """Marks a row as one with inner scopes."""
    return _NESTED, of


def fold(of: Order[V], within: Within[V] | None = None) -> Frame[V]:
    """Emits all steps of an order, and returns the frame that holds their values.

    `within` orders the inner scopes that nests request.
    """
    frame = Frame(of, None)
    suspended: list[tuple[int, Walk[V]]] = []  # nests that wait for an inner scope
    while True:
        values = frame.values
        for step in frame.rest:
            row, number = step[0], step[1]
            if row.__class__ is not tuple:
                values[number] = row(step, frame)
                continue
            walk = row[1](step, frame)
            if (inner := _advance(walk, None, number, frame, within)) is not None:
                suspended.append((number, walk))
                frame = inner
                break
        else:
            if not suspended:
                return frame
            number, walk = suspended.pop()
            outer = frame.outer
            assert outer is not None
            if (inner := _advance(walk, frame, number, outer, within)) is not None:
                suspended.append((number, walk))
            frame = inner or outer


def _advance(
    walk: Walk[V], answer: Frame[V] | None, number: int, frame: Frame[V], within: Within[V] | None
) -> Frame[V] | None:
    """Resumes a nest: the frame of the next scope that it requests, or None once it has a value."""
    try:
        roots = walk.send(answer)  # type: ignore[arg-type]  # None begins a walk
    except StopIteration as done:
        frame.values[number] = done.value
        return None
    assert within is not None, "Nests need `within`, which orders their scopes."
    return Frame(within(roots, frame), frame)
