"""Reading: the nodes of a graph that torch has traced, one after the other, become terms."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from plica.core.diagnostic import CompilerBug
from plica.core.name import Name
from plica.frontend.complex_pair import Complex
from plica.frontend.measured import ZERO, Region, amount, matched
from plica.frontend.recurrence import repeated
from plica.frontend.torch.custom_operator import CustomOperators, is_custom
from plica.frontend.torch.dtype import dtype_of, part_type, stored
from plica.frontend.torch.node import (
    TorchNode,
    free_name,
    missing,
    place_of,
    placed,
    shape_of,
    shown,
)
from plica.frontend.torch.row import complex_number
from plica.frontend.torch.size_value import value_of
from plica.frontend.torch.symbol import Symbols
from plica.frontend.torch.table import TABLE
from plica.frontend.word import shape
from plica.ir.graph.expression import Expr, If, Project, Tuple
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.op.namespace import op
from plica.ir.type import TensorType, dim, dim_var, known, type_of
from plica.runtime.error import Diagnostic, PlicaError, UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch import fx

    Values = dict[fx.Node, Any]


CONTROL: Final = ("cond", "while_loop")  # the operators of torch whose arguments are graphs
UNKNOWN: Final = object()  # the value of a node that was refused; that was said already

# They repeat the exporter's checks, without results.
_CHECKS: Final = (
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
    "aten._assert_async.msg",
)


class Reader:
    """Reads graphs; `errors` holds the refusals, `custom` the custom operators if they are read.

    Data-dependent sizes go to a region, if there is one; asserted conditions on them are in
    `least`, as non-negative terms.
    """

    def __init__(
        self, symbols: Symbols, region: Region | None = None, custom: CustomOperators | None = None
    ) -> None:
        self.symbols, self.custom = symbols, custom
        self.errors: list[PlicaError] = []
        self.least: list[Scalar] = []
        self._region = region
        self._loops = 0
        symbols.late = None if region is None else self._late

    def graph(self, root: torch.nn.Module, graph: fx.Graph, given: Sequence[Any]) -> list[Any]:
        """The outputs of a graph on given values of its placeholders."""
        values: Values = {}
        places = iter(given)
        for node in graph.nodes:
            match node.op:
                case "placeholder":
                    values[node] = next(places)
                case "get_attr":
                    values[node] = self._attribute(root, node)
                case "output":
                    return list(_flat(node.args[0], values))
                case _:
                    values[node] = self.guarded(root, node, values)
        raise CompilerBug("A graph has no output.")

    def guarded(self, root: torch.nn.Module, node: fx.Node, values: Values) -> Any:
        """The value of a node; a refusal is noted and leaves it unknown."""
        if any(values[each] is UNKNOWN for each in node.all_input_nodes):
            return UNKNOWN
        try:
            return self.node(root, node, values)
        except PlicaError as error:
            self.errors.append(placed(error, node))
            return UNKNOWN

    def node(self, root: torch.nn.Module, node: fx.Node, values: Values) -> Any:
        """The value of a node: a term, a list of terms, or a number."""
        target: Any = node.target
        said = node.meta.get("val")
        if target is operator.getitem:
            return self._item(node, values)
        if str(target) in _CHECKS:
            return None
        if str(target) == "aten._assert_scalar.default":
            return self._asserted(node)
        if _reads_elements(target) and type(said).__name__ == "SymInt":
            return self._read_size(node, values)
        if _is_symbolic(said) or isinstance(said, int | float):
            return self.number(node)
        if str(target) == "wrap_with_set_grad_enabled":
            _, inner, *rest = node.args
            module = values[inner]  # type: ignore[index]  # a node, says the operator
            return self._inside(module, [_resolved(each, values) for each in rest])
        if str(target) in CONTROL:
            return self._control(node, values, said)
        called = self.custom is not None and is_custom(target)
        if not called and not is_known(node):
            raise UnsupportedError(missing(node))
        bound = _bound(node, target)
        given = {name: _resolved(each, values) for name, each in bound.items()}
        if gives_complex(said) or any(map(complex_number.is_complex, given.values())):
            return self._complex(node, given, said)
        row = self.custom.call if called and self.custom else TABLE.get(name_of(target))
        if row is None:
            raise UnsupportedError(missing(node))
        metas = {name: _resolved_meta(each) for name, each in bound.items()}
        made = TorchNode(target, place_of(node), given, metas, said, self.symbols, self._region)
        result: Any = row(made)
        made.finish()
        if isinstance(result, Expr):
            result = self._sized(said, result)
        else:
            whole: Any = said
            result = [self._sized(*each) for each in zip(whole, result, strict=True)]
        self._check(node, said, result)
        return result

    def _complex(self, node: fx.Node, given: dict[str, Any], said: Any) -> Any:
        """The result of an operator with complex operands or results."""
        target: Any = node.target

        def seen(arguments: dict[str, Any]) -> complex_number.PartNode:
            return complex_number.PartNode(
                target, place_of(node), arguments, {}, said, self.symbols, self._region
            )

        name = name_of(target)
        if (own := complex_number.COMPLEX.get(name)) is not None:
            part_node = seen(given)
            result: Any = own(part_node)
            part_node.finish()
        elif (row := complex_number.PARTWISE.get(name)) is not None:
            result = complex_number.on_parts(
                row,
                lambda at: seen(
                    {key: complex_number.part_of(key, each, at) for key, each in given.items()}
                ),
            )
        else:
            message = f"The operator {target} is not supported on complex numbers."
            raise UnsupportedError.of(
                "unsupported", message, place_of(node), "real numbers", "complex numbers",
                "Compute with both parts, which torch.view_as_real gives.",
            )  # fmt: skip
        if isinstance(result, Complex):
            result = Complex(*(self._sized(said, expr) for expr in result))
        self._check(node, said, result)
        return result

    def _sized(self, said: Any, made: Expr | None) -> Any:
        """A row's result with torch's sizes: torch's symbols for data-dependent sizes are bound to
        the actual sizes, and other such sizes are asserted."""
        if made is None or said is None:
            return made
        made = matched(made, [self.symbols.equal.simplest(extent) for extent in shape(made)])
        given = [None if isinstance(each, int) else each.node.expr for each in said.shape]
        for each, size in zip(given, shape(made), strict=True):
            if each is not None:
                self.symbols.bind(each, size)
        if not any(each is not None and self.symbols.depends_on_elements(each) for each in given):
            return made
        sizes = shape_of(said, self.symbols)
        return made if sizes is None else matched(made, tuple(dim(each) for each in sizes))

    def _read_size(self, node: fx.Node, values: Values) -> Any:
        """An integer that is read out of a tensor; it becomes a size, so it is not negative."""
        said = node.meta["val"]
        source: Any = node.args[0]
        made = TorchNode(node.target, place_of(node), {}, {}, said, self.symbols, self._region)
        self.symbols.bind(said.node.expr, made.measured(amount(values[source])))
        return self.number(node)

    def _late(self, size: Any) -> Scalar | None:
        """The dim of a size that is computed from others, and is no term in them."""
        if self._region is None or (value := value_of(size, self.symbols)) is None:
            return None
        if value not in self._region:
            taken = {str(var.name) for var in self._region.values()}
            name = free_name("size", {*self.symbols.names.values(), *taken})
            self._region[value] = dim_var(name)
        return self._region[value]

    def _control(self, node: fx.Node, values: Values, said: Any) -> list[Any]:
        """A choice or a loop, whose branches and bodies are graphs."""
        given = [_resolved(arg, values) for arg in node.args]
        if str(node.target) == "cond":
            made = self._choice(*given)
        else:
            self._loops += 1
            number, (test, body, begin, *outer) = self._loops, given
            rest = outer[0] if outer else ()
            made = repeated(
                lambda hint: Name(hint, number),
                begin,
                lambda *carried: self._inside(test, [*carried, *rest])[0],
                lambda *carried: self._inside(body, [*carried, *rest]),
            )
        if not isinstance(said, list | tuple):
            return made[0]  # type: ignore[no-any-return]  # one tensor, says torch
        self._check(node, said, made)
        return made

    def _choice(self, condition: Any, then: Any, orelse: Any, given: Sequence[Any]) -> list[Any]:
        """What one of two graphs gives; a condition that is known chooses at once."""
        if not isinstance(condition, Expr):
            return self._inside(then if condition else orelse, given)
        sides = [Tuple(tuple(self._inside(side, given))) for side in (then, orelse)]
        whole = If(condition, *sides)
        return [Project(whole, at) for at in range(len(sides[0].items))]

    def _inside(self, module: torch.nn.Module, given: Sequence[Any]) -> list[Any]:
        graph: fx.Graph = module.graph  # type: ignore[assignment]  # a traced module has one
        # Sizes measured in a branch or a body would only be known there, and so would their
        # assertions.
        outside, self._region = self._region, None
        made = self.graph(module, graph, given)
        self._region = outside
        if any(each is UNKNOWN for each in made):
            raise self.errors.pop()
        return made

    def _attribute(self, root: torch.nn.Module, node: fx.Node) -> Any:
        found: Any = root
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not hasattr(found, "is_sparse"):
            return found  # the body of an operator that has one
        try:
            return stored(found, place_of(node))
        except PlicaError as error:
            self.errors.append(error)
            return UNKNOWN

    def _item(self, node: fx.Node, values: Values) -> Any:
        source: Any = node.args[0]
        at: Any = node.args[1]
        if (found := values[source][at]) is None:
            message = f"Output {at} of {source.target} is not supported."
            raise UnsupportedError.of("unsupported", message, place_of(node))
        return found

    def number(self, node: fx.Node) -> Any:
        """The size or other number that a node gives."""
        if isinstance(said := node.meta["val"], bool | int | float):
            return said
        expression = said.node.expr
        if type(said).__name__ == "SymBool":
            found: Any = self.symbols.holds(expression)
            if found is None and (least := self.symbols.least(expression)) is not None:
                found = reduce(op.logical_and, [amount(scalar) >= ZERO for scalar in least])
        elif type(said).__name__ == "SymFloat":
            found = self.symbols.real(expression)
            found = value_of(expression, self.symbols) if found is None else found
        else:
            found = self.symbols.term(expression)
        if found is None:
            message = f"What {shown(node.target)} gives is only known when the program runs."
            hint = "Sizes must follow from those of the inputs; dims={...} gives them numbers."
            raise UnsupportedError.of("unsupported", message, place_of(node), None, str(said), hint)
        return found

    def _asserted(self, node: fx.Node) -> None:
        condition: Any = node.args[0]
        said = condition.meta.get("val") if hasattr(condition, "meta") else condition
        holds = said if isinstance(said, bool | int) else self.symbols.holds(said.node.expr)
        if holds is None and self.symbols.depends_on_elements(said.node.expr):
            self._demand(node, said.node.expr)
        if holds is False:
            message = "The program was exported under a condition that these sizes break."
            raise UnsupportedError.of("unsupported", message, place_of(node), str(node.args[1]))

    def _demand(self, node: fx.Node, relation: Any) -> None:
        """What torch asserts of sizes that depend on elements is asserted when it runs."""
        if (least := self.symbols.least(relation)) is None or self._region is None:
            message = "The program asserts something of sizes that are known when it runs."
            expected = "a comparison of two sizes, outside of branches and loops"
            raise UnsupportedError.of(
                "unsupported", message, place_of(node), expected, str(relation)
            )
        self.least += [scalar for scalar in least if not isinstance(scalar, ScalarVar)]

    def _check(self, node: fx.Node, said: Any, made: Any) -> None:
        """Checks a row's result against torch's types."""
        pairs = zip(said, made, strict=True) if isinstance(said, list | tuple) else [(said, made)]
        for wanted, found in pairs:
            if found is None or wanted is None:
                continue
            parts = found if isinstance(found, Complex) else (found,)
            for part in parts:
                if part is not None:
                    self._check_part(node, wanted, part)

    def _check_part(self, node: fx.Node, wanted: Any, found: Expr) -> None:
        of = type_of(found)  # an ill-typed term is refused here, where the node is known
        assert isinstance(of, TensorType)
        sizes = shape_of(wanted, self.symbols)
        element = part_type(wanted.dtype) or dtype_of(wanted.dtype)
        same = of.dtype is element and len(of.shape) == len(wanted.shape)
        for size, other in zip(of.shape, sizes or (), strict=False):
            number = known(size)
            same = same and (number is None or not isinstance(other, int) or number == other)
        if not same:
            raise CompilerBug(f"{node.target} made {of}, and torch says {wanted}.")


def name_of(target: Any) -> str:
    """The key of an operator in the table."""
    return str(target).removeprefix("aten.")


def _is_symbolic(said: Any) -> bool:
    return type(said).__name__ in ("SymInt", "SymBool", "SymFloat")


def _bound(node: fx.Node, target: Any) -> dict[str, Any]:
    """The arguments of a node by the names of the schema."""
    found: dict[str, Any] = {}
    for at, argument in enumerate(target._schema.arguments):
        if at < len(node.args) and not argument.kwarg_only:
            found[argument.name] = node.args[at]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found


def _resolved(given: Any, values: Values) -> Any:
    if hasattr(given, "all_input_nodes"):
        return values[given]
    if isinstance(given, list | tuple):
        return [_resolved(each, values) for each in given]
    return given


def _resolved_meta(given: Any) -> Any:
    if hasattr(given, "all_input_nodes"):
        return given.meta.get("val")
    if isinstance(given, list | tuple):
        return [_resolved_meta(each) for each in given]
    return given


def _flat(given: Any, values: Values) -> Iterator[Any]:
    """The values of an output, in order."""
    stack = [given]
    while stack:
        if isinstance(here := stack.pop(), list | tuple):
            stack += list(here)[::-1]
        else:
            yield _resolved(here, values)


def unsupported(root: torch.nn.Module, graph: fx.Graph) -> list[Diagnostic]:
    """All operators of a graph and its subgraphs without rows that are torch's own."""
    return [
        missing(node)
        for node in every_node(root, graph)
        if node.op == "call_function" and not is_known(node) and not is_custom(node.target)
    ]


def is_known(node: fx.Node) -> bool:
    """Whether a node's operator is supported."""
    target: Any = node.target
    if target is operator.getitem or str(target) in (*_CHECKS, "aten._assert_scalar.default"):
        return True
    if str(target) in ("wrap_with_set_grad_enabled", *CONTROL):
        return True
    said = node.meta.get("val")
    if _is_symbolic(said) or isinstance(said, int | float):
        return type(said).__name__ == "SymInt" or not _reads_elements(target)
    name = name_of(target)
    return name in TABLE or name in complex_number.COMPLEX


def gives_complex(said: Any) -> bool:
    """Whether a node gives complex numbers."""
    given = said if isinstance(said, list | tuple) else [said]
    return any(part_type(getattr(each, "dtype", None)) is not None for each in given)


def _reads_elements(target: Any) -> bool:
    return "_local_scalar_dense" in str(target) or "item" in str(target).split(".")


def every_node(root: torch.nn.Module, graph: fx.Graph) -> Iterable[fx.Node]:
    """The nodes of a graph and of the graphs inside of it."""
    graphs = [graph]
    for child in root.children():
        inner: Any = getattr(child, "graph", None)
        if inner is not None:
            graphs.append(inner)
    for each in graphs:
        yield from each.nodes
