"""Drawn models: ONNX models of a few operators under construction, with sizes drawn by a seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Random(np.random.Generator):
    """Random numbers, and the part of each size that is kept: less, to make a case smaller."""

    def __init__(self, seed: tuple[int, int], kept: float = 1.0) -> None:
        super().__init__(np.random.PCG64(seed))
        self.kept = kept


def size(random: Random, low: int, high: int) -> int:
    """A size between two, small ones as likely as large ones."""
    return max(low, round(_about(random, low, high) * random.kept))


def _about(random: Random, low: int, high: int) -> float:
    return math.exp(random.uniform(math.log(low), math.log(high)))


def sizes(random: Random, rank: int, least: int, most: int) -> tuple[int, ...]:
    """The sizes of a tensor with about a given number of elements."""
    total = math.log(max(1.0, _about(random, least, most) * random.kept))
    cuts = np.sort(random.uniform(0, total, rank - 1))
    parts = np.diff(np.concatenate([[0], cuts, [total]]))
    return tuple(max(1, round(math.exp(part))) for part in random.permutation(parts))


class Model:
    """A model under construction: nodes, weights and inputs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[tuple[str, np.ndarray[Any, Any]]] = []
        self.opsets = {"": 17}
        self.axes: dict[str, str] = {}
        self.opened: frozenset[str] = frozenset()

    def input(self, *shape: int, positive: bool = False, axes: str = "") -> str:
        """An input of random numbers."""
        values = self.random.standard_normal(shape).astype(np.float32)
        return self.given(np.abs(values) + 0.1 if positive else values, axes)

    def given(self, values: np.ndarray[Any, Any], axes: str = "") -> str:
        """An input of certain numbers, with a letter for each of its first axes that may be open:
        those of one letter are of one size; a dot is for one that may not."""
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, values))
        self.axes[name] = axes
        return name

    def open_some(self) -> None:
        """Leave some sizes that may be open to the call, one in three times."""
        letters = sorted({*"".join(self.axes.values())} - {"."})
        if letters and self.random.random() < 1 / 3:
            count = int(self.random.integers(1, len(letters), endpoint=True))
            self.opened = frozenset(self.random.permutation(letters)[:count].tolist())

    def shape(self, name: str, sizes: tuple[int, ...]) -> list[int | str]:
        """The sizes of an input, by their letters where they are open."""
        axes = self.axes[name].ljust(len(sizes), ".")[: len(sizes)]
        return [
            axis if axis in self.opened else each for axis, each in zip(axes, sizes, strict=True)
        ]

    def weight(self, values: Any) -> str:  # anything that numpy makes an array of
        """A constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def normal(self, *shape: int) -> str:
        """A constant of random numbers."""
        return self.weight((self.random.standard_normal(shape) * 0.1).astype(np.float32))

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """One operator; the name of its first output."""
        names = [f"n{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def several(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """One operator; the names of all its outputs."""
        first = self.node(kind, *inputs, outputs=outputs, **attributes)
        return [f"{first[:-2]}_{at}" for at in range(outputs)]

    def made(self, result: str) -> onnx.ModelProto:
        """The model whose result is a value."""
        given = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(values.dtype), self.shape(name, values.shape)
            )
            for name, values in self.inputs
        ]
        out = helper.make_empty_tensor_value_info(result)
        graph = helper.make_graph(self.nodes, "drawn", given, [out], self.weights)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(made)
