"""Cases: a random model with inputs, grown node by node together with the peer."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from plica.frontend.onnx.fuzz.kind import KINDS, KnownTensor, NodeKind, RowChoice
from plica.frontend.onnx.fuzz.late import BY_VALUE, LATE, other_value
from plica.frontend.onnx.fuzz.peer import OLDEST, Array, answers, model_of, newest, one_node

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MOST_ELEMENTS: Final = 2_000
MOST_AXES: Final = 5
LATE_CASES: Final = 0.45  # how many of the models without an open batch learn sizes when they run
OTHERS: Final = 3
"""This many more sets of inputs, with other values and sizes, such a model is given."""

LARGEST: Final = 1e4
"""The bound of numbers, far from an overflow that depends on the order of additions."""

POLES: Final = {"Div": 1, "Reciprocal": 0, "Log": 0, "Sqrt": 0, "Pow": 0}
"""Inputs that must stay away from zero, near which results are arbitrarily large."""

SLIDING: Final = frozenset({"MaxPool", "AveragePool", "LpPool", "Conv"})
"""Operators of which a window slides, and must fit into its axes."""

SHAPES: Final = (
    (1, 2, 5, 6),
    (2, 4, 4, 4),
    (1, 3, 7),
    (2, 6, 5),
    (3, 4),
    (2, 5),
    (6,),
    (1, 8, 3, 3),
)


@attrs.frozen(eq=False)
class ModelCase:
    """A model in parts, and sets of inputs; those after the first have another batch."""

    nodes: tuple[NodeProto, ...]
    stored: Mapping[str, Array]
    outputs: tuple[str, ...]
    opset: int
    given: tuple[Mapping[str, Array], ...]
    batch: str | None = None
    late: bool = False
    """Whether integers that say sizes are inputs, and differ from one set to the next."""

    @property
    def model(self) -> ModelProto:
        """The model as ONNX has it."""
        return model_of(
            self.nodes, self.given[0], self.outputs, self.stored, self.opset, self.batch
        )

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of its nodes."""
        return tuple(node.op_type for node in self.nodes)


def random_case(seed: int, most: int = 10) -> ModelCase:
    """A case of up to a given number of nodes; the same seed gives the same case."""
    random = Random(seed)
    opset = random.randrange(OLDEST, newest() + 1)
    shape = random.choice(SHAPES)
    inputs = {"x": _values(random, shape)}
    batch = "n" if random.random() < 0.3 else None
    apart = Random(f"{seed} late")  # so that all other cases stay what they are
    late = batch is None and apart.random() < LATE_CASES
    if random.random() < 0.4:
        inner = [1 if random.random() < 0.3 else size for size in shape]
        inputs["z"] = _values(random, (shape[0] if batch else inner[0], *inner[1:]))
    growth = _Growth(random, opset, inputs, late)
    for _ in range(random.randrange(1, most + 1)):
        growth.grow()
    if not growth.nodes:
        growth.add(KINDS["piecewise"], growth.known[0])
    outputs = growth.outputs()
    given = [inputs]
    if batch is not None:
        for size in (1, 3):
            given.append(
                {name: _values(random, (size, *array.shape[1:])) for name, array in inputs.items()}
            )
    if late:
        given = [{**inputs, **growth.said}]
        choice = RowChoice(apart, opset, ())
        for _ in range(OTHERS):
            values = {name: _values(apart, array.shape) for name, array in inputs.items()}
            said = {name: other_value(choice, array) for name, array in growth.said.items()}
            given.append({**values, **said})
    nodes = tuple(growth.nodes)
    case = ModelCase(nodes, growth.stored, outputs, opset, tuple(given), batch, late)
    return _with_inputs_that_work(case)


def _with_inputs_that_work(case: ModelCase) -> ModelCase:
    """Without the sizes at which the model has no meaning: it may hold the batch in a constant."""
    if case.batch is None and not case.late:
        return case
    # Every value is looked at: what overflows on the way is no fair question either.
    named = tuple(name for node in case.nodes for name in node.output)
    model = attrs.evolve(case, outputs=named).model
    kept = []
    for each in case.given:
        arrays = answers(model, each)
        if arrays is not None and all(map(_tame, arrays)):
            values = {**each, **case.stored, **dict(zip(named, arrays, strict=True))}
            if all(_is_fair(node, values) for node in case.nodes):
                kept.append(each)
    if case.late:
        return attrs.evolve(case, given=tuple(kept) or case.given[:1])
    if len(kept) < 2 or kept[0] is not case.given[0]:
        return attrs.evolve(case, batch=None, given=case.given[:1])
    return attrs.evolve(case, given=tuple(kept))


def _values(random: Random, shape: tuple[int, ...]) -> Array:
    """Eighths, or numbers of any kind."""
    generator = np.random.default_rng(random.randrange(1 << 32))
    if random.random() < 0.5:
        return np.asarray(generator.integers(-16, 17, shape) / 8, np.float32)
    return generator.normal(size=shape).astype(np.float32)


class _Growth:
    """A model that grows."""

    def __init__(
        self, random: Random, opset: int, inputs: Mapping[str, Array], late: bool = False
    ) -> None:
        self.random, self.opset = random, opset
        self.kinds = {**KINDS, **LATE} if late else KINDS
        self.late, self.said = late, dict[str, Array]()  # inputs that say sizes
        self.known = [KnownTensor(name, array, True) for name, array in inputs.items()]
        self.nodes: list[NodeProto] = []
        self.stored: dict[str, Array] = {}
        self._used: set[str] = set()

    def grow(self) -> None:
        """Adds a node, if one of a few candidates is accepted."""
        for _ in range(6):
            # The latest value is taken most often: models are deep rather than wide.
            back = min(int(self.random.expovariate(0.7)), len(self.known) - 1)
            x = self.known[-1 - back]
            fitting = [kind for kind in self.kinds.values() if _fits(kind, x)]
            weights = [node_kind.weight for node_kind in fitting]
            if fitting and self.add(self.random.choices(fitting, weights)[0], x):
                return

    def add(self, kind: NodeKind, x: KnownTensor) -> bool:
        """Whether a node of this kind was added."""
        from onnx import helper

        drawn = kind.row(RowChoice(self.random, self.opset, tuple(self.known)), x)
        number = len(self.nodes)
        names: list[str] = []
        constants: dict[str, Array] = {}
        for at, each in enumerate(drawn.inputs):
            name = each.name if isinstance(each, KnownTensor) else f"c{number}_{at}"
            names.append(name)
            if not isinstance(each, KnownTensor):
                constants[name] = np.asarray(each)
        outputs = [f"v{number}" if at == 0 else f"v{number}_{at}" for at in range(drawn.outputs)]
        node = helper.make_node(drawn.kind, names, outputs, name=f"n{number}", **drawn.attrs)
        tensors = [each for each in drawn.inputs if isinstance(each, KnownTensor)]
        tensors += drawn.reads
        arrays = {tensor.name: tensor.array for tensor in tensors} | constants
        if not _is_fair(node, arrays) or (kind.jumps and not all(each.exact for each in tensors)):
            return False
        found = one_node(node, arrays, self.opset)
        if found is None or not all(map(_tame, found)):
            return False
        exact = kind.keeps and all(tensor.exact for tensor in tensors)
        self.nodes.append(node)
        said = {}
        if self.late and drawn.kind in BY_VALUE and self.random.random() < 0.8:
            said = {name: array for name, array in constants.items() if array.dtype in (bool, int)}
        self.said |= said
        self.stored |= {name: array for name, array in constants.items() if name not in said}
        self._used.update(names, [read.name for read in drawn.reads])
        self.known += [KnownTensor(name, np.asarray(array), exact)
                       for name, array in zip(outputs, found, strict=True)]  # fmt: skip
        return True

    def outputs(self) -> tuple[str, ...]:
        """What nothing uses, and now and then something that is used."""
        made = [tensor.name for tensor in self.known if tensor.name.startswith("v")]
        return tuple(name for name in made if name not in self._used or self.random.random() < 0.1)


def _fits(kind: NodeKind, x: KnownTensor) -> bool:
    return x.array.dtype.kind in kind.types and x.array.ndim in kind.ranks and x.array.size > 0


def _is_fair(node: NodeProto, values: Mapping[str, Array]) -> bool:
    """Whether a node avoids poles, and reads that the peer makes out of bounds."""
    if node.op_type.endswith("Loss"):  # a class for each place
        scores, classes = (np.shape(values[name]) for name in node.input[:2])
        return (scores[0], *scores[2:]) == classes
    if node.op_type == "GroupNormalization":  # a scale for each channel
        return np.shape(values[node.input[0]])[1:2] == np.shape(values[node.input[1]])
    if node.op_type == "RoiAlign" and values[node.input[2]].max() >= len(values[node.input[0]]):
        return False
    if node.op_type == "Compress":  # conditions may be too few, and not too many
        x, flags = (values[name] for name in node.input)
        axis = next((each.i for each in node.attribute if each.name == "axis"), None)
        return len(flags) <= (x.size if axis is None else x.shape[axis])
    if node.op_type in SLIDING:
        return _window_fits(node, np.shape(values[node.input[0]])[2:])
    if (at := POLES.get(node.op_type)) is None:
        return True
    given = np.abs(np.asarray(values[node.input[at]], np.float64))
    return bool(given.min(initial=1.0) > 0.01)


def _window_fits(node: NodeProto, sizes: tuple[int, ...]) -> bool:
    """Whether a window fits; otherwise the standard has no output, onnxruntime, which rounds
    towards zero, sometimes has one, and others refuse it.
    """
    from onnx.helper import get_attribute_value

    said: dict[str, Any] = {each.name: get_attribute_value(each) for each in node.attribute}
    if said.get("auto_pad", b"NOTSET").startswith(b"SAME"):
        return True
    rank = len(sizes)
    ones, pads = [1] * rank, said.get("pads", [0] * 2 * rank)
    reaches = [
        (k - 1) * d + 1
        for k, d in zip(said["kernel_shape"], said.get("dilations", ones), strict=True)
    ]
    hangs = [step - 1 if said.get("ceil_mode") else 0 for step in said.get("strides", ones)]
    axes = zip(sizes, pads[:rank], pads[rank:], hangs, reaches, strict=True)
    return all(size + low + high + over >= reach for size, low, high, over, reach in axes)


def _tame(array: Any) -> bool:
    """Whether an array is small, in size and in its numbers."""
    of = np.asarray(array)
    if of.size > MOST_ELEMENTS or of.ndim > MOST_AXES or not of.size:
        return False
    if of.dtype.kind == "b":
        return True
    return bool(np.isfinite(of).all() and np.abs(of.astype(np.float64)).max() < LARGEST)
