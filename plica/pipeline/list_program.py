"""Programs over lists and options: compiled over the arrays that stand for them.

>>> import numpy as np
>>> import plica
>>> from onnx import TensorProto, helper
>>> x = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["n"])
>>> y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
>>> node = helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)
>>> exe = plica.compile(helper.make_model(helper.make_graph([node], "g", [x], [y])))
>>> exe([np.ones(2, np.float32), np.zeros(1, np.float32)])
array([1., 1., 0.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plica.frontend.onnx.sequence_port import over_arrays
from plica.ir.graph.module import Module
from plica.runtime.executable import Executable
from plica.runtime.list_executable import ListExecutable, list_executable
from plica.runtime.ragged import from_data


def compile_lists(
    source: Any,  # Any: a module, or a model that was read from its file
    lists: tuple[object, object],
    compiled: Callable[[Any], Executable],
) -> ListExecutable:
    """The executable of a program over lists; `compiled` makes code for one over arrays."""
    takes, gives = map(from_data, lists)
    flat = over_arrays(source) if isinstance(source, Module) else source.over_arrays()
    return list_executable(compiled(flat), takes, gives)
