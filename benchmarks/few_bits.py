"""Products by weights of few bits beside those by floats, and beside onnxruntime's `MatMulNBits`.

    python benchmarks/few_bits.py [--rows 1] [--depth 4096] [--columns 40000] [--group 32]
                                  [--bits 4] [--threads 1] [--rounds 9] [--floats]

A step of decoding multiplies one row by each weight, so that what it takes to read that decides.
With `--floats` the same weight is multiplied as f32, in turns with the bits, in one process; the
floats should be four times the last cache level at least, if memory is to be what is measured.
Processor time, the least of all rounds and the median.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import plica

Array = np.ndarray[Any, Any]


def model_of(of: argparse.Namespace, weights: dict[str, Array]) -> onnx.ModelProto:
    """One node: MatMulNBits of packed weights, MatMul of floats."""
    how: dict[str, Any] = {"domain": ""}
    if "s" in weights:
        how = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.group,
               "domain": "com.microsoft"}  # fmt: skip
    node = helper.make_node(
        "MatMulNBits" if "s" in weights else "MatMul", ["x", *weights], ["y"], **how
    )
    graph = helper.make_graph(
        [node], "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (of.rows, of.depth))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (of.rows, of.columns))],
        [numpy_helper.from_array(each, name) for name, each in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def sessions(model: onnx.ModelProto, threads: int) -> Callable[[Array], Array] | None:
    """The same model in onnxruntime, None where that is missing or takes no model so large."""
    try:
        import onnxruntime  # a peer, if there is one
    except ImportError:
        return None
    if model.ByteSize() >= 1 << 31:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda x: session.run(None, {"x": x})[0]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in (("rows", 1), ("depth", 4096), ("columns", 40000), ("group", 32),
                        ("bits", 4), ("threads", 1), ("rounds", 9)):  # fmt: skip
        ask.add_argument(f"--{name}", type=int, default=value)
    ask.add_argument("--floats", action="store_true", help="the same weight as f32, too")
    of = ask.parse_args()
    draw, blocks = np.random.default_rng(0), -(-of.depth // of.group)
    shape = (of.columns, blocks, of.group * of.bits // 8)
    packed = {
        "w": draw.integers(0, 256, shape).astype(np.uint8),
        "s": (draw.random(of.columns * blocks) * 0.01).astype(np.float32),
    }
    x = draw.standard_normal((of.rows, of.depth)).astype(np.float32)
    model = model_of(of, packed)
    ways: dict[str, Callable[[Array], Any]] = {
        "few bits": plica.compile(model, threads=of.threads, cache=False)
    }
    if (peer := sessions(model, of.threads)) is not None:
        ways["onnxruntime"] = peer
    if of.floats:
        whole = {"w": draw.standard_normal((of.depth, of.columns), np.float32)}
        ways["floats"] = plica.compile(model_of(of, whole), threads=of.threads, cache=False)
    wanted = ways.get("onnxruntime", ways["few bits"])(x)
    found = ways["few bits"](x)
    print(f"off by {np.abs(found - wanted).max() / np.abs(wanted).max():.1e} of the greatest")
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(of.rounds):
        for name, run in ways.items():
            start = time.process_time()
            run(x)
            times[name].append(time.process_time() - start)
    own = times["few bits"]
    for name, each in times.items():
        least, middle = min(each) / min(own), np.median(each) / np.median(own)
        print(f"{name:12} {1e3 * min(each):9.3f} ms   {least:5.2f}x (median {middle:5.2f}x)")


if __name__ == "__main__":
    main()
