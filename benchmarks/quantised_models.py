"""Networks of few bits beside the same in f32 and beside onnxruntime: bytes, f16 and bf16.

    python benchmarks/quantised_models.py [resnet50 mobilenet_v2 text ...] [--kinds qdq,dynamic]
                                          [--target cpu:x86-64-v3] [--threads 1] [--rounds 9]
                                          [--folder MADE] [--rows 8]

Networks are those of `benchmarks/models.py`, or ONNX files.  Kinds are made here from the f32 file:

    qdq       onnxruntime's `quantize_static`: u8 between layers, i8 weights, a scale a channel
    dynamic   onnxruntime's `quantize_dynamic`: scales of what goes in are computed at the call
    f16 bf16  every float as one of 16 bits, but for what goes in and comes out

One thread where none are named, processor time, all in turns in one process; least times, and
medians.  `of f32`
is the time of our f32 over that of the kind, `of ort` the time of onnxruntime for the same file.
A target without VNNI runs beside an onnxruntime that has it: `of f32` is what tells there.  With
`--rows` the launches that take longest follow, each with its share of the call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import plica
from benchmarks.models import write

Array = np.ndarray[Any, Any]
NETWORKS: Final = ("resnet50", "mobilenet_v2", "vit", "text")
KINDS: Final = ("qdq", "dynamic", "f16", "bf16")
SAMPLES: Final = 3
BFLOAT_OPSET: Final = 22
BURST: Final = 0.15
"""Seconds of calls of one way before the next has its turn."""


class Drawn(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    """A few inputs like those that are timed."""

    def __init__(self, like: dict[str, Array]) -> None:
        draw = np.random.default_rng(1)

        def drawn(of: Array) -> Array:
            return draw.permutation(of.ravel()).reshape(of.shape)

        samples = [{name: drawn(x) for name, x in like.items()} for _ in range(SAMPLES - 1)]
        self.left = iter([like, *samples])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.left, None)


def in_sixteen_bits(model: onnx.ModelProto, into: int) -> onnx.ModelProto:
    """The model with every float one of 16 bits; casts stand at its inputs and outputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph

    def narrowed(of: TensorProto) -> None:
        if of.data_type == TensorProto.FLOAT:
            whole = numpy_helper.to_array(of).astype(helper.tensor_dtype_to_np_dtype(into))
            of.CopyFrom(numpy_helper.from_array(whole, of.name))

    for each in graph.initializer:
        narrowed(each)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                narrowed(attribute.t)
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = into
    constants = {each.name for each in graph.initializer}
    renamed: dict[str, str] = {}
    before: list[onnx.NodeProto] = []
    after: list[onnx.NodeProto] = []
    for ends, back in ((graph.input, False), (graph.output, True)):
        for end in ends:
            if end.type.tensor_type.elem_type != TensorProto.FLOAT or end.name in constants:
                continue
            inside = renamed[end.name] = f"{end.name}_narrow"
            pair = (inside, end.name) if back else (end.name, inside)
            cast = helper.make_node(
                "Cast", [pair[0]], [pair[1]], to=TensorProto.FLOAT if back else into
            )
            (after if back else before).append(cast)
    for node in graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                names[at] = renamed.get(name, name)
    whole = [*before, *graph.node, *after]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(whole)
    return made


def made(kind: str, plain: Path, inputs: dict[str, Array]) -> Path:
    """The file of a kind, beside the one of f32."""
    path = plain.with_name(f"{plain.stem}_{kind}.onnx")
    if path.exists():
        return path
    match kind:
        case "qdq":
            quantize_static(
                plain,
                path,
                Drawn(inputs),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                weight_type=QuantType.QInt8,
                activation_type=QuantType.QUInt8,
            )
        case "dynamic":
            quantize_dynamic(plain, path, weight_type=QuantType.QInt8)
        case "f16" | "bf16":
            into = TensorProto.FLOAT16 if kind == "f16" else TensorProto.BFLOAT16
            model = onnx.load(plain)
            if kind == "bf16":  # convolutions of these are in no version before
                model = onnx.version_converter.convert_version(model, BFLOAT_OPSET)
            onnx.save(in_sixteen_bits(model, into), path)
        case _:
            raise SystemExit(f"kinds are {', '.join(KINDS)}; found {kind}")
    return path


Call = Callable[[], Sequence[Array]]


def peer(path: Path, inputs: dict[str, Array], threads: int) -> Call | str:
    """onnxruntime, or why it does not take part."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    try:
        session = onnxruntime.InferenceSession(str(path), options)
    except (onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
            onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph) as error:  # fmt: skip
        return str(error).splitlines()[0][:100]
    return lambda: session.run(None, inputs)


def off(ours: object, theirs: Sequence[Array]) -> float:
    """The greatest difference, of the greatest number."""
    found = ours if isinstance(ours, tuple) else (ours,)
    each = [
        float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
        for a, b in zip(found, theirs, strict=True)
    ]
    return max(each)


def timed(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """The processor times of all calls, in ms."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, call in ways.items():
            call()
            end = time.process_time() + BURST
            while time.process_time() < end:
                start = time.process_time()
                call()
                times[name].append(1e3 * (time.process_time() - start))
    return times


def compare(plain: Path, values: Sequence[Array], given: argparse.Namespace) -> None:
    """One network, in all kinds: a line for each."""
    model = onnx.load(plain)
    constants = {each.name for each in model.graph.initializer}
    names = [each.name for each in model.graph.input if each.name not in constants]
    inputs = dict(zip(names, values, strict=True))
    how: dict[str, Any] = {"threads": given.threads, "cache": False}
    if given.target is not None:
        how["target"] = given.target
    files = {"f32": plain} | {kind: made(kind, plain, inputs) for kind in given.kinds}
    ours = {kind: plica.compile(str(path), **how) for kind, path in files.items()}
    ways: dict[str, Callable[[], Any]] = {}
    notes: dict[str, str] = {}
    for kind, path in files.items():
        exe = ours[kind]
        ways[kind] = lambda exe=exe: exe(**inputs)  # type: ignore[misc]  # a default binds the turn
        beside = peer(path, inputs, given.threads)
        if isinstance(beside, str):
            notes[kind] = beside
            continue
        ways[f"ort {kind}"] = beside
        notes[kind] = f"off {off(exe(**inputs), beside()):.0e}"
    times = timed(ways, given.rounds)
    for kind in files:
        own, theirs = times[kind], times.get(f"ort {kind}", [float("nan")])
        of_f32, of_ort = (
            [how(each) / how(own) for how in (min, np.median)] for each in (times["f32"], theirs)
        )
        print(
            f"{plain.stem:<24} {kind:<8} {min(own):9.3f} ms"
            f"  of f32 {of_f32[0]:5.2f}x (median {of_f32[1]:5.2f}x)"
            f"  of ort {of_ort[0]:5.2f}x (median {of_ort[1]:5.2f}x)  {notes[kind]}",
            flush=True,
        )
        if given.rows and kind != "f32":
            profile = ours[kind].profile(**inputs)
            print("\n".join(str(profile).splitlines()[: given.rows + 2]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=list(NETWORKS), metavar="NETWORK|FILE")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--target", help="such as cpu:x86-64-v3 or cpu:skylake-avx512")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=0, help="launches to show of each kind")
    parser.add_argument("--folder", type=Path, help="where files are kept for the next run")
    given = parser.parse_args()
    with TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.names:
            if name.endswith(".onnx"):
                path = folder / Path(name).name
                path.write_bytes(Path(name).read_bytes())
                shapes = onnxruntime.InferenceSession(str(path)).get_inputs()
                draw = np.random.default_rng(0)
                values = [draw.standard_normal(each.shape, np.float32) for each in shapes]
            else:
                path = folder / f"{name}.onnx"
                values = write(name, 1, path)
            compare(path, values, given)


if __name__ == "__main__":
    main()
