"""The public function of quantisation: `plica.quantise(model, samples)`.

>>> import numpy as np
>>> from plica.frontend.zoo import mlp
>>> net = mlp((16, 8, 4))
>>> samples = np.random.default_rng(0).standard_normal((4, 1, 16), np.float32)
>>> found = quantised(net, samples)
>>> [row.form for row in found.report.rows if row.op == "nn.dense"]
['i8', 'i8']
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from attrs import frozen

from plica.core import CompilerBug
from plica.ir.graph import Expr, Module
from plica.ir.loop.scalar import Scalar
from plica.ir.text.script import Scripted, as_module
from plica.ir.type import infer, known
from plica.pipeline import compile
from plica.rewrite.history import History
from plica.rewrite.quantise.annotate import LAYERS, Annotated, annotate, prepare, tapped
from plica.rewrite.quantise.calibrate import Method, QuantisationPoint, Seen, Spec, chosen
from plica.rewrite.quantise.integer import float_layers, is_marked, said, to_integers
from plica.rewrite.quantise.report import QuantisationReport
from plica.rewrite.quantise.simulate import simulate
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError, wrong_argument
from plica.runtime.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto

Array: TypeAlias = np.ndarray[Any, Any]
Sample: TypeAlias = Array | Sequence[Array] | Mapping[str, Array]


@frozen(eq=False)
class Quantised:
    """An integer module, its derivation, and the decisions made."""

    module: Module
    simulated: Module  # the same in floats, every point of it rounded to its steps
    history: History  # from the simulated module to that of integers
    points: tuple[QuantisationPoint, ...]
    report: QuantisationReport


def quantise(
    mod: Module | Scripted | str | PathLike[str] | ModelProto,
    samples: Iterable[Sample] | Mapping[str, Array] | None = None,
    *,
    per_channel: bool | None = None,
    symmetric: bool = True,
    method: Method = "max",
    percentile: float = 99.99,
    power_of_two: bool = False,
    keep: Collection[str] = (),
) -> Module:
    """The model with its layers in integers of 8 bits, calibrated on samples.

    Without samples the model must already be quantised, and only the option `power_of_two` applies:
    ties then round up, as with a shift, so that an accelerator can compute it. A sample is an
    array, a tuple of arrays, or arrays by input name; an array with one more axis than the input is
    a batch of samples. Activations are signed bytes around zero or, if not `symmetric`, unsigned
    ones with a zero point; weights are signed, with one scale per output if `per_channel`. The
    `method` selects the clipping range: all values (`max`), a `percentile`, or the one of least
    error (`mse`, `kl`). With `power_of_two` all scales are powers of two, and one per weight by
    default, so that rescaling is a shift. What is in `keep` stays in floats: operators by name, and
    the `first` and `last` layer.
    """
    made = quantised(
        mod,
        samples,
        per_channel=per_channel,
        symmetric=symmetric,
        method=method,
        percentile=percentile,
        power_of_two=power_of_two,
        keep=keep,
    )
    if isinstance(samples, Sized) and not len(samples):
        raise _no_samples()
    return made.module


def quantised(
    mod: Module | Scripted | str | PathLike[str] | ModelProto,
    samples: Iterable[Sample] | Mapping[str, Array] | None = None,
    *,
    per_channel: bool | None = None,
    symmetric: bool = True,
    method: Method = "max",
    percentile: float = 99.99,
    power_of_two: bool = False,
    keep: Collection[str] = (),
) -> Quantised:
    """As `quantise`, with all that is known on the way; its report says what stayed in floats."""
    apart = not power_of_two if per_channel is None else per_channel
    spec = Spec(symmetric, power_of_two, apart, method, percentile)
    if samples is None:
        return _as_said(_read(mod), ties_up=power_of_two)
    if not isinstance(samples, Iterable):
        message = "The model is calibrated on samples."
        raise wrong_argument(message, "arrays, or arrays by the names of inputs", samples)
    whole = _read(mod)
    every = list(_samples(whole, samples))
    annotated = annotate(prepare(whole), (keep,) if isinstance(keep, str) else keep)
    _check_floats(annotated)
    _check_samples(whole, every)
    points = {
        point: chosen(seen, spec)
        for point, seen in zip(annotated.points, _observed(annotated, every, spec), strict=True)
    }
    simulated = simulate(annotated, points, spec)
    history = to_integers(simulated)
    report = QuantisationReport(annotated.rows)
    _check(history.module, report)
    return Quantised(history.module, simulated, history, tuple(points.values()), report)


def _as_said(mod: Module, ties_up: bool) -> Quantised:
    """A model that says itself where numbers are quantised, in integers."""
    history = to_integers(mod, ties_up)
    if not is_marked(history):
        raise _no_samples()
    before = infer(mod)
    return Quantised(history.module, before, history, (), QuantisationReport(said(history.module)))


def _check_floats(of: Annotated) -> None:
    """Refuse a model all of whose layers are of other floats: nothing would be done to it."""
    others = [row for row in of.rows if row.form not in ("i8", "f32")]
    if not others or any(row.op in LAYERS and row.form in ("i8", "f32") for row in of.rows):
        return
    message = f"The layers of this model are of {others[0].form}, and so none would be quantised."
    hint = "Make its inputs and weights f32 first; what is quantised is smaller than either."
    found = f"{others[0].op}: {others[0].type}"
    raise UnsupportedError(Diagnostic("unsupported", message, None, "f32", found, hint))


def _no_samples() -> InputError:
    message = "Quantisation needs samples of what the model will be given."
    hint = "A few dozen are enough: plica.quantise(model, [x1, x2, …]), or --samples FILE.npz."
    return InputError(Diagnostic("input-missing", message, None, "a sample", "none", hint))


def _check(done: Module, report: QuantisationReport) -> None:
    """Every layer that was to be integers is."""
    wanted = sum(row.op in LAYERS and row.form == "f32" for row in report.rows)
    found = float_layers(done)
    if found != wanted:
        raise CompilerBug(f"{found} layers are in floats after quantisation, and not {wanted}.")


def _read(mod: Module | Scripted | str | PathLike[str] | ModelProto) -> Module:
    if isinstance(mod, Module | Scripted):
        return as_module(mod)
    from plica.frontend.onnx import from_onnx

    return from_onnx(mod)


def _observed(of: Annotated, every: Sequence[Sample], spec: Spec) -> list[Seen]:
    """The statistics at each point when the model runs on the samples."""
    if not of.points:
        return []
    if not every:
        raise _no_samples()
    exe = compile(tapped(of))
    names = [_name(number, point) for number, point in enumerate(of.points)]
    seen = [Seen() for _ in of.points]
    for sample in every:
        values = _run(exe, sample)
        seen = [
            each.extended(value, name)
            for each, value, name in zip(seen, values, names, strict=True)
        ]
    if spec.method == "max":
        return seen
    for sample in every:
        values = _run(exe, sample)
        seen = [each.counted(value) for each, value in zip(seen, values, strict=True)]
    return seen


def _run(exe: Executable, sample: Sample) -> tuple[Array, ...]:
    if isinstance(sample, Mapping):
        found = exe(**sample)
    else:
        found = exe(*([sample] if isinstance(sample, np.ndarray) else sample))
    return found if isinstance(found, tuple) else (found,)


def _name(number: int, of: Expr) -> str:
    """A point as one can find it: its number, and the operator that makes it."""
    return f"point {number} ({getattr(of, 'op', None) or getattr(of, 'name', 'a value')})"


def _samples(module: Module, given: Iterable[Sample] | Mapping[str, Array]) -> Iterator[Sample]:
    """The samples one by one; an array with an axis more than the input is as many."""
    params = module.main_function().params
    ranks = [len(getattr(param.type, "shape", ())) for param in params]
    several: Iterable[Sample] = [given] if isinstance(given, np.ndarray | Mapping) else given
    for each in several:
        if isinstance(each, np.ndarray) and len(ranks) == 1 and each.ndim == ranks[0] + 1:
            yield from each
        elif isinstance(each, Mapping):
            yield from _named(each, {str(p.name): r for p, r in zip(params, ranks, strict=True)})
        else:
            yield each


def _check_samples(module: Module, samples: Sequence[Sample]) -> None:
    """Refuses samples of other shapes than the inputs have, before anything is compiled."""
    params = module.main_function().params
    types = {str(param.name): param.type for param in params}
    for sample in samples:
        pairs = (
            sample.items()
            if isinstance(sample, Mapping)
            else zip(types, [sample] if isinstance(sample, np.ndarray) else sample, strict=False)
        )
        for name, value in pairs:
            shape, found = getattr(types.get(name), "shape", None), np.shape(value)
            if shape is None or _fits(found, shape):
                continue  # names that no input has are refused by the call
            message = f"A sample of the input {name!r} has another shape than the input."
            expected = f"{types[name]}, or several of these along one axis more, in front"
            hint = f"One sample is a whole input: give x[None] for one of {len(shape)} axes."
            place = Place(node=name)
            raise InputError(Diagnostic("input-shape", message, place, expected, str(found), hint))


def _fits(found: Sequence[int], shape: Sequence[Scalar]) -> bool:
    return len(found) == len(shape) and all(
        known(size) in (None, length) for length, size in zip(found, shape, strict=True)
    )


def _named(arrays: Mapping[str, Array], ranks: Mapping[str, int]) -> Iterator[Sample]:
    """Arrays by name: one sample, or as many as their first axes are long."""
    known = {name: np.asarray(array) for name, array in arrays.items()}
    more = [array for name, array in known.items() if array.ndim == ranks.get(name, -1) + 1]
    if not more or len(more) != len(known) or len({len(array) for array in more}) != 1:
        yield known
        return
    for number in range(len(more[0])):
        yield {name: array[number] for name, array in known.items()}
