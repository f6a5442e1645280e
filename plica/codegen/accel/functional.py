"""The functional simulator for streams: the exact effect of a stream on memory.

>>> import numpy as np
>>> from plica.codegen.accel.assembly import read_stream
>>> from plica.codegen.accel.vta import vta
>>> text = '''
... .tensor x acc 0 2
... .tensor y out 256 2
... load.acc y_size=1 x_size=2
... store.out dram=256 y_size=1 x_size=2
... finish
... '''
>>> stream = read_stream(vta(), text)
>>> run(vta(), stream, {"x": np.ones((2, 1, 16), np.int32)})["y"].any()
np.False_
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.device import program_of
from plica.codegen.accel.instruction import Stream
from plica.runtime.accel.functional import Simulator
from plica.runtime.port import Array

__all__ = ["Array", "run"]


def run(
    machine: Accelerator,
    stream: Stream,
    tensors: Mapping[str, Array],
    order: Sequence[int] | None = None,
) -> dict[str, Array]:
    """All tensors of the stream after it has run; those not given begin as zeros."""
    return Simulator(program_of(machine, stream)).run(tensors, order)
