"""The pool: threads that share the iterations of a parallel loop, in LLVM's text over pthreads.

    void plica_parallel(void (*body)(void *env, i64 begin, i64 end), void *env, i64 count)

runs the body over `0 .. count`, cut into chunks that the calling thread and the workers claim; it
returns when all are done. Threads are started on first use, spin for a while between regions and
then sleep, and are restarted in a forked process. A nested region, or one while another thread uses
the pool, runs in the calling thread.

Note [Ends]: the calling thread claims chunks from the front, workers from the back, until they
meet. So a thread mostly reads in the next region what it wrote in the last, from its own cache, and
no thread waits for another's part. With more than two threads the workers share an end. Chunk
lengths differ by at most one iteration, longer ones first: the caller starts before the workers.

Note [Tickets]: one word holds the region's generation and the number of chunks claimed from either
end, so a claim is one compare-and-exchange: it succeeds only if the region is still open, so what
was read about it is valid. Workers do not register: the caller waits for claimed chunks, never for
a worker that has not woken up. Odd generations are closed: nothing can be claimed while a region is
being set up.

Note [Fork]: the state is in memory that the system clears in a child, where no worker is.  Where
it cannot, a child finds that it is another process, and runs on one thread.

>>> "define hidden void @plica_parallel(" in text("x86_64-unknown-linux-gnu")
True
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

from plica.runtime.link import MAKE, USE

PARALLEL: Final = "plica_parallel"

DECLARATION: Final = f"declare hidden void @{PARALLEL}(ptr, ptr, i64)"  # for code in another object
SYSCALL: Final = "declare i64 @syscall(i64, ...)"  # what others that ask the system declare, too
CHUNKS: Final = 4  # chunks per thread: more balance better, fewer cost less
SPIN: Final = {"aarch64": 6000}
USUAL_SPIN: Final = 2000
"""How often a worker polls for work before it sleeps: about 100 us, longer than a program's work
between two calls, because waking up takes about as long as a small network."""

# The layout of the state, each group on its own cache line.
_TICKET, _BODY, _ENV, _LONGER, _SIZE, _CHUNKS = 0, 64, 72, 80, 88, 96
_DONE, _SLEEPERS, _BUSY, _STARTED = 128, 192, 256, 264

# fmt: off
_FUTEX: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_PAUSE: Final = {
    "x86_64":  "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.isb(i32 15)",
}
"""The pause instruction of a polling thread: some 15 to 50 ns in which another hardware thread
runs. ARM's yield hint is a no-op; an instruction barrier empties the pipeline."""
# fmt: on


WASM_THREADS: Final = "wasm32-unknown-unknown-threads"
"""The triple of WebAssembly whose memory several threads share."""

_OF_LINUX: Final = {
    "HERE": "%here = call i32 @getpid()",
    "YIELD": "%yielded = call i32 @sched_yield()",
    "WAKE": "%woken = call i64 (i64, ...) "
    "@syscall(i64 <FUTEX>, ptr %word, i64 129, i64 %others, ptr null)",
    "SLEEP": "%slept = call i64 (i64, ...) "
    "@syscall(i64 <FUTEX>, ptr %word, i64 128, i64 %generation, ptr null)",
}
_OF_WASM: Final = {
    "PAUSE": "", "HERE": "%here = add i32 0, 0", "YIELD": "",
    "WAKE": "%many = trunc i64 %others to i32\n"
    "  %woken = call i32 @llvm.wasm.memory.atomic.notify(ptr %word, i32 %many)",
    "SLEEP": "%known = trunc i64 %generation to i32\n"
    "  %slept = call i32 @llvm.wasm.memory.atomic.wait32(ptr %word, i32 %known, i64 -1)",
}  # fmt: skip
"""How threads ask which process they are in, give way, wake others and sleep."""


@lru_cache(maxsize=16)
def llvm_text(name: str) -> str:
    """A text from a file in this folder."""
    return Path(__file__).with_name("text").joinpath(f"{name}.ll").read_text(encoding="utf-8")


def has_pool(triple: str) -> bool:
    """Whether the pool is written for a machine: Linux of 64 bits, WebAssembly with threads."""
    machine = triple.split("-", maxsplit=1)[0]
    return (machine in _FUTEX and "linux" in triple) or triple == WASM_THREADS


def text(triple: str) -> str:
    """The pool; for a machine it is not written for, one that runs the body where it is called."""
    if not has_pool(triple):
        return _ALONE
    machine = triple.split("-", maxsplit=1)[0]
    pause = _PAUSE.get(machine, 'call void asm sideeffect "", "~{memory}"()')
    found = llvm_text("pool_wasm" if machine == "wasm32" else "pool") + llvm_text("pool_region")
    words = {
        **(_OF_WASM if machine == "wasm32" else {"PAUSE": pause, **_OF_LINUX}),
        "FUTEX": _FUTEX.get(machine, 0),
        "SPIN": SPIN.get(machine, USUAL_SPIN),
        "PER_THREAD": CHUNKS,
        "MAKE": MAKE,
        "USE": USE,
        "PARALLEL": PARALLEL,
        "AT_TICKET": _TICKET,
        "AT_GENERATION": _TICKET + 4,
        "AT_BODY": _BODY,
        "AT_ENV": _ENV,
        "AT_LONGER": _LONGER,
        "AT_SIZE": _SIZE,
        "AT_CHUNKS": _CHUNKS,
        "AT_DONE": _DONE,
        "AT_SLEEPERS": _SLEEPERS,
        "AT_BUSY": _BUSY,
        "AT_STARTED": _STARTED,
    }
    for word, value in words.items():
        found = found.replace(f"<{word}>", str(value))
    return found


_ALONE: Final = f"""\
define hidden void @{PARALLEL}(ptr %body, ptr %env, i64 %count) nounwind {{
  call void %body(ptr %env, i64 0, i64 %count)
  ret void
}}
"""
