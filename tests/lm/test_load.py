"""A GGUF file of a model gives the logits of torch, by numbers and by block formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plica_lm.generate import generate
from plica_lm.load import load
from plica_lm.model import Span
from tests.lm.network import saved

Array = np.ndarray[Any, Any]

NAMES = {
    "model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm",
    "model.layers.": "blk.", "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
TOKENS = list(range(5, 25))


def interleaved(of: Array, heads: int) -> Array:
    """Rows of queries or keys as Llama's GGUF files have them: pairs are neighbours."""
    return of.reshape(heads, 2, -1, of.shape[1]).swapaxes(1, 2).reshape(of.shape)


def written(path: Path, kind: str | None) -> Array:
    """Write the small Llama, and give the logits of torch for its weights in that format."""
    import torch
    from gguf import GGMLQuantizationType, GGUFWriter, quants

    network, _ = saved("llama")
    to: Any = GGUFWriter(path, "llama")  # Any: functions without types
    for name, value in (("block_count", 2), ("embedding_length", 32), ("head_count", 4),
                        ("head_count_kv", 2), ("context_length", 128), ("rope_dimension_count", 8),
                        ("layer_norm_rms_eps", network.config.rms_norm_eps),
                        ("tokenizer_model", "gpt2"), ("eos_token_id", 95)):  # fmt: skip
        getattr(to, f"add_{name}")(value)
    to.add_token_list([*map(chr, range(33, 126)), "He", "Ġ", "<end>"])
    to.add_token_merges(["H e"])
    to.add_token_types([*[1] * 95, 3])
    state = {}
    for name, tensor in network.state_dict().items():
        data: Array = tensor.numpy()
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2], 0)
        put = interleaved(data, heads) if heads else data
        short = name
        for old, new in NAMES.items():
            short = short.replace(old, new)
        if kind is None or data.ndim == 1 or data.shape[1] % 32:
            to.add_tensor(short, put)
            continue
        of = GGMLQuantizationType[kind]
        to.add_tensor(short, quants.quantize(put, of), raw_dtype=of)
        data = quants.dequantize(quants.quantize(data, of), of)  # rows are quantised alone
        state[name] = torch.tensor(data)
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()
    whole = {**network.state_dict(), **state}
    with torch.no_grad():
        found = torch.func.functional_call(network, whole, (torch.tensor([TOKENS]),))
    logits: Array = found.logits[0].numpy()
    return logits


@pytest.mark.parametrize("kind", [None, "Q8_0", "Q4_0"])
def test_logits_of_a_gguf_file_are_those_of_torch(kind: str | None, tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    expected = written(path, kind)
    model = load(path, threads=1)
    span = Span(TOKENS, 0, range(1, 1 + len(TOKENS)), len(TOKENS))
    (found,) = model.logits(model.caches(64), [span])
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
    assert len(list(generate(model, "Hello world", limit=9))) <= 9
