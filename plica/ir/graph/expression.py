"""The graph language: pure, typed, higher order.

    Expr    ::= Const | Literal | Var | Let(var, value, body) | LetDim(dim, value, body)
              | If(condition, then, orelse) | Call(callee, args, types)
              | Function(dims, types, params, ret, body, attrs)
              | Apply(op, args, attrs) | Tuple(items) | Project(value, index)
              | Constructor(data, index, name, type) | Match(value, clauses, total)
    Clause  ::= Clause(pattern, body)
    Pattern ::= PAny | PVar(var) | PConstructor(constructor, items) | PTuple(items)

Dataflow is shared by identity: a term used twice is one node, whatever the text looks like.
A variable carries its type, so the type of any inferred term is found locally
(`plica.ir.type.infer`).

>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> Tuple((x, x)).items[0] is x
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast

import numpy as np
from attrs import evolve, frozen

from plica.core import DeferredBytes, FrozenBytes, Name, Term, ill_formed, reached
from plica.core.term import LARGE_BYTES
from plica.ir.graph.weight_array import ColumnwiseArray
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type.dtype import DType, dtype
from plica.ir.type.term import DataName, Type, TypeVar
from plica.runtime.error import wrong_argument

WRITTEN = "ir.graph"  # the path that its terms are written down under

# Any: the operator's record declares an attribute's type (numbers, strings, dtypes, dims, tuples of
# those); `plica.ir.graph.operator` checks it.
Attrs: TypeAlias = tuple[tuple[str, Any], ...]


Number: TypeAlias = "Expr | bool | int | float"
Operand: TypeAlias = "Number | np.ndarray[Any, Any]"


class Expr(Term):
    """An expression; Python's operators build operator calls, numbers become literals."""

    __slots__ = ("_settled", "_type")
    _type: Type  # remembered by `plica.ir.type.infer`
    _settled: int  # 0 or absent: to be inferred; 1: inferred; 2: inferred, and holds no match

    def __add__(self, other: Operand) -> Expr:
        return Apply("add", (self, as_expr(other)), ())

    def __radd__(self, other: Operand) -> Expr:
        return Apply("add", (as_expr(other), self), ())

    def __sub__(self, other: Operand) -> Expr:
        return Apply("subtract", (self, as_expr(other)), ())

    def __rsub__(self, other: Operand) -> Expr:
        return Apply("subtract", (as_expr(other), self), ())

    def __mul__(self, other: Operand) -> Expr:
        return Apply("multiply", (self, as_expr(other)), ())

    def __rmul__(self, other: Operand) -> Expr:
        return Apply("multiply", (as_expr(other), self), ())

    def __truediv__(self, other: Operand) -> Expr:
        return Apply("divide", (self, as_expr(other)), ())

    def __rtruediv__(self, other: Operand) -> Expr:
        return Apply("divide", (as_expr(other), self), ())

    def __floordiv__(self, other: Operand) -> Expr:
        return Apply("floor_divide", (self, as_expr(other)), ())

    def __rfloordiv__(self, other: Operand) -> Expr:
        return Apply("floor_divide", (as_expr(other), self), ())

    def __mod__(self, other: Operand) -> Expr:
        return Apply("mod", (self, as_expr(other)), ())

    def __rmod__(self, other: Operand) -> Expr:
        return Apply("mod", (as_expr(other), self), ())

    def __pow__(self, other: Operand) -> Expr:
        return Apply("power", (self, as_expr(other)), ())

    def __rpow__(self, other: Operand) -> Expr:
        return Apply("power", (as_expr(other), self), ())

    def __matmul__(self, other: Operand) -> Expr:
        return Apply("matmul", (self, as_expr(other)), ())

    def __neg__(self) -> Expr:
        return Apply("negative", (self,), ())

    def __lt__(self, other: Number) -> Expr:
        return Apply("less", (self, as_expr(other)), ())

    def __le__(self, other: Number) -> Expr:
        return Apply("less_equal", (self, as_expr(other)), ())

    def __gt__(self, other: Number) -> Expr:
        return Apply("greater", (self, as_expr(other)), ())

    def __ge__(self, other: Number) -> Expr:
        return Apply("greater_equal", (self, as_expr(other)), ())


@frozen(eq=False)
class Const(Expr):
    """A tensor constant: its elements in row-major order, little-endian."""

    dtype: DType
    shape: tuple[int, ...]
    data: FrozenBytes | DeferredBytes

    @staticmethod
    def normal(
        dtype: DType, shape: tuple[int, ...], data: FrozenBytes | DeferredBytes
    ) -> tuple[Any, ...]:
        count = 1
        for size in shape:
            count *= size
        if len(data) != count * dtype.bytes or any(size < 0 for size in shape):
            raise ill_formed(f"{len(data)} bytes are no {dtype} tensor of shape {shape}.")
        if isinstance(data, memoryview) and not (data.readonly and data.format == "B"):
            raise ill_formed("A constant is made of bytes that nobody can write to.")
        return dtype, shape, data

    @property
    def content(self) -> FrozenBytes:
        """The bytes, computed on first use."""
        return self.data.read() if isinstance(self.data, DeferredBytes) else self.data

    @property
    def elements(self) -> np.ndarray[Any, Any] | ColumnwiseArray:
        """The elements, or a lazy array that computes them."""
        data = self.data
        if isinstance(data, ColumnwiseArray) and data.shape == self.shape and not data.is_read:
            return data
        return self.numpy()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a read-only array over the constant's own bytes."""
        little = self.dtype.numpy.newbyteorder("<") if self.dtype.bits > 8 else self.dtype.numpy
        return np.frombuffer(self.content, little).reshape(self.shape)


@frozen(eq=False)
class Literal(Expr):
    """A number whose dtype is decided by its context; inference turns it into a `Const`."""

    value: bool | int | float


@frozen(eq=False)
class Var(Expr):
    """A variable: a parameter, a let, a pattern's name, or a definition of the module."""

    variable = True
    name: Name
    type: Type | None


@frozen(eq=False)
class Let(Expr):
    """`var = value; body`; the variable is in scope in `value` too where that is a function."""

    binds = (("var", ("value", "body")),)
    var: Var
    value: Expr
    body: Expr


@frozen(eq=False)
class LetDim(Expr):
    """`measure("dim", value); body`: a dim of the function around is the number that `value` is.

    It is no binder: the function binds the dim, so its return type may mention it. In `body` the
    dim is known; a negative number has no value.
    """

    dim: ScalarVar
    value: Expr
    body: Expr


@frozen(eq=False)
class If(Expr):
    """The branch that a scalar bool chooses; the other is never evaluated."""

    condition: Expr
    then: Expr
    orelse: Expr


@frozen(eq=False)
class Function(Expr):
    """A function; closures are functions with free variables.  `ret` None is to be inferred."""

    binds = (
        ("dims", ("params", "ret", "body")),
        ("types", ("params", "ret", "body")),
        ("params", ("body",)),
    )
    dims: tuple[ScalarVar, ...]
    types: tuple[TypeVar, ...]
    params: tuple[Var, ...]
    ret: Type | None
    body: Expr
    attrs: Attrs = ()


@frozen(eq=False)
class Call(Expr):
    """A function or constructor applied; `types` are the type arguments of a polymorphic one."""

    callee: Expr
    args: tuple[Expr, ...]
    types: tuple[Type, ...] = ()


@frozen(eq=False)
class Apply(Expr):
    """An operator applied; attributes sorted by name, defaults filled in (see `Operator`)."""

    op: str
    args: tuple[Expr, ...]
    attrs: Attrs = ()


@frozen(eq=False)
class Tuple(Expr):
    """A tuple; with no items the unit value."""

    items: tuple[Expr, ...]


@frozen(eq=False)
class Project(Expr):
    """One item of a tuple."""

    value: Expr
    index: int


@frozen(eq=False)
class Constructor(Expr):
    """A constructor of a data type, as a function; its type is the polymorphic one."""

    mentioned = True  # a pattern introduces its variables, not those in its constructors' types
    data: DataName
    index: int
    name: Name
    type: Type


@frozen(eq=False)
class PAny(Term):
    """`_`: matches anything."""


@frozen(eq=False)
class PVar(Term):
    """A name: matches anything and binds it."""

    var: Var


@frozen(eq=False)
class PConstructor(Term):
    """`C(p, q)`."""

    constructor: Constructor
    items: tuple[Pattern, ...]


@frozen(eq=False)
class PTuple(Term):
    """`(p, q)`."""

    items: tuple[Pattern, ...]


Pattern: TypeAlias = PAny | PVar | PConstructor | PTuple


@frozen(eq=False)
class Clause(Term):
    """`case pattern: body`."""

    binds = (("pattern", ("body",)),)
    pattern: Pattern
    body: Expr


@frozen(eq=False)
class Match(Expr):
    """The first clause whose pattern fits; a total match must cover every value."""

    value: Expr
    clauses: tuple[Clause, ...]
    total: bool = True


EXPRESSIONS: TypeAlias = (
    Const | Literal | Var | Let | LetDim | If | Function | Call | Apply | Tuple | Project
    | Constructor | Match
)  # fmt: skip


def operands(node: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions; a let's value comes before its body."""
    if (parts := _OPERANDS.get(node.__class__)) is None:
        raise TypeError(f"{type(node).__name__} is no expression of the graph language.")
    return parts(node)


def _none(node: Expr) -> tuple[Expr, ...]:
    return ()


# A table by class, since every walk of every pass asks this of every node.
# fmt: off
_OPERANDS: Final[dict[type, Callable[[Any], tuple[Expr, ...]]]] = {
    Apply:        attrgetter("args"),
    Var:          _none,
    Const:        _none,
    Constructor:  _none,
    Literal:      _none,
    Let:          attrgetter("value", "body"),
    LetDim:       attrgetter("value", "body"),
    Call:         lambda node: (node.callee, *node.args),
    Tuple:        attrgetter("items"),
    Project:      lambda node: (node.value,),
    If:           attrgetter("condition", "then", "orelse"),
    Function:     lambda node: (node.body,),
    Match:        lambda node: (node.value, *[clause.body for clause in node.clauses]),
}
# fmt: on


def with_operands(node: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same expression with other parts.  `with_operands(e, operands(e)) is e`."""
    if new == operands(node):
        return node
    if node.__class__ is Apply:
        return Apply(node.op, new, node.attrs)
    match node:
        case Let(var, _, _):
            return Let(var, *new)
        case LetDim(dim, _, _):
            return LetDim(dim, *new)
        case Call(_, _, types):
            return Call(new[0], new[1:], types)
        case Tuple():
            return Tuple(new)
        case Project(_, index):
            return Project(new[0], index)
        case If():
            return If(*new)
        case Function():
            return evolve(node, body=new[0])
        case Match(_, clauses, total):
            bodies = zip(clauses, new[1:], strict=True)
            return Match(new[0], tuple([Clause(c.pattern, body) for c, body in bodies]), total)
    return node


def const(value: object, of: DType | str | None = None) -> Const:
    """A constant from numbers or an array; numpy's dtype unless one is given."""
    wanted = None if of is None else dtype(of)
    array = np.asarray(value, None if wanted is None else wanted.numpy)
    kind = dtype(array.dtype.newbyteorder("=")) if wanted is None else wanted
    little = array if array.dtype.byteorder != ">" else array.astype(kind.numpy)
    return Const(kind, tuple(map(int, array.shape)), _bytes_of(little))


def own_const(array: np.ndarray[Any, Any], of: DType) -> Const:
    """A constant with the elements of an array that is never written again; large ones are not
    copied."""
    if array.nbytes < LARGE_BYTES or array.dtype != of.numpy or not array.flags.c_contiguous:
        return const(array, of)
    plain = array.reshape(-1).view(np.uint8)
    plain.flags.writeable = False
    return Const(of, array.shape, plain.data)


def _bytes_of(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of an array in order: those it was made of, where it shows all of them."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, bytes) and array.flags.c_contiguous and array.nbytes == len(owner):
        return owner
    return array.tobytes()


def as_expr(value: Operand) -> Expr:
    """An expression, or a number or array as one."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool | int | float):
        return Literal(value)
    if isinstance(value, np.ndarray | np.generic):
        return const(value)
    expected = "an expression, a number or an array"
    raise wrong_argument("This is no expression, number or array.", expected, value)


def remember_type(node: Expr, of: Type, settled: int) -> None:
    """Note the type of an expression in it; `settled` says whether nothing in it is to be inferred.

    The type depends on the term alone, because variables carry theirs, so concurrent writers store
    the same. Only `plica.ir.type.infer` calls this.
    """
    _set_type(node, of)
    _set_settled(node, settled)


_set_type: Final = cast(Any, Expr.__dict__["_type"]).__set__
_set_settled: Final = cast(Any, Expr.__dict__["_settled"]).__set__


def attr(node: Apply | Function, name: str, default: Any = None) -> Any:
    """An attribute's value."""
    return next((value for key, value in node.attrs if key == name), default)


def matches(root: Term) -> Iterator[Match]:
    """Every distinct match inside a term; terms known to contain none are skipped."""

    def unsettled(node: Term) -> tuple[Term, ...]:
        return () if getattr(node, "_settled", 0) == 2 else node._children

    return (node for node in reached(unsettled, root) if isinstance(node, Match))
