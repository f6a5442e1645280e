"""Peers: systems that run ONNX models, Plica among them, behind one form.

>>> sorted(PEERS)
['onnxruntime', 'openvino', 'plica', 'torch']
>>> why_missing(Peer("nosuch_package", lambda path, arrays, how: list))
'The package nosuch_package is not installed.'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final

import numpy as np

from plica.runtime.port import Array

Run = Callable[[], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """The way a model is run; only Plica knows what a contract is, and needs to be told dims."""

    threads: int = 1
    contract: str | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    """The inputs whose values decide shapes: they are part of Plica's code."""
    packs: tuple[str, ...] = ()
    """Rule packs, by name or file, that Plica rewrites the model with."""


Prepare = Callable[[Path, Sequence[Array], PeerOptions], Run]


@dataclass(frozen=True, slots=True)
class Peer:
    """A system: its package, and how a model is made ready in it."""

    package: str
    prepare: Prepare

    @property
    def version(self) -> str:
        """The version that is installed."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return "unknown"


def why_missing(peer: Peer) -> str | None:
    """Why a peer cannot run here, None if it can."""
    if util.find_spec(peer.package) is None:
        return f"The package {peer.package} is not installed."
    return None


def _plica(path: Path, arrays: Sequence[Array], how: PeerOptions) -> Run:
    from plica.cli.named_pack import named_packs
    from plica.frontend.onnx.importer import from_opened
    from plica.frontend.onnx.model import input_names, open_model
    from plica.pipeline import compile

    opened = open_model(path)
    given = dict(zip(input_names(opened.model), arrays, strict=True))
    fixed = {name: given[name] for name in how.fixed}
    module = from_opened(opened, how.dims, fixed)
    packs = [pack for each in how.packs for pack in named_packs(each)]
    exe = compile(module, threads=how.threads, cache=False, packs=packs, contract=how.contract)
    rest = [array for name, array in given.items() if name not in fixed]

    def run() -> Sequence[Array]:
        found = exe(*rest)
        return found if isinstance(found, tuple) else (found,)

    return run


def _onnxruntime(path: Path, arrays: Sequence[Array], how: PeerOptions) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = how.threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    # Inputs and outputs are bound once, which is the fastest way to call it.
    bound = session.io_binding()
    for meta, array in zip(session.get_inputs(), arrays, strict=True):
        bound.bind_cpu_input(meta.name, array)
    for meta in session.get_outputs():
        bound.bind_output(meta.name, "cpu")

    def run() -> Sequence[Array]:
        session.run_with_iobinding(bound)
        return _Late(bound.copy_outputs_to_cpu)

    return run


def _openvino(path: Path, arrays: Sequence[Array], how: PeerOptions) -> Run:
    import openvino

    core = openvino.Core()
    wanted = {
        "INFERENCE_NUM_THREADS": how.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # on some machines it would compute with less
        "NUM_STREAMS": "1",
    }
    compiled = core.compile_model(core.read_model(path), "CPU", wanted)
    request = compiled.create_infer_request()
    for at, array in enumerate(arrays):
        request.set_input_tensor(at, openvino.Tensor(array, shared_memory=True))

    def run() -> Sequence[Array]:
        request.infer()
        return _Late(lambda: [tensor.data.copy() for tensor in request.output_tensors])

    return run


def _torch(path: Path, arrays: Sequence[Array], how: PeerOptions) -> Run:
    from plica.bench.eager import eager

    return eager(path, arrays, how.threads)


class _Late(Sequence[Any]):
    """Outputs that are copied when somebody looks at them: the copy is not part of a run."""

    def __init__(self, make: Callable[[], Sequence[Array]]) -> None:
        self._make = make

    def __getitem__(self, at: Any) -> Any:
        return self._make()[at]

    def __len__(self) -> int:
        return len(self._make())


# fmt: off
PEERS: Final[dict[str, Peer]] = {
    "plica":       Peer("plica",       _plica),
    "onnxruntime": Peer("onnxruntime", _onnxruntime),
    "openvino":    Peer("openvino",    _openvino),
    "torch":       Peer("torch",       _torch),
}
# fmt: on
"""The systems there are, by name."""


def difference(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """The greatest difference, relative to the greatest finite number that was expected.

    It is infinite where there is another number of outputs, or one has another shape, or where one
    side is nan or infinite and the other is not the same.

    >>> one, nan = np.array([1.0, 4.0]), np.array([1.0, np.nan])
    >>> difference([one], [one + 1]), difference([nan], [nan]), difference([one], [nan])
    (0.2, 0.0, inf)
    """
    if len(found) != len(expected):
        return math.inf
    return max([_apart(*each) for each in zip(found, expected, strict=True)], default=0.0)


def _apart(found: Array, expected: Array) -> float:
    if found.shape != expected.shape:
        return math.inf
    mine, theirs = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(theirs)
    if not np.array_equal(mine[~finite], theirs[~finite], equal_nan=True):
        return math.inf
    mine, theirs = mine[finite], theirs[finite]
    if not np.isfinite(mine).all():
        return math.inf
    most = float(np.abs(theirs).max(initial=0.0))
    apart = float(np.abs(mine - theirs).max(initial=0.0))
    return apart / most if most else apart
