"""Time an empty call of an exported model through tvm-ffi, beside an empty function of its own.

    python benchmarks/ffi_call.py

Both take two tensors of one element from torch; the model negates its element.  A line has the
least and the median time of each, and what the model's call takes beyond the other.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import tvm_ffi
import tvm_ffi.cpp

import plica

MODEL = """
@plica.function
def negated(x: Tensor[(1,), f32]) -> Tensor[(1,), f32]:
    return -x
"""
OWN = "void own(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder, "libnegated.so")
        plica.compile(plica.from_text(MODEL)).export(path)
        ours = tvm_ffi.load_module(str(path)).negated
        own = tvm_ffi.cpp.load_inline("own", cpp_sources=OWN, functions=["own"]).own
        x, y = torch.ones(1), torch.empty(1)
        ours(x, y)
        assert float(y) == -1
        print(plica.time(lambda: ours(x, y), against=lambda: own(x, y), rounds=arguments.rounds))


if __name__ == "__main__":
    main()
