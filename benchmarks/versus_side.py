"""One side of `benchmarks/versus.py`: compiles models and times their native entry on request.

The process has one source tree on its path and serves one JSON request a line:

    {"do": "tree"}                                    where `plica` was imported from
    {"do": "compile", "model", "inputs", "threads", "target"}   CPU seconds, shapes and dtypes
    {"do": "lay", "memory", "offsets"}                bind the buffers of a shared file, call once
    {"do": "time", "seconds"}                         least seconds of a call

It uses what any commit offers: `plica.compile`, `run` on addresses, and the entry they end in.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import mmap
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

BATCH_SECONDS: Final = 0.5e-3
"""Calls of a batch: long beside the clock, short beside what the system gives a process at once."""

_LOOP: Final = """
define i64 @repeat(ptr %entry, i64 %table, i64 %count) {
begin:
  br label %again
again:
  %i = phi i64 [ 0, %begin ], [ %next, %again ]
  %sum = phi i64 [ 0, %begin ], [ %failed, %again ]
  %code = call i64 %entry(i64 %table)
  %failed = or i64 %sum, %code
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %again, label %end
end:
  ret i64 %failed
}
"""


def native_loop() -> tuple[object, Callable[[int, int, int], int]]:
    """A native function that calls another a given number of times, and what keeps its code
    alive."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(_LOOP), machine)
    engine.finalize_object()
    address = engine.get_function_address("repeat")
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return engine, kind(address)


class Side:
    """The compiled model, its buffers, and how to call it `count` times."""

    def __init__(self) -> None:
        self.engine, self.loop = native_loop()
        self.exe: Any = None  # an executable of either commit
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.threads = 1
        self.memory: mmap.mmap | None = None
        self.call: Callable[[int], object] = lambda count: None

    def tree(self) -> dict[str, Any]:
        """Where the package comes from; imports and prepares what every compilation needs."""
        import plica

        return {"file": plica.__file__}

    def compile(
        self, model: str, inputs: str, threads: int, target: str | None = None
    ) -> dict[str, Any]:
        """Compile an ONNX file without any store."""
        import plica

        self.forget()
        self.threads = threads
        with np.load(inputs) as stored:
            self.arrays = [stored[f"arr_{at}"] for at in range(len(stored))]
        gc.collect()
        begin = time.process_time()
        try:
            self.exe = plica.compile(model, threads=threads, cache=False, target=target or "cpu")
        except plica.PlicaError as error:
            return {"refused": str(error).splitlines()[0]}
        spent = time.process_time() - begin
        found = self.exe(*self.arrays)
        self.results = found if isinstance(found, tuple) else (found,)
        outputs = [[each.shape, each.dtype.name] for each in map(np.asarray, self.results)]
        return {"seconds": spent, "outputs": outputs}

    def lay(self, memory: str, offsets: list[int]) -> dict[str, Any]:
        """Bind inputs and outputs to shared memory, call once; whether calls are native."""
        with open(memory, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        addresses = [start + offset for offset in offsets]
        table: list[int] = []
        entry = getattr(self.exe, "native_entry", 0)
        if entry and hasattr(self.exe, "_main"):
            main = self.exe._main  # the table of addresses is shown to nobody else

            def shown(address: int) -> int:
                table.append(address)
                return int(main(address))

            self.exe._main = shown
            self.run(addresses)
            self.exe._main = main
        if table:
            self.call = lambda count: self.loop(entry, table[-1], count)
            return {"native": True}
        self.call = self.through_python
        outputs = offsets[len(self.arrays) :]
        for offset, result in zip(outputs, map(np.ascontiguousarray, self.results), strict=True):
            self.memory[offset : offset + result.nbytes] = result.tobytes()
        return {"native": False}

    def run(self, addresses: list[int]) -> None:
        """One call on buffers."""
        if hasattr(self.exe, "sized"):  # sizes are known at the call
            shapes = tuple([each.shape for each in self.arrays])
            self.exe.run_sized(self.exe.sized(shapes), addresses)
        else:
            self.exe.run(addresses)

    def through_python(self, count: int) -> None:
        """Whole calls, where there is no single native function."""
        for _ in range(count):
            self.exe(*self.arrays)

    def time(self, seconds: float) -> dict[str, Any]:
        """The least seconds of a call: CPU time for one thread, else the clock on the wall."""
        clock = time.process_time if self.threads == 1 else time.perf_counter
        begin = time.perf_counter()
        self.call(1)
        count, least = 1, math.inf
        end = begin + seconds
        while True:
            start = clock()
            self.call(count)
            spent = clock() - start
            least = min(least, spent / count)
            if spent < BATCH_SECONDS / 2:
                count *= 2
                least = math.inf
            elif time.perf_counter() > end:
                return {"least": least}

    def forget(self) -> None:
        """Free the last model, so that no two share the memory."""
        self.call, self.exe, self.results, self.arrays = (lambda count: None), None, (), []
        self.memory = None


def serve() -> None:
    """Answer requests until there are no more."""
    side = Side()
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(side, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
