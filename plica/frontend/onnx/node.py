"""ONNX nodes: one operator of a model, as the functions that convert it see it.

`OnnxNode` reads inputs as terms, types or known numbers, and refuses what does not fit: missing or
malformed inputs, inputs that nobody read (`finish`), values that only a run could tell. `Reading`
is the importer behind it. It converts graphs inside of nodes (branches and loop bodies), and knows
the measured sizes: dims whose value is computed when the model runs, such as the number of non-zero
elements. A `Region` is the measured sizes of one part of the model, with the expressions that
compute them.

>>> from onnx import helper
>>> from plica.ir.graph.expression import const
>>> node = OnnxNode(helper.make_node("Relu", ["x"], ["y"], name="r"), 17,
...     (TensorValue(const([1.0])),))
>>> node.place, str(node.type(0).dtype)
('r', 'f64')
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

from plica.core.binding import free_vars
from plica.frontend.measured import Region
from plica.frontend.onnx.arithmetic import settled, terms_of
from plica.frontend.onnx.attribute import NodeAttributes
from plica.frontend.onnx.storage import Array
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Call, Const, Expr, Var
from plica.ir.loop.scalar import Scalar, ScalarVar, index
from plica.ir.loop.statement import Kernel
from plica.ir.op.relation import Shape
from plica.ir.type import TensorType, is_size, known, normal_dim, type_of
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.port import EXPECTED, REASON_OF, REASONS, inner_name

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


Side: TypeAlias = "tuple[list[TensorValue], Region]"
"""The outputs of a graph inside a node, and the sizes measured inside of it."""


class Reading(Protocol):
    """The importer as nodes use it: converts graphs inside of them, and keeps measured sizes."""

    @property
    def measures(self) -> bool:
        """Whether sizes may be computed when the model runs; otherwise they must be constant."""

    def body(
        self, node: OnnxNode, graph: GraphProto, given: Sequence[TensorValue]
    ) -> list[TensorValue]:
        """The outputs of a graph inside a node; its measured sizes join those of this part."""

    def region(self, node: OnnxNode, graph: GraphProto, given: Sequence[TensorValue]) -> Side:
        """The outputs of a graph inside a node, with its measured sizes kept separate.

        The caller binds the sizes around the outputs, or passes them to `absorb`.  A graph with
        branch points is read for each answer, and the results are joined.
        """

    def branches(self, node: OnnxNode, graphs: Sequence[GraphProto]) -> list[Side | Diagnostic]:
        """What `region` gives for each branch, or why the branch has no meaning: one has one."""

    def absorb(self, region: Region) -> None:
        """Adds the measured sizes of a region to the part of the model that is being read."""

    def measured(self, value: Expr, hint: str) -> Scalar:
        """A dim whose value an integer scalar computes at run time; one dim for each value."""

    def new_dim(self, hint: str) -> ScalarVar:
        """A fresh dim; `bind_dim` or the caller defines its value."""

    def bind_dim(self, dim: ScalarVar, value: Expr) -> None:
        """Defines the value of a dim from `new_dim`."""

    def decided(self, condition: Expr) -> bool | None:
        """Specialises the reading on a condition: the answer that this reading assumes.

        The model is read again with the other answer. None if there would be too many readings.
        """

    def fresh(self, hint: str) -> str:
        """A name that no variable has."""

    def kernel(self, of: Kernel, hint: str) -> Var:
        """Adds a kernel to the module; the variable that names it, one for equal kernels."""


class NeedsValue(UnsupportedError):
    """A shape, an axis or a count depends on values that are only known when the model runs."""

    def __init__(self, first: Diagnostic, *rest: Diagnostic, inputs: tuple[str, ...] = ()) -> None:
        super().__init__(first, *rest)
        self.inputs = inputs


SAY_DIMS: Final = "Say what the symbolic dims are: from_onnx(model, dims={...})."
SAY_VALUES: Final = (
    "Give values for these inputs, or sizes for symbolic dims: from_onnx(…, fixed=…)."
)


class OnnxNode(NodeAttributes):
    """An operator with its inputs, attributes and version."""

    def __init__(  # noqa: PLR0917  # what an operator of a model is made of
        self,
        proto: NodeProto,
        opset: int,
        inputs: Sequence[TensorValue | None],
        folder: Path | None = None,
        reading: Reading | None = None,
        scope: Any = None,  # Any: opaque to nodes; the importer resolves outer names with it
        prefix: str = "",
    ) -> None:
        super().__init__(proto, folder, prefix)
        self.opset, self.inputs = opset, tuple(inputs)
        self.scope, self._reading = scope, reading
        self._read: set[int] = set()

    # --- inputs ----------------------------------------------------------------------------------

    def value(self, at: int) -> TensorValue | None:
        """An input, or None if absent."""
        self._read.add(at)
        return self.inputs[at] if at < len(self.inputs) else None

    def need(self, at: int) -> TensorValue:
        """An input that must be there."""
        if (value := self.value(at)) is None:
            self.malformed(f"Input {at} of {self.proto.op_type} is missing.", "a tensor", "nothing")
        return value

    def x(self, at: int = 0) -> Expr:
        """An input that must be there, as a term."""
        return self.need(at).expr

    def maybe(self, at: int) -> Expr | None:
        """An input as a term, or None if absent."""
        value = self.value(at)
        return None if value is None else value.expr

    def all(self) -> tuple[Expr, ...]:
        """Every input; none may be left out."""
        if not self.inputs:
            self.malformed(f"{self.proto.op_type} has no inputs.", "one or more", "none")
        return tuple(self.x(at) for at in range(len(self.inputs)))

    def type(self, at: int = 0) -> TensorType:
        """The type of an input that must be there."""
        return self.need(at).type

    def rank(self, at: int = 0) -> int:
        """The number of axes of an input."""
        return len(self.type(at).shape)

    def shape(self, at: int = 0) -> Shape:
        """The shape of an input."""
        return self.type(at).shape

    def sizes(self, at: int = 0) -> tuple[int, ...]:
        """The shape of an input whose sizes must be constant."""
        sizes = tuple(known(size) for size in self.shape(at))
        if None in sizes:
            self.unsupported(
                f"{self.proto.op_type} needs an input whose sizes are numbers.",
                "known sizes",
                str(self.type(at)),
                SAY_DIMS,
            )
        return tuple(size for size in sizes if size is not None)

    def numbers(self, at: int) -> Array:
        """The elements of an input, which must be constant."""
        value = self.need(at)
        if (numbers := value.numbers()) is None:
            self._unknown(at, value)
        return numbers

    def scalar(self, at: int) -> Any:  # Any: a number of the input's own kind
        """The number of an input, which must be constant and have one element."""
        numbers = self.numbers(at)
        if numbers.size != 1:
            message = f"Input {at} of {self.proto.op_type} must be one number."
            self.malformed(message, "one element", f"shape {numbers.shape}")
        return numbers.reshape(-1)[0].item()

    def _unknown(self, at: int, value: TensorValue) -> NoReturn:
        self.undecided(f"Input {at} of {self.proto.op_type}", value)

    def undecided(self, what: str, value: TensorValue) -> NoReturn:
        """Refuses a value that must be constant, but depends on inputs."""
        inputs = tuple(sorted({str(v.name) for v in free_vars(value.expr) if isinstance(v, Var)}))
        names, type_text = ", ".join(map(repr, inputs)), str(type_of(value.expr))
        known_late = f"{what} is only known when the model runs"
        message = f"{known_late}; it depends on {names}." if inputs else f"{known_late}."
        place = Place(node=self.place)
        raise NeedsValue(
            Diagnostic("unknown-value", message, place, "a constant", type_text, SAY_VALUES),
            inputs=inputs,
        )

    # --- the reading ------------------------------------------------------------------------------

    @property
    def reading(self) -> Reading:
        """The importer that reads the model."""
        assert self._reading is not None
        return self._reading

    def run(self, graph: GraphProto, *given: TensorValue) -> list[TensorValue]:
        """The outputs of a graph inside the node, on given inputs."""
        return self.reading.body(self, graph, given)

    def region(self, graph: GraphProto, *given: TensorValue) -> Side:
        """The outputs of a graph inside the node, with its measured sizes kept separate."""
        return self.reading.region(self, graph, given)

    def measured(self, value: Expr, hint: object = "", whose: str | None = None) -> Scalar:
        """A size as a term: the known one, or else a dim whose value `value` computes at run time.

        The dim is named after `whose`, by default the first output of the node. A number as `hint`
        becomes a suffix; a word marks a size of no tensor of the model, but of an intermediate.
        """
        if isinstance(number := settled(value), Const):
            size = int(number.numpy())
            if (why := REASON_OF.get(size)) is not None:
                self.malformed(f"A size has no value: {REASONS[why]}.", EXPECTED[why], "others")
            if size < 0:
                self.malformed("A size is below 0.", "0 or more", str(size))
            return index(size)
        if (array := terms_of(value)) is not None:
            term = normal_dim(index(0) + array.item())
            if is_size(term):
                return term
        if not self.reading.measures or not free_vars(value):
            self.undecided(f"A size of {self.proto.op_type}", TensorValue(value))
        owner = whose or next((name for name in self.proto.output if name), self.proto.op_type)
        if isinstance(hint, str) and hint:  # not a size of an output, but of an intermediate
            return self.reading.measured(value, inner_name(hint, owner))
        return self.reading.measured(value, owner if hint == "" else f"{owner}_{hint}")

    def decided(self, condition: Expr) -> bool | None:
        """The value of a condition, constant or assumed by this reading; see `Reading.decided`."""
        if isinstance(constant := settled(condition), Const):
            return bool(constant.numpy())
        return None if self._reading is None else self._reading.decided(condition)

    def call(self, of: Kernel, hint: str, *args: Expr) -> Expr:
        """The result of a loop program for some arguments."""
        return Call(self.reading.kernel(of, hint), args)

    # --- the end of the conversion ----------------------------------------------------------------

    def finish(self, outputs: int) -> None:
        """Refuses unread inputs and attributes, and missing outputs."""
        self.all_asked()
        for at, value in enumerate(self.inputs):
            if value is not None and at not in self._read:
                self.unsupported(f"Input {at} of {self.proto.op_type} is not supported.")
        if wanted := [name for name in self.proto.output[outputs:] if name]:
            message = f"{self.proto.op_type} has no output for {wanted[0]!r}."
            self.unsupported(message, f"{outputs} outputs", str(len(self.proto.output)))
