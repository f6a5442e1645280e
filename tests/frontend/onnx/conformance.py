"""The standard's own test cases, which the onnx package holds, run through import and interpreter.

A case has a verdict: `passed`, `specialised` (passed once inputs that hold shapes, axes or counts
were fixed), or `refused`.  A wrong result is no verdict: it fails at once.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase as Case
from onnx.backend.test.loader import load_model_tests

from plica.frontend.onnx import NeedsValue, from_onnx
from plica.ir.interpret import interpret
from plica.ir.module import Module
from plica.runtime.error import UnsupportedError

Array = np.ndarray[Any, Any]
Verdict = Literal["passed", "specialised", "refused"]

KINDS: Final = ("node", "simple", "pytorch-converted", "pytorch-operator")
PAGE: Final = Path(__file__).parent / "conformance.txt"
"""The verdict of every case that is not refused; the list may only grow."""

# What one rounding of a 16-bit float may change, twice over.
_COARSE: Final = {"bfloat16": 1 / 64, "float16": 1 / 512}


@cache
def cases() -> dict[str, Case]:
    """Every case that comes with data, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases are made with overflows on purpose
        found = [each for kind in KINDS for each in load_model_tests(kind=kind)]
    return {f"{each.kind}/{each.name}": each for each in found}


def recorded() -> dict[str, Verdict]:
    """The verdicts written down."""
    rows = (line.split() for line in PAGE.read_text().splitlines())
    return {name: verdict for verdict, name in rows}  # type: ignore[misc]  # the words are verdicts


def verdict_of(case: Case) -> Verdict:
    """What becomes of a case; an assertion fails where its result is wrong."""
    model, inputs, outputs = opened(case)
    stored = {each.name for each in model.graph.initializer}
    names = [each.name for each in model.graph.input if each.name not in stored]
    given = dict(zip(names, inputs, strict=False))
    try:
        module, fixed = specialised(model, given)
    except UnsupportedError:
        return "refused"
    params = module.main_function().params
    found = interpret(module, *[given[str(each.name)] for each in params])
    results = found if isinstance(found, tuple) else (found,)
    assert len(results) == len(outputs), "another number of outputs"
    for mine, other in zip(results, outputs, strict=True):
        _same(mine, np.asarray(other), case)
    return "specialised" if fixed else "passed"


def specialised(model: onnx.ModelProto, given: dict[str, Array]) -> tuple[Module, dict[str, Array]]:
    """The module, and the inputs that had to be fixed to values for it."""
    fixed: dict[str, Array] = {}
    while True:
        try:
            return from_onnx(model, fixed=fixed), fixed
        except NeedsValue as error:
            new = [name for name in error.inputs if name in given and name not in fixed]
            if not new:
                raise
            fixed |= {name: given[name] for name in new}


def _same(mine: Array, other: Array, case: Case) -> None:
    assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
    if mine.dtype.kind in "iub":
        assert np.array_equal(mine, other), case.name
        return
    loose = max(case.rtol, _COARSE.get(mine.dtype.name, 0.0))
    wide = mine.astype(np.float64), other.astype(np.float64)
    np.testing.assert_allclose(*wide, rtol=loose, atol=max(case.atol, 1e-6), err_msg=case.name)


def opened(case: Case) -> tuple[onnx.ModelProto, list[Any], list[Any]]:
    """The model of a case, with its inputs and outputs."""
    if case.model is not None:
        assert case.data_sets is not None
        inputs, outputs = case.data_sets[0]
        return case.model, [_array(each) for each in inputs], [_array(each) for each in outputs]
    assert case.model_dir is not None
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    ports = (*model.graph.input, *model.graph.output)
    if not all(each.type.HasField("tensor_type") for each in ports):
        return model, [], []  # sequences, which are refused before any data is looked at
    data = folder / "test_data_set_0"
    return model, _stored(data, "input"), _stored(data, "output")


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored(folder: Path, kind: str) -> list[Any]:
    found = []
    for at in range(len(list(folder.glob(f"{kind}_*.pb")))):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{kind}_{at}.pb").read_bytes())
        found.append(numpy_helper.to_array(tensor))
    return found
