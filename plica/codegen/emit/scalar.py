"""The scalar fold: the parts of terms are written in order, each once and by its row.

    row     writes a part from the values of its operands, and gives its value
    nest    does so with scopes inside: it yields terms, and is sent the frame they were written in

Operands come before their users, and every part is numbered. Terms independent of the place are
ordered once, so the copies of an unrolled loop share it. A part with its own scope (a reduction, a
guarded load) is one step: its inside is ordered when it is reached, excluding values known by then.

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

Operators: one term over the values of its operands, whatever language a dialect writes.

    specials    what the dialect has for an operator by its name, if that fits the operands
    words       else what the operator's row has for their kind, as the dialect writes it
    rounded     at last, where a dtype has no register of its own

Elements of memory are values after `unpacked`, and values are elements after `packed`.
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
    "Add", "Frame", "Nest", "Order", "OrderStep", "Row", "V", "Walk", "Within", "fold",
    "known_around", "nest", "operands", "order",
]  # fmt: skip


def operation(node: Scalar, operands: Sequence[str], place: OperatorPlace) -> str:
    """The value of a term from those of its operands."""
    dialect = place.dialect
    intrinsic = isinstance(node, Intrinsic)
    of = dtype_of(_deciding(node))
    special = dialect.specials.get(node.name if intrinsic else type(node).__name__)  # type: ignore[attr-defined]  # as was asked
    if special is not None and (found := special(node, of, operands, place)) is not None:
        return found
    if (row := row_of(node)) is None:
        raise CompilerBug(f"{node!r} is no operation on scalars.")
    if isinstance(node, Intrinsic) and (into := dtype_of(node)).is_narrow and into is not of:
        return _of_bits(node.args[0], into, operands[0], place)
    if (word := row.words(dialect.name).get(of.kind)) is None:
        raise _without_text(row, of, dialect.name)
    text = dialect.written(word, row, of, operands[: row.arity], place)
    return rounded(text, of, place) if row.rounds and of.is_float and not row.is_bool else text


def _without_text(row: ScalarRow, of: DType, dialect: str) -> Exception:
    message = f"{row.name} of {of} has no text in the dialect {dialect}."
    if row.name not in DECLARED:
        return CompilerBug(message)
    hint = "Give its row a word for this target, or compile for one that it has a word for."
    return UnsupportedError(
        Diagnostic("unsupported", message, Place(node=row.name), suggestion=hint)
    )


def _of_bits(code: Scalar, into: DType, value: str, place: OperatorPlace) -> str:
    """The value that the low bits of an integer are the code of."""
    of, wanted = dtype_of(code), DType(f"u{into.bits}")
    cast = place.dialect.specials["Cast"]
    held = value if of is wanted else cast(Cast(code, wanted), of, (value,), place)
    assert held is not None
    return place.converted("unpack", held, into)


def _deciding(node: Scalar) -> Scalar:
    """The term whose dtype says which code an operator has."""
    if isinstance(node, Intrinsic):
        return node.args[0]
    return node if isinstance(node, Select) else node._children[0]  # type: ignore[return-value]  # a scalar


def rounded(value: str, of: DType, place: OperatorPlace) -> str:
    """A value rounded to its dtype, after an operation in the register type."""
    return value if of.name in place.dialect.registers else place.converted("round", value, of)


def packed(value: str, of: DType, place: OperatorPlace) -> str:
    """A value in its storage form."""
    dialect = place.dialect
    if of.name not in dialect.registers:
        return place.converted("pack", value, of)
    return value if is_plain(of, place) else dialect.stored(value, of, place)


def unpacked(element: str, of: DType, place: OperatorPlace) -> str:
    """The value of an element."""
    dialect = place.dialect
    if of.name not in dialect.registers:
        return place.converted("unpack", element, of)
    return element if is_plain(of, place) else dialect.loaded(element, of, place)


def is_plain(of: DType, place: OperatorPlace) -> bool:
    """Whether an element in memory is of the type of a value."""
    return place.dialect.memory(of) == place.dialect.register(of)


V = TypeVar("V")  # the type of emitted values: an expression, a register …


class OrderStep(NamedTuple):
    """One part of a term: the row that writes it, and the numbers of its operands."""

    row: Any  # as `fold` calls it
    number: int
    node: Any  # a scalar, of the class that its row is for
    kids: tuple[int, ...]
    dtypes: tuple[DType, ...]


@frozen(eq=False)
class Order(Generic[V]):
    """The parts of some terms; `start` has the values of those that are known before."""

    steps: tuple[OrderStep, ...]
    numbers: Mapping[Scalar, int]
    start: tuple[V | None, ...]
    roots: tuple[int, ...]


def operands(node: Scalar) -> tuple[Scalar, ...]:
    """The operands of an operation; those inside a reduction are in its own scope."""
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
    """The order of some terms, excluding `known` ones."""
    numbers: dict[Scalar, int] = {}
    steps: list[OrderStep] = []
    start: list[V | None] = []
    stack: list[Any] = list(reversed(roots))  # a term to visit, or one to leave and its operands
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
            if (given := known(node)) is not None:
                numbers[node] = len(numbers)
                start.append(given)
                continue
            if kids := operands_of(node):
                stack.append((node, kids))
                stack.extend(kids[::-1])
                continue
        number = numbers[node] = len(numbers)
        start.append(None)
        places = tuple([numbers[kid] for kid in kids])
        dtypes = tuple([dtype_of(kid) for kid in kids])
        steps.append(OrderStep(row_of(node), number, node, places, dtypes))
    return Order(tuple(steps), numbers, tuple(start), tuple([numbers[root] for root in roots]))


class Frame(Generic[V]):
    """A scope under construction; `outer` is the enclosing one."""

    __slots__ = ("checked", "found", "order", "outer", "rest")

    def __init__(self, order: Order[V], outer: Frame[V] | None) -> None:
        self.order, self.outer = order, outer
        self.found: list[Any] = list(order.start)  # Any: a value, None before it is written
        self.rest = iter(order.steps)
        self.checked: dict[Scalar, V] = {}
        """What had to be checked while it was written, and whether all was well."""

    @property
    def results(self) -> list[V]:
        """The values of the terms that were asked for."""
        found = self.found
        return [found[root] for root in self.order.roots]

    def operands(self, step: OrderStep) -> list[V]:
        """The values of the operands of a part."""
        found = self.found
        return [found[kid] for kid in step[3]]

    def value(self, node: Scalar) -> V | None:
        """The value of a part that is written here already."""
        number = self.order.numbers.get(node)
        return None if number is None else self.found[number]


def known_around(
    frame: Frame[V], hidden: Callable[[Frame[V]], Set[Scalar]] = lambda frame: frozenset()
) -> Callable[[Scalar], V | None]:
    """The values known in a frame and its enclosing ones, minus hidden ones."""
    frames: list[tuple[Frame[V], Set[Scalar]]] = []
    at: Frame[V] | None = frame
    while at is not None:
        frames.append((at, hidden(at)))
        at = at.outer

    def known(node: Scalar) -> V | None:
        for each, without in frames:
            value = each.value(node)
            if value is not None and node not in without:
                return value
        return None

    return known


Row: TypeAlias = Callable[[OrderStep, Frame[V]], V]
Walk: TypeAlias = Generator[Sequence[Scalar], Frame[V], V]
Nest: TypeAlias = Callable[[OrderStep, Frame[V]], "Walk[V]"]
Within: TypeAlias = Callable[[Sequence[Scalar], Frame[V]], Order[V]]
"""Orders the terms inside a frame, excluding values visible there."""

_NESTED: Final = "_NESTED"


def nest(of: Nest[V]) -> tuple[str, Nest[V]]:
    """The placeholder row for a part with inner scopes."""
    return _NESTED, of


def fold(of: Order[V], within: Within[V] | None = None) -> Frame[V]:
    """Write the parts of terms; the frame in which all are written."""
    frame = Frame(of, None)
    open_: list[tuple[int, Walk[V]]] = []
    while True:
        found = frame.found
        for step in frame.rest:
            row, number = step[0], step[1]
            if row.__class__ is not tuple:
                found[number] = row(step, frame)
                continue
            walk = row[1](step, frame)
            if (inner := _advanced(walk, None, number, frame, within)) is not None:
                open_.append((number, walk))
                frame = inner
                break
        else:
            if not open_:
                return frame
            number, walk = open_.pop()
            outer = frame.outer
            assert outer is not None
            if (inner := _advanced(walk, frame, number, outer, within)) is not None:
                open_.append((number, walk))
            frame = inner or outer


def _advanced(
    walk: Walk[V], answer: Frame[V] | None, number: int, frame: Frame[V], within: Within[V] | None
) -> Frame[V] | None:
    """The next scope that a nest requests, or None if it returned its value."""
    try:
        asked = walk.send(answer)  # type: ignore[arg-type]  # None begins a walk
    except StopIteration as done:
        frame.found[number] = done.value
        return None
    assert within is not None  # who has nests says what is known inside
    return Frame(within(asked, frame), frame)
