"""What only a GPU can show, checked on one: arrays of other libraries, artefacts, faults, tuning.

    python benchmarks/gpu_check.py [NAME …]

Each check says `ok` or what is wrong; those that break the GPU run in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import plica
from plica.codegen.cuda.toolchain import CompileError, compiled
from plica.ir.text.script import Scripted
from plica.rewrite.fuzz.judge import CRASHES
from plica.runtime.cuda.array import DeviceArray
from plica.runtime.cuda.driver import DeviceError, device
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.error import ArtefactError, InputError, UnsupportedError
from plica.runtime.verify import verify

MODEL = """
import plica
from plica import op
from plica.script import Tensor, {dtype}

@plica.function
def main(
    x: Tensor[({m}, {k}), {dtype}], w: Tensor[({k}, {n}), {dtype}]
) -> Tensor[({m}, {n}), {dtype}]:
    return op.nn.relu(op.matmul(x, w)) + 0.5
"""

PLUS = """
import plica
from plica import op
from plica.script import Tensor, {dtype}

@plica.function
def main(x: Tensor[{shape}, {dtype}], y: Tensor[{shape}, {dtype}]) -> Tensor[{shape}, {dtype}]:
    return x + y * x
"""


def plus(shape: tuple[int, ...] = (96, 40), dtype: str = "f32") -> CudaExecutable:
    made = plica.compile(plica.from_text(PLUS.format(shape=shape, dtype=dtype)), target="cuda")
    assert isinstance(made, CudaExecutable)
    return made


def pair(shape: tuple[int, ...] = (96, 40), seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return tuple(random.standard_normal(shape, np.float32) for _ in range(2))  # type: ignore[return-value]  # two of them


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5)


def arrays_of_numpy() -> None:
    exe, (x, y) = plus(), pair()
    found = exe(x, y)
    assert type(found) is np.ndarray
    near(found, x + y * x)
    near(exe(y=y, x=x), x + y * x)
    near(exe(x[::-1], y), x[::-1] + y * x[::-1])


def arrays_of_torch() -> None:
    import torch

    exe, (x, y) = plus(), pair()
    tx, ty = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
    for _ in range(4):  # the second time and later as a graph
        found = exe(tx, ty)
        assert isinstance(found, DeviceArray)
        shared = torch.from_dlpack(found)
        assert shared.device.type == "cuda"
        assert shared.data_ptr() == found.address
        near(shared.cpu().numpy(), x + y * x)
    mixed = exe(tx, y)
    near(mixed.numpy(), x + y * x)
    near(exe(found, ty).numpy(), found.numpy() + y * found.numpy())  # our own array again
    # What does not lie as kernels want it is copied on the GPU.
    turned = torch.from_numpy(np.ascontiguousarray(x.T)).cuda().T
    near(exe(turned, ty).numpy(), x + y * x)
    row = torch.from_numpy(y[:1]).cuda().expand(96, 40)
    near(exe(tx, row).numpy(), x + y[:1] * x)
    odd = torch.empty(96 * 40 + 1, device="cuda")[1:].reshape(96, 40)
    odd.copy_(tx)
    assert odd.data_ptr() % 16
    near(exe(odd, ty).numpy(), x + y * x)
    holes = torch.zeros(96, 80, device="cuda")[:, ::2]
    holes.copy_(tx)
    near(exe(holes, ty).numpy(), x + y * x)
    del shared, found
    torch.cuda.synchronize()


def arrays_of_other_dtypes() -> None:
    import torch

    for name, kind in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f64", torch.float64),
                       ("i32", torch.int32), ("i64", torch.int64), ("i8", torch.int8)):  # fmt: skip
        exe = plus((8, 6), name)
        x, y = (torch.arange(48, device="cuda").remainder(5).reshape(8, 6).to(kind) for _ in "xy")
        found = torch.from_dlpack(exe(x, y))
        assert found.dtype is kind, (found.dtype, kind)
        assert torch.equal(found, x + y * x), name
        assert torch.equal(torch.from_dlpack(exe(x.T.contiguous().T, y)), x + y * x), name


def arrays_of_cupy() -> None:
    import cupy

    exe, (x, y) = plus(), pair()
    cx, cy = cupy.asarray(x), cupy.asarray(y)
    found = exe(cx, cy)
    near(cupy.asnumpy(cupy.asarray(found)), x + y * x)
    near(cupy.asnumpy(cupy.from_dlpack(found)), x + y * x)

    class Words:  # by the other protocol alone
        __cuda_array_interface__ = cx.__cuda_array_interface__

    near(exe(Words(), cy).numpy(), x + y * x)


def streams() -> None:
    import torch

    exe, (x, y) = plus((1024, 1024)), pair((1024, 1024))
    tx, ty = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
    side = torch.cuda.Stream()
    for _ in range(20):
        with torch.cuda.stream(side):
            busy = torch.randn(4096, 4096, device="cuda")
            for _ in range(4):
                busy = busy @ busy * 1e-3
            late = tx * 1.0 + busy[:1024, :1024] * 0.0
            found = torch.from_dlpack(exe(late, ty, stream=side)) * 2.0
        side.synchronize()
        near(found.cpu().numpy(), 2 * (x + y * x))
    near(exe(tx, ty, stream=0).numpy(), x + y * x)
    refused(InputError, "no stream", lambda: exe(tx, ty, stream="here"))


def threads() -> None:
    exe, wrong = plus(), []

    def work(seed: int) -> None:
        x, y = pair(seed=seed)
        for _ in range(20):
            if not np.allclose(exe(x, y), x + y * x, atol=1e-5):
                wrong.append(seed)

    every = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for each in every:
        each.start()
    for each in every:
        each.join()
    assert not wrong, wrong


def wrong_inputs() -> None:
    import torch

    exe, (x, y) = plus(), pair()
    tx = torch.from_numpy(x).cuda()
    refused(InputError, "wrong shape", lambda: exe(tx[:3], y))
    refused(InputError, "element type", lambda: exe(tx.double(), y))
    refused(InputError, "cannot be shared", lambda: exe(tx.requires_grad_(), y))
    refused(InputError, "not given", lambda: exe(x))

    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 7

        def __dlpack__(self, stream: object = None) -> object:
            raise BufferError("never asked")

    refused(InputError, "another GPU", lambda: exe(Elsewhere(), y))


def artefacts() -> None:
    model = plica.from_text(MODEL.format(m=200, k=96, n=64, dtype="f32"))
    exe = plica.compile(model, target="cuda")
    random = np.random.default_rng(0)
    x, w = (
        random.standard_normal((200, 96), np.float32),
        random.standard_normal((96, 64), np.float32),
    )
    meant = np.maximum(x @ w, 0) + 0.5
    np.testing.assert_allclose(exe(x, w), meant, atol=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "m.plica")
        exe.save(path)
        print("   ", verify(path).target, Path(path).stat().st_size, "bytes")
        again = plica.load(path)
        np.testing.assert_array_equal(again(x, w), exe(x, w))
        assert again.source("cuda") == exe.source("cuda")
        kernel = again.artefact.launches[0].kernel
        assert "bind" in str(again.trace(kernel))
        print(again.profile(x, w))
        script = (
            "import sys, numpy as np, plica\n"
            f"exe = plica.load({path!r})\n"
            "x, w = np.ones((200, 96), np.float32), np.ones((96, 64), np.float32)\n"
            "assert np.allclose(exe(x, w), 96.5)\n"
            "bad = [m for m in sys.modules if m.startswith('plica.') and "
            "not m.startswith(('plica.runtime', 'plica._'))]\n"
            "assert not bad, bad\n"
            "assert 'attrs' not in sys.modules and 'llvmlite' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
        other = plica.compile  # an architecture that is not here
        refused(ArtefactError, "another", lambda: other(model, target="cuda:sm_80"))
        refused(UnsupportedError, "", lambda: exe.export(str(Path(folder) / "lib.so")))


def no_memory() -> None:
    free, _ = device().memory
    rows = free // 4 // 1024 + 1024
    refused(DeviceError, "not enough memory", lambda: plus((rows, 1024)))
    x, y = pair()
    near(plus()(x, y), x + y * x)  # and the next one works


def failed_compile() -> None:
    refused(
        CompileError,
        "refused the text",
        lambda: compiled("__global__ void k() { x = 1; }", "sm_90"),
    )
    refused(
        UnsupportedError, "architecture", lambda: plica.compile(plus_text(), target="cuda:sm_12")
    )


def plus_text() -> Scripted:
    return plica.from_text(PLUS.format(shape=(4, 4), dtype="f32"))


FAULT = """
import numpy as np
from benchmarks.gpu_check import plus, pair
from plica.codegen.cuda.toolchain import compiled
from plica.runtime.cuda.driver import DeviceError, device, why_not
exe, (x, y) = plus(), pair()
held = exe(x, y)
gpu = device()
text = 'extern "C" __global__ void bad(int* p) { *(volatile int*)0x10 = 1; }'
code = compiled(text, gpu.architecture)
module, stream = gpu.load(code.code), gpu.stream()
stream.launch(module.function("bad"), (1, 1, 1), (1, 1, 1), 0, [0])
said = []
for again in (stream.wait, lambda: exe(x, y), lambda: exe(x, y), lambda: plus((3, 3)), gpu.stream):
    try:
        again()
    except DeviceError as error:
        said.append((error.code, str(error).splitlines()[0]))
    else:
        said.append("NO ERROR")
print(said)
assert all(each[0] == "device-fault" for each in said), said
assert "failed on the GPU" in said[0][1] and "failed before" in said[1][1]
assert "failed before" in (why_not() or "")
"""


def fault() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULT], capture_output=True, text=True, check=False
    )
    print("   ", done.stdout.strip()[-700:])
    assert done.returncode == 0, done.stderr[-2000:]


def no_driver() -> None:
    script = (
        "import ctypes, plica\n"
        "real = ctypes.CDLL\n"
        "def none(name, *a, **k):\n"
        "    if 'libcuda' in str(name): raise OSError('libcuda.so.1: cannot open')\n"
        "    return real(name, *a, **k)\n"
        "ctypes.CDLL = none\n"
        "from benchmarks.gpu_check import plus\n"
        "try: plus()\n"
        "except plica.PlicaError as error: print(error.code); assert error.code == 'no-cuda'\n"
        "else: raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def choices() -> None:
    text = """
import plica
from plica import op
from plica.script import Tensor, f32, bool_

@plica.function
def main(x: Tensor[(8,), f32], c: Tensor[(), bool_]) -> Tensor[(8,), f32]:
    if c:
        y = op.exp(x)
    else:
        y = op.sqrt(x)
    return y
"""
    refused(UnsupportedError, "exp", lambda: plica.compile(plica.from_text(text), target="cuda"))


def tuning() -> None:
    model = plica.from_text(MODEL.format(m=512, k=512, n=512, dtype="f32"))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tune.db")
        found = plica.tune(model, target="cuda", trials=20, database=path, progress=False)
        print(found)
        for course in found.courses:
            print("   ", course.subject.task.name, "errors:", course.errors)
        exe = plica.compile(model, target="cuda", database=path)
        print(exe.tuning)
        random = np.random.default_rng(0)
        x, w = (random.standard_normal((512, 512), np.float32) for _ in range(2))
        np.testing.assert_allclose(exe(x, w), np.maximum(x @ w, 0) + 0.5, atol=1e-3)
        assert "tuned" in exe.tuning


def refused(kind: type[Exception], words: str, work: Callable[[], object]) -> None:
    said = ""
    try:
        work()
    except kind as error:
        said = str(error)
    assert said, f"nothing was refused: {words}"
    assert words in said, said
    print("   ", said.splitlines()[0])


CHECKS = (arrays_of_numpy, arrays_of_torch, arrays_of_other_dtypes, arrays_of_cupy, streams,
          threads, wrong_inputs, artefacts, no_memory, failed_compile, fault, no_driver, choices,
          tuning)  # fmt: skip


def main() -> int:
    wrong = 0
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        try:
            check()
            print(f"ok      {check.__name__}", flush=True)
        except (*CRASHES, RuntimeError, OSError, subprocess.CalledProcessError):
            wrong += 1
            print(f"FAILED  {check.__name__}\n{traceback.format_exc()}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
