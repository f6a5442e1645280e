"""Conversion: the nodes of a model, one after the other, become terms."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from plica.core.binding import free_vars
from plica.core.diagnostic import (
    MAX_TENSOR_BYTES,
    EvaluationError,
    IllTyped,
    Malformed,
    spanned_bytes,
    too_large,
)
from plica.core.name import Name
from plica.frontend.measured import Region
from plica.frontend.onnx import order
from plica.frontend.onnx.arithmetic import SMALL, settled, size_of, terms_of
from plica.frontend.onnx.attribute import name_of
from plica.frontend.onnx.dim import identifier
from plica.frontend.onnx.node import OnnxNode, Side
from plica.frontend.onnx.schema import violations
from plica.frontend.onnx.storage import array_of
from plica.frontend.onnx.table import TABLES, missing
from plica.frontend.onnx.value import GrowingValue, ListedValue, TensorValue
from plica.ir.graph.expression import Const, Expr, Var, const
from plica.ir.graph.module import Defined, Definition
from plica.ir.graph.provenance import stored_const
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.loop.statement import Kernel
from plica.ir.type import TensorType, bool_, dim_var, known, static_shape, type_of
from plica.ir.type.infer import kernel_type
from plica.runtime.error import Diagnostic, Place, PlicaError, UnsupportedError
from plica.runtime.late import lazy_imports
from plica.runtime.port import is_inner

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto

with lazy_imports(__name__):  # few models have these, and are read more than once
    from plica.frontend.onnx.branch_specialisation import BranchAnswer, BranchPoint, BranchPoints
    from plica.frontend.onnx.dim_unification import unify_dims
    from plica.frontend.onnx.expand import bound_nodes, definition
    from plica.frontend.onnx.ragged import as_option

MAX_BRANCH_POINTS: Final = 4
"""The maximum number of nested branch points of a reading: each may double the model."""

DEEPEST: Final = 60  # functions that call functions, and graphs inside of graphs, may nest so deep
KEPT: Final = ("DequantizeLinear",)  # operators that are not folded: integer rules match them

Scope = ChainMap[str, "TensorValue | None"]  # None: the node that makes it was refused


class RefusedInput(Exception):
    """A subgraph depends on a refused value, already reported."""


class NodeConverter:
    """Converts nodes: the `Reading` that they see; `errors` holds the refusals."""

    def __init__(
        self,
        folder: Path | None,
        functions: order.Functions,
        dims: Iterable[str] = (),
        measures: bool = True,
        answers: tuple[BranchAnswer, ...] = (),
        *,
        join: JoinReadings | None = None,
    ) -> None:
        self.folder, self.functions, self._join = folder, functions, join
        self.measures, self._answers = measures, answers
        self.branch_points: BranchPoints | None = None  # until there is one
        self._max_branch_points = MAX_BRANCH_POINTS
        self.sizes: list[ScalarVar] = []  # those that are measured, in order
        self._regions: list[Region] = [{}]
        self._dims = {*dims}
        self.errors: list[PlicaError] = []
        self._left = order.MOST_NODES
        self._depth = 0
        self._names = 0
        self._kernels: dict[Kernel, Var] = {}  # which nodes call, and by what
        self.definitions: dict[Defined, Definition] = {}

    def nodes(
        self, nodes: Iterable[NodeProto], scope: Scope, opsets: Mapping[str, int], prefix: str = ""
    ) -> None:
        """Converts nodes in topological order."""
        for proto in order.ordered(list(nodes), scope, prefix):
            self._left -= self._depth > 0  # what the file itself holds is no surprise
            if self._left < 0:
                raise order.too_many(prefix + name_of(proto))
            outputs = self._outputs(proto, scope, opsets, prefix)
            for at, name in enumerate(proto.output):
                if name:
                    scope[name] = outputs[at] if at < len(outputs) else None

    def _outputs(
        self, proto: NodeProto, scope: Scope, opsets: Mapping[str, int], prefix: str
    ) -> Sequence[TensorValue | None]:
        given = [scope[name] if name else None for name in proto.input]
        if any(value is None for name, value in zip(proto.input, given, strict=True) if name):
            return ()  # what it needs was refused already
        domain = order.domain_of(proto)
        node = OnnxNode(
            proto, opsets.get(domain, 0), given, self.folder, self, (scope, opsets), prefix
        )
        try:
            return self._converted(node, domain)
        except RefusedInput:
            return ()
        except PlicaError as error:
            self.errors.append(placed(error, node))
            return ()

    def _converted(self, node: OnnxNode, domain: str) -> Sequence[TensorValue | None]:
        proto = node.proto
        if (local := self.functions.get((domain, proto.op_type, proto.overload))) is not None:
            return self._expanded(node, local, {})
        if wrong := violations(node, domain):
            raise Malformed(wrong[0], *wrong[1:])
        row = TABLES[domain].get(proto.op_type) if domain in TABLES else None
        if row is None:
            if (standard := definition(node, domain)) is None:
                raise UnsupportedError(missing(proto, domain, node.place))
            return self._expanded(node, standard, node.scope[1])
        if domain == "" and any(map(_is_open, node.inputs)):
            unify_dims(node)
        made = row(node)
        results = [made] if isinstance(made, Expr | TensorValue) else list(made)
        node.finish(len(results))
        values = [
            result if isinstance(result, TensorValue) else TensorValue(_folded(result, node))
            for result in results
        ]
        for value in values:
            type_of(value.expr)  # an ill-typed term is refused here, where the node is known
            _check_size(value, node)
        return [_in_numbers(value) for value in values]

    def _expanded(
        self, node: OnnxNode, function: FunctionProto, around: Mapping[str, int]
    ) -> Sequence[TensorValue | None]:
        """The nodes of a function in place of its call."""
        inside: Scope = ChainMap({})
        given = {name: node.value(at) for at, name in enumerate(function.input)}
        inside.update({name: value for name, value in given.items() if value is not None})
        # An input left out is left out of every node that would read it.
        absent = [name for name, value in given.items() if value is None]
        nodes = bound_nodes(function, node, absent)
        opsets = {**around, **order.opset_versions(function.opset_import)}
        self._inside(node, nodes, inside, opsets)
        node.finish(len(function.output))
        for at, name in enumerate(node.proto.output):
            if name and function.output[at] not in inside:
                node.malformed("A function does not make an output.", function.output[at], "none")
        return [inside.get(name) for name in function.output]

    def body(
        self, node: OnnxNode, graph: GraphProto, given: Sequence[TensorValue]
    ) -> list[TensorValue]:
        return _outputs_of(node, graph, self._body_scope(node, graph, given))

    def _body_scope(self, node: OnnxNode, graph: GraphProto, given: Sequence[TensorValue]) -> Scope:
        """The results of a subgraph's nodes for given inputs."""
        scope, opsets = node.scope
        inside: Scope = scope.new_child()
        inside.update(initialisers(graph, self.folder))
        names = [each.name for each in graph.input]
        if len(names) != len(given):
            node.malformed("A body has the wrong number of inputs.", str(len(given)), str(names))
        inside.update(zip(names, map(_declared, graph.input, given), strict=True))
        self._inside(node, graph.node, inside, opsets)
        return inside

    def region(self, node: OnnxNode, graph: GraphProto, given: Sequence[TensorValue]) -> Side:
        def read(answers: tuple[BranchAnswer, ...] = ()) -> ModelReading:
            inner = self._inner(answers)
            return ModelReading(inner, inner._body_scope(node, graph, given))

        found = read()
        if found.converter.branch_points is not None:
            assert self._join is not None, "Who reads a model with branch points joins them."
            found = self._join(found, read, [each.name for each in graph.output])
        self._adopt(found.converter)
        return _outputs_of(node, graph, found.scope), found.converter.measured_here

    def _inner(self, answers: tuple[BranchAnswer, ...]) -> NodeConverter:
        """A converter for a nested region, with its own branch points."""
        made = copy(self)
        count = 0 if self.branch_points is None else len(self.branch_points.points)
        made.branch_points, made._answers = None, answers
        made._max_branch_points = self._max_branch_points - count
        made._regions, made.sizes, made.errors = [*self._regions, {}], [*self.sizes], []
        made._dims, made._kernels = {*self._dims}, dict(self._kernels)
        made.definitions = dict(self.definitions)
        return made

    def _adopt(self, inner: NodeConverter) -> None:
        """Continues with the names and definitions of a region."""
        self._dims, self._names, self._left = inner._dims, inner._names, inner._left
        self.sizes, self._kernels = inner.sizes, inner._kernels
        self.definitions = inner.definitions
        self.errors += inner.errors

    def branches(self, node: OnnxNode, graphs: Sequence[GraphProto]) -> list[Side | Diagnostic]:
        before = len(self.errors)
        sides: list[Side | Diagnostic] = []
        for graph in graphs:
            start = len(self.errors)
            try:
                side: Side | None = self.region(node, graph, ())
            except RefusedInput:
                side = None
            if errors := self.errors[start:]:
                if not has_no_meaning(errors):
                    raise RefusedInput
                sides.append(errors[0].diagnostics[0])
            elif side is None:  # it needs what was refused before
                raise RefusedInput
            else:
                sides.append(side)
        if all(isinstance(each, Diagnostic) for each in sides):
            raise RefusedInput
        del self.errors[before:]
        return sides

    def absorb(self, region: Region) -> None:
        self._regions[-1].update(region)

    @property
    def measured_here(self) -> Region:
        """The sizes that are measured in the part that is being read."""
        return self._regions[-1]

    def measured(self, value: Expr, hint: str) -> Scalar:
        for region in self._regions:
            if value in region:
                return region[value]
        self._regions[-1][value] = dim = self.new_dim(hint)
        return dim

    def new_dim(self, hint: str) -> ScalarVar:
        name = identifier(hint, self._dims, is_inner(hint))
        self._dims.add(name)
        dim = dim_var(name)
        self.sizes.append(dim)
        return dim

    def bind_dim(self, dim: ScalarVar, value: Expr) -> None:
        self._regions[-1][value] = dim

    def decided(self, condition: Expr) -> bool | None:
        if not self.measures:
            return None
        if self.branch_points is None:
            self.branch_points = BranchPoints(self._answers, self._max_branch_points)
        if (before := self.branch_points.answer(condition)) is not None:
            return before
        if (given := self.branch_points.add(condition, len(self._regions[-1]))) is None:
            return None
        self._dims |= given.dims
        self._names = max(self._names, given.names)
        return given.answer

    @property
    def other_answer(self) -> BranchAnswer:
        """The answer that this reading did not take, with the names that it took."""
        return BranchAnswer(True, frozenset(self._dims), self._names)

    def joining(self, point: BranchPoint, other: NodeConverter) -> NodeConverter:
        """A reading up to a branch point, with the names that two took behind it."""
        converter = copy(self)
        converter.branch_points, converter.errors = None, []
        converter._dims, converter._names = self._dims | other._dims, max(self._names, other._names)
        before = dict(list(self.measured_here.items())[: point.measured])
        converter._regions = [*self._regions[:-1], before]
        converter._kernels = {**self._kernels, **other._kernels}
        converter.sizes = list(dict.fromkeys((*self.sizes, *other.sizes)))
        converter.definitions = {**self.definitions, **other.definitions}
        return converter

    def _inside(
        self, node: OnnxNode, nodes: Iterable[NodeProto], scope: Scope, opsets: Mapping[str, int]
    ) -> None:
        """Nodes that stand inside of another one."""
        if self._depth >= DEEPEST:
            message = "Functions and graphs are nested too deep, or a function calls itself."
            raise Malformed.of(
                "bad-model", message, Place(node=node.place), f"at most {DEEPEST} deep"
            )
        self._depth += 1
        try:
            self.nodes(nodes, scope, opsets, f"{node.place}/")
        finally:
            self._depth -= 1

    def fresh(self, hint: str) -> str:
        self._names += 1
        return f"{hint}.{self._names}"

    def kernel(self, of: Kernel, hint: str) -> Var:
        if of not in self._kernels:
            self._kernels[of] = name = Var(Name(self.fresh(hint)), kernel_type(of))
            self.definitions[name] = of
        return self._kernels[of]


def _outputs_of(node: OnnxNode, graph: GraphProto, inside: Scope) -> list[TensorValue]:
    """The outputs of a graph inside a node."""
    tensor_values: list[TensorValue] = []
    for output in graph.output:
        if output.name not in inside:
            node.malformed("A body's output is made by nothing.", "a value", output.name)
        if (value := inside[output.name]) is None:
            raise RefusedInput
        tensor_values.append(value)
    return tensor_values


def has_no_meaning(errors: Sequence[PlicaError]) -> bool:
    """Whether the errors show an invalid model: if nothing else differs, an attribute unknown to
    the operator belongs to a missing axis."""
    return any(isinstance(error, Malformed) or error.code == "bad-attribute" for error in errors)


class ModelReading(NamedTuple):
    """A model that was read one way."""

    converter: NodeConverter
    scope: Scope


JoinReadings: TypeAlias = Callable[
    [ModelReading, "Callable[[tuple[BranchAnswer, ...]], ModelReading]", Sequence[str]],
    ModelReading,
]
"""Joins the two readings of each branch point of a first one."""


def _declared(info: ValueInfoProto, value: TensorValue) -> TensorValue:
    """A body's argument, as an option if it declares one."""
    if not info.type.HasField("optional_type") or isinstance(value, GrowingValue):
        return value
    holds_list = info.type.optional_type.elem_type.HasField("sequence_type")
    return as_option(info.name, value, holds_list)


def _check_size(value: TensorValue, node: OnnxNode) -> None:
    """Refuses tensors beyond any memory, which a few bytes of a file can request."""
    of = type_of(value.expr)
    if not isinstance(of, TensorType):  # the parts of a sequence were checked where they were made
        return
    sizes = [size for dim in of.shape if (size := known(dim)) is not None]
    if spanned_bytes(sizes, of.dtype.bytes) > MAX_TENSOR_BYTES:
        said = too_large(str(of))
        raise UnsupportedError(replace(said, place=Place(node=node.place)))


def _folded(expr: Expr, node: OnnxNode) -> Expr:
    """A constant where the node has constant inputs only, and few elements."""
    if isinstance(expr, Const) or node.proto.op_type in KEPT:
        return expr
    for value in node.inputs:
        if value is not None and not isinstance(value.expr, Const):
            return expr
        if value is not None and (size_of(value.expr) or 0) > SMALL:
            return expr
    return settled(expr)


def _is_open(value: TensorValue | None) -> bool:
    """Whether a tensor has a size that is no number."""
    if value is None or isinstance(value, ListedValue):
        return False
    return static_shape(value.type) is None


def _in_numbers(value: TensorValue) -> TensorValue:
    """A constant where the value's integers follow from known sizes."""
    if isinstance(value, ListedValue) or not free_vars(value.expr):
        return value
    of = value.type.dtype
    if not (of.is_integer or of is bool_) or (array := terms_of(value.expr)) is None:
        return value
    low, high = of.bounds
    if not all(isinstance(term, int) and low <= term <= high for term in array.flat):
        return value
    return TensorValue(const(array.astype(of.numpy), of))


def initialisers(
    graph: GraphProto, folder: Path | None, whole: bool = False
) -> dict[str, TensorValue]:
    """The stored tensors of a graph by name; `whole` if it is that of the model, not a body.

    Tensors stored in their final form are looked up separately (`plica.pipeline.known_model`).
    """
    found: dict[str, TensorValue] = {}
    if graph.sparse_initializer:
        message = "The model stores sparse tensors."
        names = ", ".join(each.values.name for each in graph.sparse_initializer)
        place = Place(node=graph.name or "graph")
        raise UnsupportedError.of("unsupported", message, place, "dense tensors", names)
    for tensor in graph.initializer:
        if not tensor.name or tensor.name in found:
            message = "A stored tensor has no name of its own."
            place = Place(node=tensor.name or graph.name or "graph")
            raise Malformed.of("bad-model", message, place, "a new name", tensor.name)
        array = array_of(tensor, folder)
        listed = whole and len(tensor.raw_data) == array.nbytes
        found[tensor.name] = TensorValue(stored_const(array, listed))
    return found


def placed(error: PlicaError, node: OnnxNode) -> PlicaError:
    """An error at a node; what typing refuses is the model's fault where all sizes are numbers."""
    if not isinstance(error, IllTyped | EvaluationError):
        return error
    place = Place(node=node.place)
    kind = node.proto.op_type
    listed = [
        Diagnostic(each.code, f"{kind}: {each.message}", place, each.expected, each.found)
        for each in error.diagnostics
    ]
    plain = [each for each in node.inputs if each is not None and not isinstance(each, ListedValue)]
    types = [tensor_value.type for tensor_value in plain]
    numeric = all(static_shape(of) is not None for of in types)
    blamed = numeric and error.code in ("shape-conflict", "index-out-of-bounds", "wrong-arity")
    return (Malformed if blamed else UnsupportedError)(*listed)
