"""A server with many clients that arrive at random, beside the same requests one at a time.

    python benchmarks/lm_serving.py MODEL [--clients 64] [--limit 64] [--slots 64] [--threads 2]
                                    [--rounds 3] [--arrival 0.3]

MODEL is a folder or a GGUF file, such as what `examples/train_lm.py` saves.  Prompts are of random
tokens, texts greedy.  Checks that each client gets the text of its request alone; prints tokens per
second of both, by the clock: the machine has to be quiet.
"""

from __future__ import annotations

import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

import httpx
import numpy as np
import uvicorn

from plica_lm.engine import Engine
from plica_lm.load import load
from plica_lm.serve import application


def started(engine: Engine) -> str:
    """The address of a server that runs until the process ends."""
    server = uvicorn.Server(uvicorn.Config(application(engine), port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"http://127.0.0.1:{port}/v1/completions"


def answered(client: httpx.Client, url: str, body: dict[str, Any], delay: float = 0.0) -> str:
    """The text of a request that is sent after a delay, with its number of tokens at the end."""
    time.sleep(delay)
    answer = client.post(url, json=body).raise_for_status().json()
    return f"{answer['choices'][0]['text']} {answer['usage']['completion_tokens']}"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("model")
    for name, value in (("clients", 64), ("limit", 64), ("slots", 64), ("threads", 2),
                        ("rounds", 3)):  # fmt: skip
        ask.add_argument(f"--{name}", type=int, default=value)
    ask.add_argument("--arrival", type=float, default=0.3, help="seconds in which clients arrive")
    of = ask.parse_args()
    model = load(of.model, threads=of.threads)
    url = started(Engine(model, slots=of.slots))
    draw = np.random.default_rng(0)
    bodies = [{"prompt": draw.integers(1, model.vocabulary, 4 + at % 8).tolist(), "temperature": 0,
               "max_tokens": of.limit} for at in range(of.clients)]  # fmt: skip
    delays = draw.random(of.clients) * of.arrival
    limits = httpx.Limits(max_connections=of.clients)
    with httpx.Client(timeout=600, limits=limits) as client:
        one = partial(answered, client, url)
        expected = [one(body) for body in bodies]  # compiles, too
        tokens = sum(int(text.rpartition(" ")[2]) for text in expected)
        rates = list[tuple[float, float]]()
        for _ in range(of.rounds):
            start = time.perf_counter()
            alone = [one(body) for body in bodies]
            middle = time.perf_counter()
            with ThreadPoolExecutor(of.clients) as pool:
                together = list(pool.map(one, bodies, delays))
            end = time.perf_counter()
            if not expected == alone == together:
                raise SystemExit("A client got another text than its request alone.")
            rates.append((tokens / (middle - start), tokens / (end - middle)))
    alone_, together_ = (max(each) for each in zip(*rates, strict=True))
    share = median([all_ / one_ for one_, all_ in rates])
    print(f"{of.clients} clients: {together_ / alone_:.2f}x (median {share:.2f}x) one at a time, "
          f"{together_:.0f} and {alone_:.0f} tokens/s, {tokens} tokens a round")  # fmt: skip


if __name__ == "__main__":
    main()
