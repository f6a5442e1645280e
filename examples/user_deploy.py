"""A deployer's hour: an ONNX file with an open batch becomes an artefact, then a C program.

What one would type is run in a shell: verify, run, and the C compiler.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import plica


def network(path: Path) -> None:
    """A small convolutional network, as an exporter would write it: any number of images."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    shapes = {
        "w1": (8, 3, 3, 3),
        "b1": (8,),
        "w2": (16, 8, 3, 3),
        "b2": (16,),
        "w3": (10, 16),
        "b3": (10,),
    }
    weights = [
        numpy_helper.from_array(random.standard_normal(shape).astype("f4") / 4, name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], name="first", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"], name="first_relu"),
        node("MaxPool", ["r1"], ["p1"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2", "b2"], ["c2"], name="second", pads=[1, 1, 1, 1]),
        node("Relu", ["c2"], ["r2"], name="second_relu"),
        node("GlobalAveragePool", ["r2"], ["g"], name="mean"),
        node("Flatten", ["g"], ["f"], name="flat"),
        node("Gemm", ["f", "w3", "b3"], ["y"], name="last", transB=1),
    ]
    value = helper.make_tensor_value_info
    x = value("x", TensorProto.FLOAT, ["batch", 3, 16, 16])
    y = value("y", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def shell(*words: str | Path, inside: Path | None = None) -> str:
    """What a command prints; one that fails ends the hour."""
    done = subprocess.run(words, cwd=inside, check=True, capture_output=True, text=True)
    print(f"$ {' '.join(Path(each).name for each in words)}\n{done.stdout}", end="")
    return done.stdout


def main() -> None:
    """From a file to something to ship."""
    folder = Path(tempfile.mkdtemp())
    network(folder / "m.onnx")
    tool = (sys.executable, "-m", "plica")
    random = np.random.default_rng(1)

    # One code for every batch, which means what the interpreter says.
    exe = plica.compile(folder / "m.onnx", cache=False)
    exe.save(folder / "m.plica")
    loaded = plica.load(folder / "m.plica")  # needs numpy alone: plica-runtime
    meaning = plica.from_onnx(folder / "m.onnx")
    for batch in (1, 3, 8):
        x = random.standard_normal((batch, 3, 16, 16)).astype("f4")
        assert np.allclose(loaded(x), plica.interpret(meaning, x), atol=1e-5)
    print(loaded.profile(x, runs=3))
    try:
        loaded(x[:, :, :, :15])
    except plica.InputError as error:
        print(error)  # names the input, what was expected and what came

    # The same in a shell, in a process that knows nothing of this one.
    np.save(folder / "x.npy", x)
    assert "good" in shell(*tool, "verify", folder / "m.plica")
    given = f"x={folder / 'x.npy'}"
    shell(*tool, "run", folder / "m.plica", "--input", given, "-o", folder / "y.npz")
    assert np.array_equal(np.load(folder / "y.npz")["y"], loaded(x))

    # A library, its header, and a program that calls it; no Python from here on.
    if shutil.which("cc") is None:
        return
    exe.export(folder / "libuser.so")
    print((folder / "user.h").read_text())
    link = ("-L.", "-luser", "-Wl,-rpath,.")
    shell("cc", "user_example.c", "-o", "user", *link, inside=folder)
    total = float(shell("./user", inside=folder).split()[-1])
    sample = (np.arange(3 * 3 * 16 * 16) % 7).astype("f4").reshape(3, 3, 16, 16) / np.float32(7)
    assert np.isclose(total, loaded(sample).sum(), rtol=1e-4)


if __name__ == "__main__":
    main()
