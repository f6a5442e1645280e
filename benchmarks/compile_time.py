"""How long compiling takes, and how much memory: cold, warm, after an edit, and layer by layer.

    python benchmarks/compile_time.py [networks and model.onnx …] [--rows 1 10 100 1000] [--peers]

Every figure is of a process of its own.  `cpu` is the processor time of the compilation and of all
processes it starts, after imports; `wall` is on as many cores as there are, with as many processes
(`PLICA_JOBS` says otherwise), and is worth something on a machine that does nothing else.  `fast`
is `effort="fast"`, and how much slower its code is.  `warm` is another process with the store of an
earlier one, and `edited` the same after the weights of one layer were changed; both begin when
numpy and onnx are imported and count what Plica imports.  `--rows` are models of a given number of
layers, no two of which have the same sizes: time for each should not depend on how many there are.
Processes find Plica's bytecode, as they do where it is installed.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

ZOO: Final = ("resnet18", "mobilenet_v2", "resnet50", "transformer12")
MB: Final = 1e3  # kilobytes
PRIME: Final = 37


def network(name: str) -> Any:  # Any: a path, or a module
    """What is compiled: a file, a network of the zoo, or a chain of a given number of layers."""
    from plica.frontend import zoo

    made: dict[str, Callable[[], Any]] = {
        "resnet18": lambda: zoo.resnet(18),
        "mobilenet_v2": zoo.mobilenet,
        "resnet50": lambda: zoo.resnet(50),
        "transformer12": lambda: zoo.transformer(layers=12),
    }
    if name.endswith(".onnx"):
        return name
    return made[name]() if name in made else chain(int(name.removeprefix("chain")))


def chain(length: int) -> Any:  # Any: a module
    """Dense layers and activations, no two of which have the same sizes."""
    from plica.core.name import Name
    from plica.ir.graph.expression import Apply, Expr, Function, Var, const
    from plica.ir.graph.module import module
    from plica.ir.type.term import tensor

    random = np.random.default_rng(0)
    steps = [step for step in range(1, PRIME) for _ in range(PRIME)][:length]
    widths = [32 + 4 * int(at) for at in np.cumsum([0, *steps]) % PRIME]  # each pair once
    x = Var(Name("x"), tensor((16, widths[0]), "f32"))
    y: Expr = x
    for rows, columns in pairwise(widths):
        weight = const(random.standard_normal((rows, columns)).astype(np.float32) / 8)
        y = Apply("nn.relu", (Apply("matmul", (y, weight)),))
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, y)}, main)


def used() -> float:
    """Seconds of the processor, of this process and of those it waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def cold(name: str, effort: str) -> dict[str, Any]:
    """What compiling takes once everything is imported, and the code one call takes."""
    import plica
    from plica.pipeline.worker_pool import workers

    plica.compile(chain(1), cache=False, threads=1)  # what is imported and prepared once
    source = network(name)
    before, start = used(), perf_counter()
    exe = plica.compile(source, threads=1, effort=effort)
    wall = perf_counter() - start
    pool = workers()
    if pool is not None:
        pool.end()  # what they used is known once they have ended
    cpu, peak = used() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "wall": wall, "cpu": cpu, "peak": peak / MB, "run": least(exe),
        "kernels": len({each.kernel for each in exe.artefact.launches}),
        "weights": sum(each.nbytes for each in exe.artefact.constants) / 1e6,
    }  # fmt: skip


def least(exe: Any) -> float:  # Any: an executable
    """The least seconds of a call."""
    random = np.random.default_rng(0)
    given = [(random.random(port.shape) * 2).astype(port.numpy) for port in exe.inputs]
    times = []
    for _ in range(10):
        start = process_time()
        exe(*given)
        times.append(process_time() - start)
    return min(times)


def warm(path: str) -> dict[str, Any]:
    """What compiling a file takes in a process that has nothing but numpy and onnx."""
    before, start = used(), perf_counter()
    import plica

    plica.compile(path, threads=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"wall": perf_counter() - start, "cpu": used() - before, "peak": peak / MB}


def edited(path: str, into: Path) -> str:
    """The same model with other weights in its middle layer."""
    model = onnx.load(path)
    layers = [each for each in model.graph.initializer if len(each.dims) > 1]
    chosen = layers[len(layers) // 2]
    numbers = numpy_helper.to_array(chosen)
    chosen.CopyFrom(numpy_helper.from_array((numbers * 0.5).astype(numbers.dtype), chosen.name))
    onnx.save(model, into)
    return str(into)


def peers(path: str) -> dict[str, float]:
    """The seconds of the processor that others take to load a file, where they are installed."""
    found: dict[str, float] = {}
    for name, said in PEERS.items():
        done = subprocess.run(
            [sys.executable, "-c", said, path], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            found[name] = float(done.stdout.splitlines()[-1])
    return found


_TIMED: Final = "from time import process_time as t; import sys; s = t(); {}; print(t() - s)"
PEERS: Final = {
    "onnxruntime": "import onnxruntime as o; "
    + _TIMED.format("o.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"),
    "openvino": "import openvino as o; " + _TIMED.format("o.Core().compile_model(sys.argv[1])"),
}
"""What loads a file elsewhere, and prints how long that took."""


@lru_cache(maxsize=1)
def bytecode() -> dict[str, str]:
    """What says where bytecode is; a process before all others has written it there."""
    folder = tempfile.mkdtemp(prefix="plica-bytecode-")
    atexit.register(shutil.rmtree, folder)
    found = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
    line = [sys.executable, __file__, "--measure", "cold", "chain1", "default"]
    given = {**os.environ, **found, "PLICA_CACHE": "off", "PLICA_JOBS": "1"}
    subprocess.run(line, env=given, capture_output=True, check=True)
    return found


def elsewhere(what: str, *words: str, store: str = "off", jobs: str = "") -> dict[str, Any]:
    """A figure from a new process."""
    given = {**os.environ, "PLICA_CACHE": store, "PLICA_CACHE_AUDIT": "0", **bytecode()}
    if jobs:
        given["PLICA_JOBS"] = jobs
    line = [sys.executable, __file__, "--measure", what, *words]
    done = subprocess.run(line, env=given, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def network_row(name: str, beside: bool) -> str:
    alone = elsewhere("cold", name, "default", jobs="1")
    shared = elsewhere("cold", name, "default")
    fast = elsewhere("cold", name, "fast", jobs="1")
    slower = fast["run"] / alone["run"]
    line = (
        f"{Path(name).stem:26} {alone['kernels']:4} {alone['cpu']:7.2f} {shared['wall']:6.2f} "
        f"{shared['wall'] / shared['cpu']:5.2f} {fast['cpu']:6.2f} {slower:5.2f}x "
        f"{shared['peak']:6.0f} {3 * alone['weights'] + 300:6.0f}"
    )
    if not name.endswith(".onnx"):
        return line
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))
        elsewhere("warm", name, store=store)
        again = elsewhere("warm", name, store=store)
        changed = elsewhere("warm", edited(name, Path(folder, "edited.onnx")), store=store)
    limit = 0.15 + 4e-9 * Path(name).stat().st_size
    line += f" {again['cpu']:6.2f} {limit:6.2f} {changed['cpu']:6.2f}"
    others = peers(name) if beside else {}
    return line + "".join(f"  {each} {seconds:.2f}" for each, seconds in others.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=list(ZOO))
    parser.add_argument("--rows", type=int, nargs="*", default=[10, 100])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        what, *words = given.names
        print(json.dumps(cold(*words) if what == "cold" else warm(*words)))
        return 0
    print("seconds (cpu: of the processor), memory in MB; a limit stands behind what it limits")
    print(f"{'model':26} {'kern':>4} {'cpu':>7} {'wall':>6} {'share':>5} {'fast':>6} {'code':>6} "
          f"{'peak':>6} {'limit':>6} {'warm':>6} {'limit':>6} {'edited':>6}")  # fmt: skip
    for name in given.names:
        print(network_row(name, given.peers), flush=True)
    for length in given.rows:
        row = elsewhere("cold", f"chain{length}", "default", jobs="1")
        each, limit = row["cpu"] / length * 1e3, 3 * row["weights"] + 300
        print(f"{length:5} layers: {row['cpu']:.2f} s, {each:.1f} ms each, "
              f"peak {row['peak']:.0f} MB ({limit:.0f})", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
