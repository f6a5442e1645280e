"""A deployer's hour: compiled once for every batch, saved, loaded, measured, called from C."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from pathlib import Path

import numpy as np

import plica

MODEL = """
@plica.function
def main(x: Tensor[("batch", 8), f32], w: Tensor[(8, 3), f32]) -> Tensor[("batch", 3), f32]:
    return op.nn.softmax(op.matmul(x, w), axis=-1)
"""


def main() -> None:
    """From a program to an artefact and a library."""
    exe = plica.compile(plica.from_text(MODEL), cache=False)
    random = np.random.default_rng(0)
    w = random.standard_normal((8, 3), np.float32)
    folder = Path(tempfile.mkdtemp())
    exe.save(folder / "m.plica")
    loaded = plica.load(folder / "m.plica")
    for batch in (1, 5, 32):
        x = random.standard_normal((batch, 8), np.float32)
        assert np.allclose(loaded(x, w), plica.interpret(plica.from_text(MODEL), x, w), atol=1e-5)
    print(loaded.profile(x, w, runs=3))
    try:
        loaded(x[:, :7], w)
    except plica.InputError as error:
        print(error)
    if shutil.which("cc") is None:
        return
    exe.export(folder / "libuser.so")
    call = ctypes.CDLL(str(folder / "libuser.so")).user
    y = np.empty((32, 3), np.float32)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (x, w, y)]
    assert call(ctypes.c_int64(32), *pointers, None) == 0
    assert np.array_equal(y, loaded(x, w))
    print((folder / "user.h").read_text())


if __name__ == "__main__":
    main()
