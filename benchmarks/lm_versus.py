"""Language models beside llama.cpp: one random GGUF file for both, decoding and prompts in turns.

    python benchmarks/lm_versus.py [Q4_K Q8_0 f16 …] [--threads 1] [--layers 8] [--rounds 5]
                                   [--past 64] [--prompt 512] [--contract "approx(0.01)"]

A Llama of the sizes of TinyLlama (width 2048, 32 heads of 64, 4 of keys, inner width 5632, 32,000
tokens); 22 layers are 1.1 billion weights.  Caches are of f16 on both sides.  A round is eight
tokens after `past` others, then a prompt, of one side and then of the other; processor time over
the threads.
Needs `llama-cpp-python`, built from source with -DGGML_NATIVE=ON.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from plica_lm.format import FORMATS, BitField
from plica_lm.load import load
from plica_lm.model import Span

WIDTH, INNER, HEADS, SHARED, HEAD, WORDS = 2048, 5632, 32, 4, 64, 32000
STEPS = 8
"""Tokens of a round."""


def weight(random: np.random.Generator, kind: str, shape: tuple[int, int]) -> Any:  # Any: an array
    """Random numbers of a format: any bytes, and small scales."""
    if kind not in FORMATS:
        return (random.standard_normal(shape) * 0.02).astype(kind.replace("f", "float"))
    of = FORMATS[kind]
    raw = random.integers(0, 256, (shape[0], shape[1] // of.elements, of.size), np.uint8)
    for each in of.fields.values():
        if isinstance(each, BitField) and each.dtype is not None:
            scale = np.frombuffer(np.float16(1e-4).tobytes(), np.uint8)
            raw[:, :, each.at : each.at + 2] = scale
    return raw.reshape(shape[0], -1)


def write(path: Path, kind: str, layers: int) -> int:
    """Write the file; gives the bytes of its matrices."""
    from gguf import GGMLQuantizationType, GGUFWriter

    to: Any = GGUFWriter(path, "llama")  # Any: functions without types
    for name, value in (("block_count", layers), ("embedding_length", WIDTH),
                        ("feed_forward_length", INNER), ("head_count", HEADS),
                        ("head_count_kv", SHARED), ("context_length", 8192),
                        ("rope_dimension_count", HEAD), ("layer_norm_rms_eps", 1e-5),
                        ("vocab_size", WORDS), ("tokenizer_model", "gpt2"),
                        ("tokenizer_pre", "gpt-2"), ("bos_token_id", 0),
                        ("eos_token_id", WORDS - 1)):  # fmt: skip
        getattr(to, f"add_{name}")(value)
    letters = [chr(each) for each in (*range(33, 127), *range(161, 173), *range(174, 256))]
    letters += [chr(256 + each) for each in range(68)]
    to.add_token_list([*letters, *[f"t{at}" for at in range(WORDS - len(letters))]])
    to.add_token_types([1] * WORDS)
    to.add_token_merges(["t 1"])
    random, whole = np.random.default_rng(0), 0
    matrices = {"attn_q": (WIDTH, WIDTH), "attn_k": (SHARED * HEAD, WIDTH),
                "attn_v": (SHARED * HEAD, WIDTH), "attn_output": (WIDTH, WIDTH),
                "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH),
                "ffn_down": (WIDTH, INNER)}  # fmt: skip
    named = {"token_embd": (WORDS, WIDTH), "output": (WORDS, WIDTH)}
    named |= {f"blk.{at}.{name}": shape for at in range(layers) for name, shape in matrices.items()}
    for name, shape in named.items():
        data = weight(random, kind, shape)
        whole += data.nbytes * (name != "token_embd")
        raw = GGMLQuantizationType[kind] if kind in FORMATS else None
        to.add_tensor(f"{name}.weight", data, raw_dtype=raw)
    ones = np.ones(WIDTH, np.float32)
    to.add_tensor("output_norm.weight", ones)
    for at in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            to.add_tensor(f"blk.{at}.{name}.weight", ones)
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()
    return whole


Side = tuple[Callable[[int, int], None], Callable[[], None]]
"""Reads some tokens from a position on; frees what it has."""


def plica_side(path: Path, context: int, threads: int, contract: str | None = None) -> Side:
    """Calls of the compiled model."""
    model = load(path, context=context, threads=threads, cache="f16", contract=contract)
    caches = model.caches(context + 1)

    def read(start: int, count: int) -> None:
        rows = range(1, 1 + start + count)
        model.logits(caches, [Span([5 + at % 90 for at in range(count)], start, rows)])

    return read, lambda: None


def llama_side(path: Path, context: int, threads: int) -> Side:
    """Calls of llama.cpp's functions, without what Python adds around them."""
    import llama_cpp.llama_cpp as of  # type: ignore[import-not-found]  # not an extra: built by hand

    quiet = of.llama_log_callback(lambda *_: None)
    of.llama_log_set(quiet, None)
    of.llama_backend_init()
    model = of.llama_model_load_from_file(str(path).encode(), of.llama_model_default_params())
    params = of.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = context, 512, 512
    params.n_threads = params.n_threads_batch = threads
    whole = of.llama_init_from_model(model, params)
    memory = of.llama_get_memory(whole)

    def read(start: int, count: int) -> None:
        of.llama_memory_seq_rm(memory, 0, start, -1)
        tokens = (ctypes.c_int32 * count)(*[5 + at % 90 for at in range(count)])
        if of.llama_decode(whole, of.llama_batch_get_one(tokens, count)):
            raise RuntimeError("llama.cpp refuses the tokens")
        of.llama_get_logits_ith(whole, -1)

    def close() -> None:
        of.llama_free(whole)
        of.llama_model_free(model)
        quiet.__class__  # noqa: B018  # the callback lives as long as what calls it

    return read, close


def seconds(work: Callable[[], object], threads: int) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) / threads


def _decode(read: Callable[[int, int], None], past: int) -> None:
    for step in range(STEPS):
        read(past + step, 1)


def compare(kind: str, of: argparse.Namespace) -> None:
    """Two lines: decoding and prompts, how many times the speed of llama.cpp."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        whole = write(path, kind, of.layers)
        sides = [side(path, max(of.past, of.prompt) + 64, of.threads)
                 for side in (partial(plica_side, contract=of.contract), llama_side)]  # fmt: skip
        times: dict[str, list[tuple[float, float]]] = {"decode": [], "prompt": []}
        for at in range(of.rounds + 1):
            rows: dict[str, list[float]] = {"decode": [], "prompt": []}
            for read, _ in sides:
                rows["prompt"].append(seconds(partial(read, 0, of.prompt), of.threads))
                for done in range(of.prompt, of.past, 512):
                    read(done, min(512, of.past - done))
                rows["decode"].append(seconds(partial(_decode, read, of.past), of.threads))
            for name, (ours, theirs) in rows.items():
                times[name] += [(ours, theirs)] * (at > 0)
        for name, found in times.items():
            ours, theirs = (min(each) for each in zip(*found, strict=True))
            count = STEPS if name == "decode" else of.prompt
            middle = median([b / a for a, b in found])
            print(f"{kind:6} {name} {of.threads} threads: {theirs / ours:5.2f}x "
                  f"(median {middle:.2f}x), {count / ours:7.1f} and {count / theirs:7.1f} tokens/s"
                  + (f", {whole * count / ours / 1e9:.1f} GB/s" if name == "decode" else ""),
                  flush=True)  # fmt: skip
        for _, close in sides:
            close()


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("formats", nargs="*")
    for name, value in (("threads", 1), ("layers", 8), ("rounds", 5), ("past", 64),
                        ("prompt", 512)):  # fmt: skip
        ask.add_argument(f"--{name}", type=int, default=value)
    ask.add_argument("--contract")
    of = ask.parse_args()
    for kind in of.formats or ("f16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"):
        compare(kind, of)


if __name__ == "__main__":
    main()
