"""Nodes: one ATen operator of a program as the rows of the table see it."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from plica.core.diagnostic import EvaluationError, IllTyped
from plica.core.name import Name
from plica.frontend.measured import Region
from plica.frontend.torch.dtype import dtype_of
from plica.frontend.torch.symbol import Size, Symbols
from plica.frontend.word import rank, shape
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import Scalar
from plica.ir.type import DType, dim_var, known, type_of
from plica.runtime.error import Diagnostic, Place, PlicaError, UnsupportedError

if TYPE_CHECKING:
    from torch import fx

Made: TypeAlias = "Expr | Sequence[Expr | None]"

# They describe a tensor's memory, not its value.
_PLACEMENT: Final = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit")


class TorchNode:
    """An operator with its arguments: terms for tensors, numbers and index terms for the rest."""

    def __init__(  # noqa: PLR0917  # what an operator of a program is made of
        self, target: Any, place: Place, given: dict[str, Any], metas: dict[str, Any],
        result: Any, symbols: Symbols, region: Region | None = None,
    ) -> None:  # fmt: skip
        self.target, self.place, self.symbols = target, place, symbols
        self._region = region  # of sizes that are measured; None where none may be
        self.result = result  # what torch says the operator gives: fake tensors
        self._given, self._metas = given, metas
        self._asked: set[str] = set()

    @property
    def kind(self) -> str:
        """The operator's name, as torch writes it."""
        return str(self.target)

    # --- arguments -------------------------------------------------------------------------------

    def argument(self, name: str) -> Any:  # Any: whatever the schema says
        """An argument, unconverted."""
        self._asked.add(name)
        return self._given[name]

    def has(self, name: str) -> bool:
        """Whether the operator has an argument of that name that is not None."""
        self._asked.add(name)
        return self._given.get(name) is not None

    def x(self, name: str = "self") -> Expr:
        """A tensor that must be there."""
        found = self.argument(name)
        if not isinstance(found, Expr):
            self.unsupported(f"The argument {name!r} of {self.kind} is no tensor.", "a tensor")
        return found

    def maybe(self, name: str) -> Expr | None:
        """A tensor, or None if absent."""
        return self.x(name) if self.has(name) else None

    def xs(self, name: str) -> tuple[Expr, ...]:
        """A list of tensors, none of which is left out."""
        found = self.argument(name)
        if not found or not all(isinstance(each, Expr) for each in found):
            self.unsupported(f"The argument {name!r} of {self.kind} is no list of tensors.")
        return tuple(found)

    def meta(self, name: str) -> Any:  # Any: a fake tensor, or a number
        """What torch knows of an argument: its type, before anything runs."""
        return self._metas[name]

    def size(self, name: str) -> Size:
        """A size: a number or a term in symbolic dims."""
        found: Size = self.argument(name)
        return found

    def sizes(self, name: str) -> tuple[Size, ...]:
        """Sizes: numbers or terms in symbolic dims."""
        found = self.argument(name)
        return tuple(found) if isinstance(found, list | tuple) else (found,)

    def integer(self, name: str) -> int:
        """A size that must be a number."""
        found = self.argument(name)
        if not isinstance(found, int):
            self.unsupported(
                f"The argument {name!r} of {self.kind} must be a number.",
                "a number",
                "a symbolic size",
                "Say what the symbolic dims are: from_torch(program, dims={...}).",
            )
        return int(found)

    def integers(self, name: str) -> tuple[int, ...]:
        """Sizes that must be numbers."""
        found = self.sizes(name)
        if not all(isinstance(each, int) for each in found):
            self.integer(name)
        return tuple(int(each) for each in found if isinstance(each, int))

    def number(self, name: str) -> bool | int | float:
        """A number, which must not depend on sizes."""
        found = self.argument(name)
        if not isinstance(found, bool | int | float):
            self.unsupported(f"The argument {name!r} of {self.kind} must be a number.", "a number")
        return found

    def flag(self, name: str) -> bool:
        """Yes or no."""
        return bool(self.argument(name))

    def text(self, name: str) -> str:
        """A word."""
        return str(self.argument(name))

    def axis(self, name: str, of: int) -> int:
        """An axis counted from the front; a tensor of rank 0 has one to name."""
        found = self.integer(name)
        if not -max(of, 1) <= found < max(of, 1):
            self.unsupported("There is no such axis.", f"from {-of} to {of - 1}", str(found))
        return found % max(of, 1)

    def axes(self, name: str, of: int) -> tuple[int, ...]:
        """Axes counted from the front; all of them where none are named."""
        found = self.argument(name)
        chosen = () if found is None else self.integers(name)
        if not chosen:
            return tuple(range(of))
        return tuple(each % max(of, 1) for each in chosen) if of else ()

    def known_sizes(self, x: Expr, axes: Sequence[int] | None = None) -> tuple[int, ...]:
        """The sizes of a tensor along all axes or some, which must be numbers."""
        sizes = [known(shape(x)[axis]) for axis in (range(rank(x)) if axes is None else axes)]
        if None in sizes:
            self.unsupported(
                f"{self.kind} needs a tensor whose sizes are numbers.",
                "known sizes",
                str(type_of(x)),
                "Say what the symbolic dims are: from_torch(program, dims={...}).",
            )
        return tuple(size for size in sizes if size is not None)

    def new_name(self, hint: str) -> Name:
        """A name that no variable of the program has."""
        return self.symbols.new_name(f"recurrent_{hint}")

    # --- results ---------------------------------------------------------------------------------

    def dtype(self, at: int = 0) -> DType:
        """The element type that torch gives a result."""
        result = self.result[at] if isinstance(self.result, list | tuple) else self.result
        if (found := dtype_of(result.dtype)) is None:
            self.unsupported(
                f"{self.kind} gives a type that Plica does not have.", None, str(result.dtype)
            )
        return found

    def shape(self, at: int = 0) -> tuple[Size, ...]:
        """The shape that torch gives a result."""
        result = self.result[at] if isinstance(self.result, list | tuple) else self.result
        if (found := shape_of(result, self.symbols)) is None:
            message = f"The shape of what {self.kind} gives is only known when the program runs."
            self.unsupported(message, "sizes that follow from those of the inputs", str(result))
        return found

    def size_given(self, axis: int) -> Size | None:
        """Torch's size of a result along an axis, or None if it is only a name."""
        size = self.result.shape[axis]
        return size if isinstance(size, int) else self.symbols.term(size.node.expr)

    def has_own_length(self, may_differ: bool) -> bool:
        """Whether a slice, which may be shorter than torch assumed, is as long as the sizes say."""
        if not may_differ or self.symbols.assumes_lengths:
            return False
        self.symbols.has_own_lengths = True
        return True

    @property
    def measures(self) -> bool:
        """Whether sizes may be measured here."""
        return self._region is not None

    def measured(self, value: Expr, hint: object = "") -> Scalar:
        """The dim that is a number of rank 0 once that is computed."""
        if self._region is None:
            message = f"A size of what {self.kind} gives is only known when the program runs."
            hint = "An exported program may have them, outside of branches and loops."
            self.unsupported(message, "sizes that follow from those of the inputs", None, hint)
        if value not in self._region:
            taken = {
                *self.symbols.names.values(),
                *[str(var.name) for var in self._region.values()],
            }
            self._region[value] = dim_var(free_name(str(self.place.node).lstrip("_"), taken))
        return self._region[value]

    # --- refusals --------------------------------------------------------------------------------

    def unsupported(
        self, message: str, expected: str | None = None, found: str | None = None,
        suggestion: str | None = None,
    ) -> NoReturn:  # fmt: skip
        """Refuses a program that needs an unsupported feature."""
        raise UnsupportedError.of("unsupported", message, self.place, expected, found, suggestion)

    def finish(self) -> None:
        """Refuses unread arguments."""
        for argument in self.target._schema.arguments:
            name = argument.name
            if name in self._asked or name in _PLACEMENT:
                continue
            given = self._given[name]
            if isinstance(given, Expr) or given != argument.default_value:
                message = f"The argument {name!r} of {self.kind} is not supported."
                self.unsupported(message, repr(argument.default_value), str(given)[:80])


def free_name(name: str, taken: Container[str]) -> str:
    """An unused name similar to a given one."""
    count, made = 1, name
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    return made


def shape_of(of: Any, symbols: Symbols) -> tuple[Size, ...] | None:
    """The shape of a fake tensor, or None if a size is no term in symbolic dims."""
    sizes = [each if isinstance(each, int) else symbols.term(each.node.expr) for each in of.shape]
    known_ = tuple(size for size in sizes if size is not None)
    return known_ if len(known_) == len(sizes) else None


# --- places in messages --------------------------------------------------------------------------

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


def place_of(node: fx.Node) -> Place:
    """The node with its Python line, if torch has kept it."""
    if not (frames := _FRAME.findall(node.meta.get("stack_trace") or node.stack_trace or "")):
        return Place(node=node.name)
    file, line = frames[-1]
    return Place(file=file, line=int(line), node=node.name)


def shown(target: object) -> str:
    """The name of a node's target: an operator's, or that of a Python function."""
    text = str(target)
    return str(getattr(target, "__name__", text)) if text.startswith("<") else text


def missing(node: fx.Node) -> Diagnostic:
    """The diagnostic of an operator without a row."""
    if shown(node.target).startswith("auto_functionalized"):
        message = f"The operator {node.args[0]} writes to its arguments."
        hint = "Return a new tensor from it."
        return Diagnostic("unsupported", message, place_of(node), None, str(node.args[0]), hint)
    message = f"The operator {shown(node.target)} is not supported."
    hint = "docs/torch.md lists the operators that are."
    return Diagnostic("unsupported", message, place_of(node), None, shown(node.target), hint)


def placed(error: PlicaError, node: fx.Node) -> PlicaError:
    """An error at a node: what typing refuses there, Plica does not have."""
    if not isinstance(error, IllTyped | EvaluationError):
        return error
    name = shown(node.target)
    listed = [
        Diagnostic(each.code, f"{name}: {each.message}", place_of(node), each.expected, each.found)
        for each in error.diagnostics
    ]
    return UnsupportedError(listed[0], *listed[1:])
