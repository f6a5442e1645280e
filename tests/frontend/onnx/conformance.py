# ruff: noqa: E501  # rows of a table
"""The standard's own test cases, which the onnx package holds, run by the interpreter or compiled.

A case has a verdict: `passed`, `specialised` (passed once inputs that hold shapes, axes or counts
were fixed, compiled: by a compilation at the call), or `refused`.  A wrong result is no verdict: it fails at once.  A case is of one
category: the first in the table that fits it.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase as Case
from onnx.backend.test.loader import load_model_tests
from onnx.reference.ops import op_pool_common

import plica
from plica.core.diagnostic import EvaluationError
from plica.frontend.onnx import NeedsValue, from_onnx
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.runtime.error import UnsupportedError

Array = np.ndarray[Any, Any]
Verdict = Literal["passed", "specialised", "refused"]

KINDS: Final = ("node", "simple", "pytorch-converted", "pytorch-operator")
PAGE: Final = Path(__file__).parent / "conformance.txt"
"""The verdict and the category of every case; what is not refused may only become more."""

KEPT: Final = Path(__file__).parents[3] / ".pytest_cache"

_POOL: Final[Callable[..., Array]] = op_pool_common.pool

# What one rounding of a 16-bit float may change, twice over.
_COARSE: Final = {"bfloat16": 1 / 64, "float16": 1 / 512}


@cache
def cases() -> dict[str, Case]:
    """Every case that comes with data, by name.

    The package computes what is expected with loops in Python, for seconds; what it made once is
    kept beside pytest's own cache, and goes with it.  Texts for its pages are not cut out.
    """
    kept = KEPT / f"onnx-cases-{onnx.__version__}-numpy-{np.__version__}.pickle"
    if kept.exists():
        found: dict[str, Case] = pickle.loads(kept.read_bytes())  # written below
        return found
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # some cases are made with overflows on purpose
        patch.setattr("onnx.backend.test.case.base.process_snippet", lambda *of: of[:2])
        patch.setattr("onnx.reference.ops.op_pool_common.pool", _pool)
        every = [each for kind in KINDS for each in load_model_tests(kind=kind)]
    found = {f"{each.kind}/{each.name}": each for each in every}
    KEPT.mkdir(exist_ok=True)
    new = kept.with_suffix(f".{os.getpid()}")  # several processes may come here at once
    new.write_bytes(pickle.dumps(found))
    new.replace(kept)
    return found


def _pool(  # noqa: PLR0917  # as the package has them
    x: Array,
    shape: Any,
    kernel: list[int],
    strides: Any,
    out: Any,
    kind: str,
    *rest: Any,
    **named: Any,
) -> Array:
    """What the package computes window by window, at once where nothing is beside the data."""
    if rest or named.keys() - {"p"} or np.isnan(x).any():
        return _POOL(x, shape, kernel, strides, out, kind, *rest, **named)
    axes = tuple(range(2, x.ndim))
    steps: Any = (..., *[slice(None, None, each) for each in strides or [1] * len(axes)])
    steps += (slice(None),) * len(axes)
    windows: Any = np.lib.stride_tricks.sliding_window_view(x, kernel, axes)[steps]
    last = tuple(range(-len(axes), 0))
    if kind == "LPPOOL":
        p = named.get("p", 1)
        return np.asarray((np.abs(windows) ** p).sum(last) ** (1.0 / p))
    return np.asarray(windows.mean(last) if kind == "AVG" else windows.max(last))


@attrs.frozen
class Recorded:
    """What was written down of a case."""

    verdict: Verdict
    category: str


def recorded() -> dict[str, Recorded]:
    """What was written down, by the names of cases."""
    rows = (line.split() for line in PAGE.read_text().splitlines())
    # The words of the file are verdicts; the test of all cases holds it to that.
    return {name: Recorded(verdict, category) for verdict, category, name in rows}  # type: ignore[arg-type]


def write_down(verdicts: Mapping[str, Verdict]) -> None:
    """The file anew."""
    kept = [f"{word} {category_of(cases()[name])} {name}" for name, word in verdicts.items()]
    PAGE.write_text("\n".join(kept) + "\n")


# --- categories ----------------------------------------------------------------------------------

# Numbers of element types: what Plica has, and of those the floats of 16 bits.
_USUAL: Final = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16))
_HALF: Final = frozenset((10, 16))
_STRING: Final = 8
_RANDOM: Final = ("Random", "Bernoulli", "Multinomial")


@attrs.frozen
class Looks:
    """What a category is told by."""

    name: str
    elements: frozenset[int]
    tensors: bool
    operators: frozenset[str]
    domains: frozenset[str]


# fmt: off
CATEGORIES: Final[dict[str, tuple[str, Callable[[Looks], bool]]]] = {
    "twin":     ("an operator again, by the standard's definition", lambda c: "_expanded" in c.name),
    "sequence": ("sequences and optionals",                         lambda c: not c.tensors),
    "string":   ("strings",                                         lambda c: _STRING in c.elements),
    "narrow":   ("8-bit floats, numbers of less than 8 bits",       lambda c: not c.elements <= _USUAL),
    "training": ("training",                                        lambda c: "training" in c.name or any("training" in d for d in c.domains)),
    "ml":       ("the domain ai.onnx.ml",                           lambda c: "ai.onnx.ml" in c.domains),
    "random":   ("random numbers",                                  lambda c: any(o.startswith(_RANDOM) for o in c.operators)),
    "half":     ("16-bit floats",                                   lambda c: bool(c.elements & _HALF)),
    "plain":    ("plain tensors: f32, f64, integers, bool",         lambda c: True),
}
"""The words of the file, what they mean, and how they are told; the first that fits."""
# fmt: on


def category_of(case: Case) -> str:
    """The category of a case."""
    model, _, _ = opened(case)
    ports = [each.type for each in (*model.graph.input, *model.graph.output)]
    looks = Looks(
        case.name,
        frozenset(of.tensor_type.elem_type for of in ports if of.HasField("tensor_type")),
        all(of.HasField("tensor_type") for of in ports),
        frozenset(each.op_type for each in model.graph.node),
        frozenset(each.domain for each in model.graph.node),
    )
    return next(word for word, (_, fits) in CATEGORIES.items() if fits(looks))


def table(rows: Iterable[Recorded]) -> list[tuple[str, int, int, int, int]]:
    """For each category its meaning, cases, right ones, those specialised, and refused ones."""
    count = Counter((each.category, each.verdict) for each in rows)
    found = []
    for word, (meaning, _) in reversed(CATEGORIES.items()):
        plain, special, refused = (count[word, v] for v in ("passed", "specialised", "refused"))
        found.append((meaning, plain + special + refused, plain + special, special, refused))
    sums = [sum(column) for column in list(zip(*found, strict=True))[1:]]
    return [*found, ("all", sums[0], sums[1], sums[2], sums[3])]


# --- verdicts ------------------------------------------------------------------------------------


def verdict_of(case: Case) -> Verdict:
    """What becomes of a case in the interpreter; an assertion fails where its result is wrong."""
    model, given, outputs = asked(case)
    try:
        module, fixed = specialised(model, given)
    except UnsupportedError:
        return "refused"
    rest: dict[str, Any] = {name: given[name] for name in given if name not in fixed}
    try:
        found = interpret(module, **rest)
    except EvaluationError as error:
        if error.code != "input-value":
            raise
        return "refused"  # for a value, which is seen when the model runs
    _compare(found, outputs, case)
    return "specialised" if fixed else "passed"


def compiled_verdict_of(case: Case, target: str = "cpu") -> Verdict:
    """What becomes of a case that is compiled, through the public API alone."""
    model, given, outputs = asked(case)
    threads = 1 if target == "cpu" else None
    try:
        exe = plica.compile(model, target=target, threads=threads, cache=False)
        found = exe(**given)
    except (UnsupportedError, EvaluationError) as error:
        if target != "cpu" or (isinstance(error, EvaluationError) and error.code != "input-value"):
            raise
        return "refused"
    _compare(found, outputs, case)
    return "specialised" if exe.stats.at_call else "passed"


def asked(case: Case) -> tuple[onnx.ModelProto, dict[str, Array], list[Any]]:
    """The model of a case, its inputs by name, and its outputs."""
    model, inputs, outputs = opened(case)
    stored = {each.name for each in model.graph.initializer}
    names = [each.name for each in model.graph.input if each.name not in stored]
    return model, dict(zip(names, inputs, strict=False)), outputs


def _compare(found: Any, outputs: list[Any], case: Case) -> None:
    results = found if isinstance(found, tuple) else (found,)
    assert len(results) == len(outputs), "another number of outputs"
    for mine, other in zip(results, outputs, strict=True):
        if other is None or isinstance(other, list):
            assert type(mine) is type(other)
            assert len(mine or ()) == len(other or ())
            for each, wanted in zip(mine or (), other or (), strict=True):
                _same(each, wanted, case)
        else:
            _same(mine, np.asarray(other), case)


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
