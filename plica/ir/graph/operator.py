"""Operators: one record in one place.

A record says how an operator is called, what type it gives and what it computes: by a tensor
expression (`compute`), or in terms of other operators (`decompose`).  The record is callable and
builds the term: `op.add(x, y)`.  What follows from the tensor expression is never declared.

A record also says how it is differentiated (`gradient`): by a pullback, which takes the cotangent
of the result, the result and the arguments, and gives a cotangent for each argument (None where
there is none to speak of); by `FLAT`, where the slope is zero wherever there is one; or `Through`
a term that is to be differentiated in its place.  An operator made of others needs none.

Records live in `plica/ir/op/`, one line each in the file of their kind; `plica.op` and
`plica.op.nn` are views of the registry.  Third parties add records with `register`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from plica.core.diagnostic import IllTyped, did_you_mean
from plica.ir.graph.expression import Apply, Attrs, Expr, as_expr
from plica.ir.loop.tensor import Compute
from plica.ir.type.term import Type
from plica.runtime.error import Diagnostic

__all__ = [
    "FLAT",
    "Attribute",
    "Flat",
    "Gradient",
    "Mismatch",
    "Operator",
    "Pullback",
    "Through",
    "aliases",
    "find",
    "names",
    "register",
]


@attrs.frozen
class Mismatch:
    """Why an operator does not fit its arguments: a value, turned into an error with a place."""

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
    """The gradient of a function whose slope is zero wherever it has one."""


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

    @property
    def variadic(self) -> bool:
        return self.inputs[:1] != () and self.inputs[0].startswith("*")

    def __call__(self, *args: Any, **attributes: Any) -> Expr:
        """The operator applied; arguments past the tensors are attributes in order."""
        return Apply(self.name, *self.bind(args, attributes))

    def bind(self, args: Sequence[Any], given: Values) -> tuple[tuple[Expr, ...], Attrs]:
        """Arguments and attributes in canonical form; `IllTyped` names all that is wrong."""
        slots = ("values",) if self.variadic else self.inputs
        names = (*slots, *(each.name for each in self.attributes))
        wrong: list[Diagnostic] = []
        if len(args) > len(names):
            wrong.append(self._arity(f"{len(args)} arguments"))
        values = dict(zip(names, args, strict=False))
        for name, value in given.items():
            if name not in names:
                hint = did_you_mean(name, names)
                message = f"{self.name} has no attribute {name!r}."
                wrong.append(Diagnostic("unknown-attribute", message, suggestion=hint))
            elif name in values:
                wrong.append(self._arity(f"{name} twice"))
            else:
                values[name] = value
        missing = [name for name in slots if name not in values]
        if missing:
            wrong.append(self._arity(f"no {' and no '.join(missing)}"))
        attributes = self._attributes(values, wrong)
        if wrong:
            raise IllTyped(*wrong)
        operands = values["values"] if self.variadic else [values[name] for name in slots]
        return tuple([as_expr(each) for each in operands]), attributes

    def _attributes(self, values: Values, wrong: list[Diagnostic]) -> Attrs:
        found: list[tuple[str, Any]] = []
        for each in self.attributes:
            if each.name not in values and each.required:
                wrong.append(self._arity(f"no {each.name}"))
                continue
            value = values.get(each.name, each.default)
            if not getattr(type(value), "hole", False):  # in a pattern any value may come here
                value = each.read(value)
            if isinstance(value, Mismatch):
                message = f"{self.name}: {value.message}"
                wrong.append(
                    Diagnostic("bad-attribute", message, None, value.expected, value.found)
                )
            else:
                found.append((each.name, value))
        return tuple(sorted(found))

    def _arity(self, found: str) -> Diagnostic:
        expected = ", ".join((*self.inputs, *(each.name for each in self.attributes)))
        message = f"{self.name} is called with the wrong arguments."
        return Diagnostic("wrong-arity", message, None, f"({expected})", found)


_registry: Final[dict[str, Operator]] = {}
_known: Final[dict[str, Operator]] = {}  # the same records under their aliases as well


def register(operator: Operator) -> Operator:
    """Add a record; its names must be new, and it must say what it computes."""
    taken = [name for name in (operator.name, *operator.aliases) if name in _known]
    if taken:
        raise ValueError(f"There is an operator {taken[0]} already.")
    if (operator.compute is None) == (operator.decompose is None):
        raise ValueError(f"{operator.name} needs either a tensor expression or a decomposition.")
    _registry[operator.name] = operator
    _known.update(dict.fromkeys((operator.name, *operator.aliases), operator))
    return operator


def find(name: str) -> Operator | None:
    """The record of that name or alias; `plica.ir.op` must have been imported."""
    return _known.get(name)


def names() -> tuple[str, ...]:
    """The names of all operators, sorted; aliases are not among them."""
    return tuple(sorted(_registry))


def aliases() -> tuple[str, ...]:
    """The other names under which operators are found, sorted."""
    return tuple(sorted(_known.keys() - _registry.keys()))
