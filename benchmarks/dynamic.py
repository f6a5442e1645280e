"""Programs whose shape is known when they run, beside torch and onnxruntime in one run.

    python benchmarks/dynamic.py [--rounds N] [--json FILE]

Tree-LSTM: random trees of 64-dimensional leaves, against torch's operators called by a recursive
Python function; onnxruntime has no trees.  LSTM of variable length: a fold over a list, against
torch's operators, `torch.nn.LSTM`, and onnxruntime's LSTM with an open length.  Open sizes: a
transformer block with an open batch and an open length, against the same block compiled for each
size.  Sizes that come with the data (a detector, masks of ids, open widths and lengths, a growing
cache, a ragged batch): the first call, then one with other values and sizes, which compiles
nothing.  Calls: what one operator costs beside its own work.  All take turns, on one core; the
least time counts, the median stands beside it.
"""

# mypy: ignore-errors
# ruff: noqa: F821  (constructors are names of the script)
from __future__ import annotations

import argparse
import json
import runpy
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

import numpy as np
from rich.console import Console
from rich.table import Table

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var, const
from plica.ir.graph.module import module
from plica.ir.prelude import list_value
from plica.ir.prelude.library import List, foldl
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from plica.op import nn
from plica.script import Tensor, f32

ROOT = Path(__file__).parents[1]
WIDTH = 64
random = np.random.default_rng(5)


def weights(*shape: int) -> np.ndarray:
    return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


# --- a list ---------------------------------------------------------------------------------------

INPUT, STATE = weights(64, 256), weights(64, 256)


@plica.function
def lstm(words: List[Tensor[(64,), f32]]) -> Tensor[(64,), f32]:
    def step(
        state: tuple[Tensor[(64,), f32], Tensor[(64,), f32]], word: Tensor[(64,), f32]
    ) -> tuple[Tensor[(64,), f32], Tensor[(64,), f32]]:
        h, c = state
        a = op.matmul(word, INPUT) + op.matmul(h, STATE)
        i = op.sigmoid(op.slice(a, starts=(0,), stops=(64,)))
        f = op.sigmoid(op.slice(a, starts=(64,), stops=(128,)))
        g = op.tanh(op.slice(a, starts=(128,), stops=(192,)))
        o = op.sigmoid(op.slice(a, starts=(192,), stops=(256,)))
        new = f * c + i * g
        return o * op.tanh(new), new

    zero = op.zeros(shape=(64,), dtype=f32)
    return foldl(step, (zero, zero), words)[0]


# --- calls ----------------------------------------------------------------------------------------


@plica.function
def counted(x: Tensor[(4,), f32], left: i64) -> Tensor[(4,), f32]:
    if left <= 0:
        return x
    else:
        return counted(x * 0.5 + 1.0, left - 1)


# --- open sizes -----------------------------------------------------------------------------------


def block(batch, length, width=256, heads=4, inner=1024):
    """A transformer block; sizes are numbers, or names."""
    drawn = np.random.default_rng(1)

    def weight(*shape: int):
        return const((drawn.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    sizes = [dim_var(each) if isinstance(each, str) else each for each in (batch, length)]
    x = Var(Name("x"), tensor((batch, length, width), "f32"))
    gain, shift = weight(width), weight(width)

    def split(of):
        whole = op.reshape(of, (*sizes, heads, width // heads))
        return op.transpose(whole, (0, 2, 1, 3))

    q, k, v = [split(nn.dense(x, weight(width, width))) for _ in range(3)]
    scores = nn.softmax(op.matmul(q, op.transpose(k, (0, 1, 3, 2))) * 0.125, axis=-1)
    mixed = op.reshape(op.transpose(op.matmul(scores, v), (0, 2, 1, 3)), (*sizes, width))
    y = nn.layer_norm(x + nn.dense(mixed, weight(width, width)), gain, shift)
    z = nn.dense(nn.gelu(nn.dense(y, weight(inner, width))), weight(width, inner))
    body = nn.layer_norm(y + z, gain, shift)
    main = Var(Name("main"), None)
    dims = tuple([each for each in sizes if not isinstance(each, int)])
    return module({main: Function(dims, (), (x,), None, body)}, main)


# --- timing ---------------------------------------------------------------------------------------


def timed(calls, rounds: int, clock=perf_counter):
    """The least and the median seconds of each, which take turns."""
    found = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            call()
            found[name].append(clock() - start)
    return {name: (min(each), median(each)) for name, each in found.items()}


def trees(rounds: int) -> list[dict]:
    found = runpy.run_path(str(ROOT / "examples" / "tree_lstm.py"))
    exe = plica.compile(found["network"], threads=1)
    rows = []
    for leaves in (16, 64, 256):
        given = found["inputs"](leaves, seed=leaves)
        calls = {"plica": lambda given=given: exe(*given)}
        if find_spec("torch"):
            calls["torch eager"] = torch_tree(found, leaves)
            far = np.abs(exe(*given) - calls["torch eager"]().numpy()).max()
            assert far < 1e-4, far
        rows.append({"work": f"Tree-LSTM, {leaves} leaves", **timed(calls, rounds)})
    return rows


def torch_tree(found, leaves: int):
    """The same network on the same tree, operator by operator."""
    import torch

    embed, gates = torch.from_numpy(found["EMBED"]), torch.from_numpy(found["GATES"])
    drawn = np.random.default_rng(leaves)
    vectors = drawn.standard_normal((leaves, WIDTH)).astype(np.float32)
    parts = list(torch.from_numpy(vectors))
    while len(parts) > 1:
        at = int(drawn.integers(len(parts) - 1))
        parts[at : at + 2] = [(parts[at], parts[at + 1])]

    def encode(tree):
        if not isinstance(tree, tuple):
            return torch.tanh(tree @ embed), tree
        h, c = encode(tree[0])
        k, d = encode(tree[1])
        i, f, g, o, u = torch.split(torch.cat((h, k)) @ gates, WIDTH)
        memory = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * c + torch.sigmoid(g) * d
        return torch.sigmoid(o) * torch.tanh(memory), memory

    def run():
        with torch.no_grad():
            return encode(parts[0])[0]

    return run


def lists(rounds: int) -> list[dict]:
    exe = plica.compile(lstm, threads=1)
    rows = []
    for length in (5, 50, 500):
        words = random.standard_normal((length, WIDTH)).astype(np.float32)
        given = list_value(list(words))
        calls = {"plica": lambda given=given: exe(given)}
        if find_spec("torch"):
            calls |= torch_list(words)
        if find_spec("onnxruntime"):
            calls["onnxruntime"] = runtime_list(words)
        wanted = exe(given)
        for name, call in calls.items():
            far = np.abs(np.asarray(call()) - wanted).max()
            assert far < 1e-4, (name, far)
        rows.append({"work": f"LSTM, {length} steps", **timed(calls, rounds)})
    return rows


def torch_list(words):
    import torch

    read, keep = torch.from_numpy(INPUT), torch.from_numpy(STATE)
    given = torch.from_numpy(words)
    whole = torch.nn.LSTM(WIDTH, WIDTH, bias=False)
    with torch.no_grad():
        whole.weight_ih_l0.copy_(read.T)
        whole.weight_hh_l0.copy_(keep.T)

    def eager():
        with torch.no_grad():
            h = c = torch.zeros(WIDTH)
            for word in given:
                i, f, g, o = torch.split(word @ read + h @ keep, WIDTH)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
            return h

    def fused():
        with torch.no_grad():
            return whole(given)[1][0][0]

    return {"torch eager": eager, "torch LSTM": fused}


def runtime_list(words):
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    def gates(of):  # i, o, f, c in ONNX; i, f, g, o here
        i, f, g, o = np.split(of.T, 4)
        return np.concatenate((i, o, f, g))[None]

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, WIDTH])
    h = helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, 1, WIDTH])
    node = helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=WIDTH)
    stored = [numpy_helper.from_array(np.ascontiguousarray(gates(INPUT)), "w"),
              numpy_helper.from_array(np.ascontiguousarray(gates(STATE)), "r")]  # fmt: skip
    graph = helper.make_graph([node], "lstm", [x], [h], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {"x": words[:, None]}
    return lambda: session.run(None, given)[0][0, 0]


def sizes(rounds: int) -> list[dict]:
    whole = plica.compile(block("batch", "length"), threads=1)
    rows = []
    for batch, length in ((1, 16), (1, 100), (4, 64), (2, 128), (8, 32)):
        one = plica.compile(block(batch, length), threads=1)
        x = random.standard_normal((batch, length, 256)).astype(np.float32)
        far = np.abs(whole(x) - one(x)).max()
        assert far < 1e-4, far
        calls = {"plica": lambda x=x: whole(x), "one size": lambda x=x, one=one: one(x)}
        rows.append({"work": f"block, batch {batch}, length {length}",
                     **timed(calls, rounds, thread_time)})  # fmt: skip
    return rows


# --- sizes that come with the data ----------------------------------------------------------------


def unknown() -> dict[str, tuple]:
    """Models in which sizes come with a call, as ONNX graphs; and what they are called with."""
    from onnx import TensorProto, helper, numpy_helper

    def model(nodes, inputs, output, kind="f", **stored):
        kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
        taken = [helper.make_tensor_value_info(name, kinds[kind], shape)
                 for name, kind, shape in inputs]  # fmt: skip
        given = [helper.make_tensor_value_info(output, kinds[kind], None)]
        held = [numpy_helper.from_array(np.asarray(each), name) for name, each in stored.items()]
        made = [helper.make_node(kind, read, [out], **options)
                for kind, read, out, options in nodes]  # fmt: skip
        graph = helper.make_graph(made, "g", taken, given, held)
        sets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=sets, ir_version=8)

    def some(*shape):
        return random.standard_normal(shape).astype(np.float32)

    def boxes(count):
        corners = random.random((1, count, 2)).astype(np.float32)
        return np.concatenate([corners, corners + 0.2], -1), random.random(
            (1, 1, count), np.float32
        )

    step = {"hidden_size": 64}
    gates = {name: weights(1, 256, 64) / np.float32(8) for name in "wr"}
    best = {"most": np.int64(50), "over": np.float32(0.4), "least": np.float32(0.3)}
    detector = model(
        [("NonMaxSuppression", ["b", "s", "most", "over", "least"], "y", {})],
        [("b", "f", [1, "n", 4]), ("s", "f", [1, 1, "n"])], "y", "i", **best,
    )  # fmt: skip
    text = model(
        [("NonZero", ["ids"], "at", {}), ("Transpose", ["at"], "turned", {}),
         ("GatherND", ["ids", "turned"], "words", {}), ("Gather", ["table", "words"], "e", {}),
         ("MatMul", ["e", "m"], "y", {})],
        [("ids", "i", ["n"])], "y", table=weights(1000, 64), m=weights(64, 64),
    )  # fmt: skip
    ocr = model(
        [("Conv", ["x", "k"], "c", {"pads": [0, 1, 0, 1]}), ("Relu", ["c"], "a", {}),
         ("Squeeze", ["a", "two"], "s", {}), ("Transpose", ["s"], "t", {"perm": [2, 0, 1]}),
         ("LSTM", ["t", "w", "r"], "y", step)],
        [("x", "f", [1, 1, 16, "w"])], "y", k=weights(64, 1, 16, 3), two=np.array([2]), **gates,
    )  # fmt: skip
    cache = model(
        [("Concat", ["old", "x"], "k", {"axis": 0}), ("Transpose", ["k"], "t", {}),
         ("MatMul", ["x", "t"], "s", {}), ("Softmax", ["s"], "p", {}),
         ("MatMul", ["p", "k"], "y", {})],
        [("old", "f", ["t", 64]), ("x", "f", [1, 64])], "y",
    )  # fmt: skip
    rnn = model([("LSTM", ["x", "w", "r"], "y", step)], [("x", "f", ["n", 1, 64])], "y", **gates)
    ragged = model(
        [("Shape", ["x"], "s", {}), ("Gather", ["s", "one"], "n", {}),
         ("Range", ["zero", "n", "one"], "at", {}), ("Unsqueeze", ["long", "axis"], "l", {}),
         ("Less", ["at", "l"], "in", {}), ("Cast", ["in"], "m", {"to": TensorProto.FLOAT}),
         ("Mul", ["x", "m"], "y", {})],
        [("x", "f", ["b", "n"]), ("long", "i", ["b"])], "y",
        one=np.int64(1), zero=np.int64(0), axis=np.array([1]),
    )  # fmt: skip
    ids = [np.array(each) for each in ([5, 0, 7, 9], [1, 2, 0, 0, 0, 3, 4, 8])]
    return {
        "detector with NMS": (detector, [boxes(40), boxes(90)]),
        "text, mask of ids": (text, [(each,) for each in ids]),
        "recogniser, open width": (ocr, [(some(1, 1, 16, 33),), (some(1, 1, 16, 90),)]),
        "decoder, growing cache": (cache, [(some(t, 64), some(1, 64)) for t in (7, 8)]),
        "RNN, open length": (rnn, [(some(5, 1, 64),), (some(40, 1, 64),)]),
        "ragged batch": (
            ragged,
            [(some(2, 9), np.array([3, 9])), (some(3, 14), np.array([14, 0, 5]))],
        ),
    }


def second_calls(rounds: int) -> list[dict]:
    """Seconds of the first call, and of calls with other values and sizes: none compiles."""
    from onnxruntime import InferenceSession

    rows = []
    for name, (model, calls) in unknown().items():
        start = perf_counter()
        exe = plica.compile(model, threads=1)
        row = {"model": name, "compiling": perf_counter() - start, "later": []}
        session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        before = exe.stats.compilations
        for number, args in enumerate(calls):
            start = perf_counter()
            found = exe(*args)
            took = perf_counter() - start
            named = dict(zip([each.name for each in session.get_inputs()], args, strict=True))
            np.testing.assert_allclose(found, session.run(None, named)[0], rtol=1e-4, atol=1e-4)
            if not number:
                row["first"] = took
            else:
                row["later"] = [took, timed({"": lambda a=args, e=exe: e(*a)}, rounds)[""][0]]
        row["compilations"] = exe.stats.compilations - before + exe.stats.at_call
        assert row["compilations"] == 0, row
        rows.append(row)
    return rows


def overhead(rounds: int) -> dict:
    """Seconds for one step of a loop: a comparison, a subtraction, a kernel on four numbers."""
    exe = plica.compile(counted, threads=1)
    x = np.zeros(4, np.float32)
    few, many = 1_000, 101_000
    found = timed({"few": lambda: exe(x, few), "many": lambda: exe(x, many)}, max(5, rounds // 4))
    return {"each": (found["many"][0] - found["few"][0]) / (many - few)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    console = Console()
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)
    rows = [*trees(given.rounds), *lists(given.rounds), *sizes(given.rounds)]
    table = Table("Work", "Plica, µs (median)", "Peer", "Its µs (median)", "Ratio")
    for row in rows:
        least, middle = row["plica"]
        for name, each in row.items():
            if name not in ("work", "plica"):
                table.add_row(
                    row["work"], f"{least * 1e6:.0f} ({middle * 1e6:.0f})", name,
                    f"{each[0] * 1e6:.0f} ({each[1] * 1e6:.0f})", f"{each[0] / least:.2f}x",
                )  # fmt: skip
    console.print(table)
    later = second_calls(given.rounds) if find_spec("onnxruntime") else []
    calls = Table("Sizes come with the call", "Compiling, s", "First call, µs", "Other sizes, µs",
                  "Then, µs", "Compilations at calls")  # fmt: skip
    for row in later:
        shown = [f"{each * 1e6:.0f}" for each in (row["first"], *row["later"])]
        calls.add_row(row["model"], f"{row['compiling']:.2f}", *shown, str(row["compilations"]))
    console.print(calls)
    each = overhead(given.rounds)
    console.print(f"A step of a loop with three operators: {each['each'] * 1e9:.0f} ns")
    if given.json:
        given.json.write_text(json.dumps({"rows": rows, "calls": later, **each}, indent=1))


if __name__ == "__main__":
    main()
