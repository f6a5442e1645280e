"""Refusals: configurations, weights, requests and messages that do not fit say what was expected,
what was found and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig

from plica.runtime.error import PlicaError
from plica_lm.architecture import FAMILIES, from_config, from_gguf
from plica_lm.fit import needed_weights
from plica_lm.generate import answer, generate
from plica_lm.load import load, read
from plica_lm.sampling import Sampler
from tests.lm.network import CASES, characters, model, saved

Q = "model.layers.1.self_attn.q_proj.weight"
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 128,
}  # fmt: skip


def refused(act: Callable[[], object]) -> str:
    """The text of a refusal, which has all its parts."""
    with pytest.raises(PlicaError) as error:
        act()
    for each in error.value.diagnostics:
        assert each.expected, each
        assert each.found, each
        assert each.suggestion, each
    return str(error.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _, found = saved("llama")
    made = Path(shutil.copytree(found, tmp_path / "model"))
    characters().inner.save(str(made / "tokenizer.json"))
    return made


def edited(folder: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(("entry", "value"), [
    ("hidden_size", 0), ("hidden_size", "64"), ("hidden_size", 64.0), ("hidden_size", None),
    ("num_attention_heads", -4), ("num_attention_heads", True), ("num_attention_heads", 5),
    ("num_key_value_heads", 3), ("num_hidden_layers", 0), ("max_position_embeddings", -1),
    ("rms_norm_eps", 0), ("rms_norm_eps", "x"), ("rope_theta", 0), ("rope_theta", float("nan")),
    ("head_dim", 7), ("model_type", None), ("model_type", "frob"), ("hidden_act", "frob"),
    ("rope_scaling", 5), ("rope_scaling", {"rope_type": "linear", "factor": 0}),
    ("rope_scaling", {"rope_type": "linear"}), ("rope_scaling", {"rope_type": "frob"}),
    ("rope_scaling", {"type": "longrope", "long_factor": [1], "short_factor": [1, 2],
                      "original_max_position_embeddings": 64}),
    ("layer_types", ["full_attention"]), ("eos_token_id", "x"), ("eos_token_id", [-1]),
    ("quantization_config", {"bits": 4}),
])  # fmt: skip
def test_entries_of_a_configuration_are_refused_by_name(entry: str, value: object) -> None:
    inner = next(iter(set(value) - {"rope_type"}), "factor") if isinstance(value, dict) else entry
    words = {"rope_scaling", inner, entry, entry.removeprefix("hidden_"), "factor", "rope_type"}
    said = refused(lambda: from_config({**CONFIG, entry: value}))
    assert any(word in said for word in words)


@pytest.mark.parametrize("missing", [
    "embedding_length", "block_count", "attention.head_count", "context_length",
    "attention.layer_norm_rms_epsilon",
])  # fmt: skip
def test_metadata_of_gguf_are_refused_by_their_own_names(missing: str) -> None:
    whole = {"embedding_length": 64, "block_count": 2, "attention.head_count": 4,
             "context_length": 128, "attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip
    said = {f"llama.{name}": value for name, value in whole.items()}
    metadata = {"general.architecture": "llama", **said}
    from_gguf(metadata)
    for wrong in (None, "x", -3):
        damaged = {**metadata, f"llama.{missing}": wrong}
        assert f"llama.{missing}" in refused(partial(from_gguf, damaged))


@pytest.mark.parametrize(("edit", "words"), [
    (lambda of: of.pop(Q), f"lacks the weight {Q}"),
    (lambda of: of.pop("model.norm.weight"), "model.norm.weight"),
    (lambda of: of.update({Q: of[Q].astype(np.int32)}), "wrong dtype"),
    (lambda of: of.update({Q: of[Q].reshape(16, 64)}), f"{Q} has the wrong shape"),
    (lambda of: of.update({Q.replace("1", "7"): of[Q]}), "num_hidden_layers"),
    (lambda of: of.update({"model.layers.0.q_scale": of[Q]}), "model.layers.0.q_scale"),
    (lambda of: of.update({Q.replace("weight", "scale"): of[Q]}), "not one that llama uses"),
])  # fmt: skip
def test_weights_that_do_not_fit_are_named_as_in_the_file(
    folder: Path, edit: Callable[[dict[str, Any]], object], words: str
) -> None:
    assert words in refused(lambda: read(edited(folder, edit)))


@pytest.mark.parametrize("name", CASES)
def test_models_of_every_family_are_read(name: str, tmp_path: Path) -> None:
    made = Path(shutil.copytree(saved(name)[1], tmp_path / "model"))
    characters().inner.save(str(made / "tokenizer.json"))
    of, weights, _ = read(made)
    assert {*needed_weights(of, weights)} <= {*weights}


def test_buffers_are_no_weights(folder: Path) -> None:
    read(edited(folder, lambda of: of.update(
        {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)})))  # fmt: skip


@pytest.mark.parametrize(("entry", "value"), [
    ("num_hidden_layers", 1), ("num_hidden_layers", 3), ("vocab_size", 97), ("head_dim", 4),
    ("eos_token_id", 96), ("num_key_value_heads", 4),
])  # fmt: skip
def test_configurations_of_other_weights_are_refused(folder: Path, entry: str, value: int) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), entry: value}))
    assert str(folder) in refused(lambda: read(folder))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_damaged_texts_are_refused_by_file(folder: Path, name: str) -> None:
    for text in (b"", b"[1", b"[]", b"\xff\xfe", b'{"eos_token": null, "eos_token": "a"}'):
        (folder / name).write_bytes(text)
        assert name in refused(lambda: read(folder))
    if name != "tokenizer_config.json":
        (folder / name).unlink()
        assert name in refused(lambda: read(folder))


def test_a_header_that_names_a_weight_twice_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    entry = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    header = b"{" + entry + b"," + entry + b"}"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert "occurs twice" in refused(lambda: read(folder))


def test_a_template_that_is_not_jinja_is_refused(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% for m in messages %}\n{{ m.role }")
    assert "line 2" in refused(lambda: read(folder))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_epsilon_that_is_not_said_is_that_of_transformers(family: str) -> None:
    of = AutoConfig.for_model(family)
    names = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")
    (expected,) = (getattr(of, name) for name in names if hasattr(of, name))
    assert from_config({**CONFIG, "model_type": family}).epsilon == expected


def test_a_factor_of_positions_of_0_is_none() -> None:
    said = {"general.architecture": "llama", "llama.embedding_length": 64,
            "llama.block_count": 1, "llama.attention.head_count": 4,
            "llama.context_length": 128,
            "llama.attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip
    scaled = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}
    assert from_gguf({**said, **scaled}) == from_gguf(said)


def test_a_context_past_the_trained_one_is_warned_of(folder: Path) -> None:
    with pytest.warns(UserWarning, match="exceeds the 128 tokens"):
        read(folder, 500)
    wrongs: tuple[Any, ...] = (0, -1, "x", 1.5)
    for wrong in wrongs:
        assert "context" in refused(partial(read, folder, wrong))
    assert "1 to 128" in refused(lambda: from_config({**CONFIG, "model_type": "gpt2"}, context=129))
    assert "cpu" in refused(lambda: load(folder, target="cuda"))


@pytest.mark.parametrize(("field", "value"), [
    ("stop", [""]), ("stop", [3]), ("stop", 3), ("limit", 0), ("limit", 1.5), ("limit", True),
    ("logprobs", -1), ("sampling", 3), ("ends", 1), ("prompt", None), ("prompt", b"ab"),
    ("prompt", [96]), ("prompt", [-1]), ("prompt", [True]), ("prompt", "\ud800"), ("prompt", ""),
])  # fmt: skip
def test_requests_are_refused_by_field(field: str, value: Any) -> None:
    asked = {"prompt": "Hello", field: value}
    assert field in refused(lambda: list(generate(model("llama"), **asked)))


@pytest.mark.parametrize("wrong", [
    {"temperature": "x"}, {"temperature": None}, {"top_k": 1.5}, {"seed": 1 << 64}, {"top_p": True},
])  # fmt: skip
def test_types_of_sampling_are_refused_by_name(wrong: dict[str, Any]) -> None:
    assert next(iter(wrong)) in refused(lambda: Sampler(**wrong))


def test_one_stop_word_is_a_text() -> None:
    whole = "".join([each.text for each in generate(model("llama"), "Hello", limit=20)])
    found = "".join([e.text for e in generate(model("llama"), "Hello", limit=20, stop=whole[4:6])])
    assert found == whole[: whole.index(whole[4:6])]


@pytest.mark.parametrize("messages", [
    "hi", [], ["x"], [{}], [{"role": "user"}], [{"role": "frob", "content": "x"}],
    [{"role": "user", "content": 3}], [{"role": "user", "content": "x", "zzz": 1}],
    [{"role": "user", "content": "\ud800"}], [{"role": "user", "content": [{"type": "image"}]}],
])  # fmt: skip
def test_messages_are_refused(messages: Any) -> None:
    assert "messages" in refused(lambda: list(answer(model("llama"), messages)))
