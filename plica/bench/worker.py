"""A worker: one peer in a process of its own, so that no two share threads, memory or symbols.

    python -m plica.bench.worker PEER MODEL.onnx INPUTS.npz OUTPUTS.npz HOW

It makes the model ready, writes what comes out, and says so in one line of JSON.  Then every line
it reads is a number of seconds, for which it calls the model again and again; it answers with the
times.  An empty line ends it.

>>> len(burst(list, seconds=0.0))
1
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from plica.bench.peer import PEERS, PeerOptions, Run
from plica.runtime.error import PlicaError

MAX_RUNS: int = 100_000  # the maximum number of calls in a burst


def burst(run: Run, seconds: float) -> list[float]:
    """The times of calls, one after the other; the first is not counted: caches are cold."""
    run()
    times: list[float] = []
    end = perf_counter() + seconds
    while len(times) < MAX_RUNS:
        start = perf_counter()
        run()
        now = perf_counter()
        times.append(now - start)
        if now >= end:
            break
    return times


def main(words: list[str]) -> int:
    """Serve one peer until there is nothing more to do."""
    name, model, inputs, outputs, how = words
    # Whatever a library prints must not come between the lines of the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**what: object) -> None:
        print(json.dumps(what), file=answers, flush=True)

    with np.load(inputs) as stored:
        arrays = [stored[f"arr_{at}"] for at in range(len(stored))]
    start = perf_counter()
    try:
        run = PEERS[name].prepare(Path(model), arrays, PeerOptions(**json.loads(how)))
    except PlicaError as error:
        say(refused=str(error))
        return 1
    found = run()
    took = perf_counter() - start
    np.savez(outputs, *[np.asarray(array) for array in found])
    say(ready=took, version=PEERS[name].version)
    for line in sys.stdin:
        if not line.strip():
            break
        say(times=burst(run, float(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
