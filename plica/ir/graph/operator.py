"""Operators: one record in one place.

A record says how an operator is called, what type it gives and what it computes: by a tensor
expression (`compute`), or in terms of other operators (`decompose`).  The record is callable and
builds the term: `op.add(x, y)`.  What follows from the tensor expression is never declared.

A record also defines its derivative (`gradient`): a pullback, which takes the cotangent of the
result, the result and the arguments, and returns a cotangent per argument (or None); or `FLAT`, if
the slope is zero wherever it exists; or `Through` a term that is differentiated instead. Composite
operators need none.

Records live in `plica/ir/op/`, one line each in the file of their kind; `plica.op` and
`plica.op.nn` are views of the registry.  A library registers its own under the name of its entry
point in `plica.operators`, `name.operator`, and they are found in any process; making a record
again as it was is nothing, so that cells of a notebook can be run again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from plica.core import ExtensionGroup, IllTyped, Term, did_you_mean, post_order
from plica.core.extension import installed_points
from plica.ir.graph.expression import Apply, Attrs, Expr, as_expr
from plica.ir.graph.weight_array import ColumnwiseArray
from plica.ir.loop.tensor import Compute
from plica.ir.type.term import Type
from plica.runtime.error import Diagnostic, Place, PlicaError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # needed where a record is made again
    from plica.core.same_code import same_code


__all__ = [
    "FLAT", "Attribute", "Flat", "Gradient", "Mismatch", "Operator", "OperatorRefused", "Pullback",
    "Through", "aliases", "find", "names", "namespaces", "register", "uses_foreign",
]  # fmt: skip


V = TypeVar("V")


@attrs.frozen
class Mismatch:
    """Why an operator does not fit its arguments: a value that becomes an error with a place."""

    code: str
    message: str
    expected: str | None = None
    found: str | None = None
    suggestion: str | None = None


# Any: attribute values differ per operator; each `Attribute` has a check.
Values: TypeAlias = Mapping[str, Any]
Relation: TypeAlias = Callable[..., Type | Mismatch]  # (attrs, *argument types) -> type
Definition: TypeAlias = Callable[..., "Compute | tuple[Compute, ...]"]  # (attrs, *buffers)
Decomposition: TypeAlias = Callable[..., Expr]  # (attrs, *argument expressions)
# (attrs, cotangent, result, *arguments) -> a cotangent for each argument
Pullback: TypeAlias = Callable[..., Sequence["Expr | None"]]


@attrs.frozen
class Flat:
    """The gradient of a function with zero slope almost everywhere."""


@attrs.frozen
class Through:
    """The gradient of a function that is differentiated as another term, which means the same."""

    build: Decomposition


FLAT: Final = Flat()
Gradient: TypeAlias = Pullback | Flat | Through


@attrs.frozen
class Attribute:
    """A named setting: `read` brings a value into its canonical form or says why it cannot."""

    name: str
    read: Callable[[Any], Any]  # returns the canonical value, or a Mismatch
    # Through a factory: to attrs a plain NOTHING means that the field itself has no default.
    default: Any = attrs.field(factory=lambda: attrs.NOTHING)

    @property
    def required(self) -> bool:
        return self.default is attrs.NOTHING


@attrs.frozen
class Operator:
    """An operator; `inputs` name its tensor arguments, a leading `*` marks any number of them."""

    name: str
    inputs: tuple[str, ...]
    relation: Relation
    compute: Definition | None = None
    decompose: Decomposition | None = None
    attributes: tuple[Attribute, ...] = ()
    like: tuple[int, ...] | None = None  # arguments that share a dtype (literals); None: all
    doc: str = ""
    onnx: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()  # other names people know it by; terms hold the one name
    gradient: Gradient | None = None
    reference: Callable[..., Any] | None = None
    """Another meaning, of arrays and the attributes by name, to hold this one against."""
    columns: Callable[..., ColumnwiseArray] | None = None
    """A faster bit-equal evaluation on whole arrays, from an origin, the attributes and the
    arrays."""
    pointwise: bool = False
    """Whether an element of the result depends on the elements at its place alone, after
    broadcasting, and on no size."""

    @property
    def variadic(self) -> bool:
        return self.inputs[:1] != () and self.inputs[0].startswith("*")

    def __call__(self, *args: Any, **attributes: Any) -> Expr:
        """The operator applied; arguments past the tensors are attributes in order."""
        return Apply(self.name, *self.bind(args, attributes))

    def bind(self, args: Sequence[Any], given: Values) -> tuple[tuple[Expr, ...], Attrs]:
        """Arguments and attributes in canonical form; `IllTyped` names all that is wrong."""
        values, problems = self.named(args, given.items())
        wrong = [problem for _, problem in problems]
        attributes = self._attributes(values, wrong)
        if wrong:
            raise IllTyped(*wrong)
        operands = values["values"] if self.variadic else [values[name] for name in self.slots]
        return tuple([as_expr(operand) for operand in operands]), attributes

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the operands; those of a variadic operator are one."""
        return ("values",) if self.variadic else self.inputs

    def named(
        self, args: Sequence[V], given: Iterable[tuple[str, V]]
    ) -> tuple[dict[str, V], list[tuple[str, Diagnostic]]]:
        """The arguments of a call by name, those without one in the order of the record; and what
        is wrong, each with the keyword it is about, or ""."""
        names = (*self.slots, *(attribute.name for attribute in self.attributes))
        wrong: list[tuple[str, Diagnostic]] = []
        if len(args) > len(names):
            wrong.append(("", self._arity(f"{len(args)} arguments")))
        values = dict(zip(names, args, strict=False))
        for name, value in given:
            if name not in names:
                hint = did_you_mean(name, names)
                message = f"{self.name} has no attribute {name!r}."
                unknown = Diagnostic(
                    "unknown-attribute", message, None, ", ".join(names), None, hint
                )
                wrong.append((name, unknown))
            elif name in values:
                wrong.append((name, self._arity(f"{name} twice")))
            else:
                values[name] = value
        required = [*self.slots, *(each.name for each in self.attributes if each.required)]
        if missing := [name for name in required if name not in values]:
            wrong.append(("", self._arity(f"no {' and no '.join(missing)}")))
        return values, wrong

    def _attributes(self, values: Values, wrong: list[Diagnostic]) -> Attrs:
        found: list[tuple[str, Any]] = []
        for attribute in self.attributes:
            if attribute.name not in values and attribute.required:
                continue  # that is said
            value = values.get(attribute.name, attribute.default)
            if not getattr(type(value), "unfilled", False):  # in a rule any value may come here
                value = attribute.read(value)
            if isinstance(value, Mismatch):
                message = f"{self.name}: {value.message}"
                wrong.append(
                    Diagnostic("bad-attribute", message, None, value.expected, value.found)
                )
            else:
                found.append((attribute.name, value))
        return tuple(sorted(found))

    def _arity(self, found: str) -> Diagnostic:
        expected = ", ".join((*self.inputs, *(attribute.name for attribute in self.attributes)))
        message = f"{self.name} is called with the wrong arguments."
        return Diagnostic("wrong-arity", message, None, f"({expected})", found)


_registry: Final[dict[str, Operator]] = {}
_known: Final[dict[str, Operator]] = {}  # the same records under their aliases as well
_homes: Final[dict[str, Place]] = {}  # where the records of other packages were made
_catalogue: Final[list[str]] = []  # the modules of Plica's own records, the commonest first

RESERVED: Final = ("nn",)  # names before a dot that are Plica's own


class OperatorRefused(PlicaError, ValueError):
    """A record cannot be registered."""


def register(operator: Operator) -> Operator:
    """Add a record; its names must be new, and it must say what it computes.

    The same record once more is nothing, and gives the first; another definition of the same name
    is refused: much that was computed with the first is still known.
    """
    if (home := _home()) is not None:
        load_records()  # a clash with one of Plica's own must be seen here
    if (operator.compute is None) == (operator.decompose is None):
        message = f"{operator.name} needs either a tensor expression or a decomposition."
        raise OperatorRefused.of("bad-operator", message, home)
    if taken := [name for name in (operator.name, *operator.aliases) if name in _known]:
        first = _known[taken[0]]
        if first.name == operator.name and same_code(first, operator):
            return first
        there = _homes.get(first.name)
        message = f"There is an operator {taken[0]} already, defined otherwise."
        found = "Plica's own" if there is None else f"one at {there}"
        hint = "Give it another name; a changed definition is read when Python starts again."
        told = Diagnostic("name-clash", message, home, "a new name", found, hint)
        raise OperatorRefused(told)
    if home is not None:
        _homes[operator.name] = home
    _registry[operator.name] = operator
    _known.update(dict.fromkeys((operator.name, *operator.aliases), operator))
    return operator


def _home() -> Place | None:
    """The line of another package that defines a record; None for Plica's own."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in MAKERS:
        frame = frame.f_back
    if str(frame.f_globals.get("__name__")).startswith("plica."):
        return None
    return Place(file=frame.f_code.co_filename, line=frame.f_lineno)


MAKERS: Final = (__name__, "plica.ir.op.record", "plica.core.extension")
"""Modules whose functions make records for others."""

OPERATORS: Final = ExtensionGroup(
    "plica.operators", "operator", Operator, named=lambda each: each.name, several=True,
    error=OperatorRefused, broken="bad-operator",
)  # fmt: skip
"""The operators of libraries: the entry point's name is their namespace."""


def catalogue(modules: Iterable[str]) -> None:
    """Registers modules whose records are loaded when an unknown name is looked up."""
    _catalogue.extend(modules)


def load_records(name: str | None = None) -> None:
    """Load Plica's own records until one has that name or alias; all of them without a name.

    A module that another thread is loading is waited for by `import_module`.
    """
    for each in tuple(_catalogue):
        if name in _known:
            return
        import_module(each)
    _catalogue.clear()


def find(name: str) -> Operator | None:
    """The record of that name or alias; `plica.ir.op` must have been imported.

    `acme.square` is looked for in the package whose entry point is `acme`.
    """
    if (operator := _known.get(name)) is not None:
        return operator
    space = name.partition(".")[0] if "." in name else ""
    if space in ("", *RESERVED):
        load_records(name)
    else:
        load_namespace(space)
    return _known.get(name)


def load_namespace(space: str) -> bool:
    """Whether a package offers operators whose names begin so; they are registered then.

    A package that is broken is refused, and leaves nothing behind.
    """
    point = None if space in RESERVED else OPERATORS.points().get(space)
    if point is None:
        return False
    tables: tuple[dict[str, Any], ...] = (_registry, _known, _homes)  # Any: of each its own
    before = [dict(each) for each in tables]
    try:
        for record in OPERATORS.records(point):
            register(record)
    except OperatorRefused:
        for table, old in zip(tables, before, strict=True):
            table.clear()
            table.update(old)
        raise
    return True


def uses_foreign(terms: Iterable[Term]) -> bool:
    """Whether an operator of another package than Plica is in some terms."""
    return bool(_homes) and uses(terms, _homes)


def uses(terms: Iterable[Term], operators: Container[str]) -> bool:
    """Whether one of some operators is in some terms."""
    return any(
        isinstance(each, Apply) and each.op in operators
        for term in terms
        for each in post_order(term)
    )


def namespaces() -> tuple[str, ...]:
    """The namespaces of other packages' operators, sorted."""
    offered = {point.name for point in installed_points(OPERATORS.name)}
    return tuple(sorted(offered | {home.partition(".")[0] for home in _homes if "." in home}))


def names() -> tuple[str, ...]:
    """The names of all operators, sorted; aliases are not among them."""
    load_records()
    return tuple(sorted(_registry))


def aliases() -> tuple[str, ...]:
    """The other names under which operators are found, sorted."""
    load_records()
    return tuple(sorted(_known.keys() - _registry.keys()))
