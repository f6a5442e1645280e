"""A small network that the tests of meshes lay out."""

from __future__ import annotations

from typing import Any

import numpy as np

from plica import op
from plica.core import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import Module, main_module
from plica.ir.type import infer, tensor
from plica.mesh.mesh import Mesh
from plica.op import nn

MESH = Mesh.parse("data=2,model=4")
SHAPES = {"x": (8, 16), "w1": (16, 32), "b1": (32,), "w2": (32, 16), "b2": (16,)}


def var(name: str, *shape: int, dtype: str = "f32") -> Var:
    return Var(Name(name), tensor(shape, dtype))


def module_of(*params: Var, gives: Expr) -> Module:
    return infer(main_module(Function((), (), params, None, gives)))


def perceptron(last: bool = True) -> Module:
    """Two dense layers with a residual; a softmax at the end."""
    x, w1, b1, w2, b2 = (var(name, *shape) for name, shape in SHAPES.items())
    y = op.matmul(nn.relu(op.matmul(x, w1) + b1), w2) + b2
    return module_of(x, w1, b1, w2, b2, gives=nn.softmax(y + x, axis=-1) if last else y + x)


def inputs(seed: int = 0) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in SHAPES.values()]
