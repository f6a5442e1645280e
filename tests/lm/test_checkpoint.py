"""Checkpoints: what was written is read, without a copy; damaged files are refused clearly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import plica
from plica.ir.type.dtype import bf16, f16, f32
from plica_lm.format import FORMATS
from plica_lm.gguf import TYPES, open_gguf
from plica_lm.safetensors import INDEX, open_safetensors

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
TENSORS: dict[str, Array] = {
    "a": RANDOM.standard_normal((5, 7)).astype(np.float32),
    "b": RANDOM.standard_normal((3, 2, 4)).astype(np.float16),
    "c": RANDOM.standard_normal(6).astype(ml_dtypes.bfloat16),
    "empty": np.zeros((0, 4), np.float32),
}
CONFIG = {"model_type": "llama", "hidden_size": 64}


def write_folder(folder: Path, shards: int = 1) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names = list(TENSORS)
    if shards == 1:
        save_file(TENSORS, folder / "model.safetensors")
        return folder
    where = {name: f"model-{n % shards}.safetensors" for n, name in enumerate(names)}
    for file in set(where.values()):
        save_file({name: TENSORS[name] for name in names if where[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": where}))
    return folder


def write_gguf(path: Path) -> Path:
    made = gguf.GGUFWriter(path, "llama")
    made.add_uint32("llama.block_count", 2)
    made.add_float32("llama.rope.freq_base", 10000.0)
    made.add_bool("tokenizer.ggml.add_bos_token", True)
    made.add_array("tokenizer.ggml.tokens", ["<s>", "é", "a", "aa"])
    made.add_string("tokenizer.ggml.model", "gpt2")
    made.add_array("tokenizer.ggml.merges", ["a a"])
    made.add_array("tokenizer.ggml.scores", [0.5, -1.0, 2.0, 3.0])
    made.add_tensor("dense", TENSORS["a"])
    made.add_tensor("half", TENSORS["b"])
    for name in ("Q4_0", "Q8_0"):
        kind = gguf.GGMLQuantizationType[name]
        packed = gguf.quants.quantize(RANDOM.standard_normal((6, 64)).astype(np.float32), kind)
        made.add_tensor(name, packed, raw_dtype=kind)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()
    return path


@pytest.mark.parametrize("shards", [1, 2])
def test_safetensors(tmp_path: Path, shards: int) -> None:
    found = open_safetensors(write_folder(tmp_path / "m", shards))
    assert found.config == CONFIG
    assert set(found.weights) == set(TENSORS)
    for name, each in TENSORS.items():
        weight = found.weights[name]
        assert weight.shape == each.shape
        assert weight.data.dtype == each.dtype
        np.testing.assert_array_equal(weight.data, each)
        assert not weight.data.flags.owndata
    assert [found.weights[name].format for name in "abc"] == [f32, f16, bf16]


def test_gguf(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    found = open_gguf(path)
    assert found.config["general.architecture"] == "llama"
    assert found.config["llama.block_count"] == 2
    assert found.config["tokenizer.ggml.tokens"] == ["<s>", "é", "a", "aa"]
    assert found.config["tokenizer.ggml.scores"] == [0.5, -1.0, 2.0, 3.0]
    assert found.config["tokenizer.ggml.add_bos_token"] is True
    assert found.tokenizer().encode("a") == [2]
    np.testing.assert_array_equal(found.weights["dense"].data, TENSORS["a"])
    np.testing.assert_array_equal(found.weights["half"].data, TENSORS["b"])
    for each in gguf.GGUFReader(path).tensors:
        weight = found.weights[each.name]
        np.testing.assert_array_equal(weight.data.reshape(-1), np.asarray(each.data).reshape(-1))
    weight = found.weights["Q4_0"]
    assert (weight.shape, weight.format, weight.data.shape) == ((6, 64), FORMATS["Q4_0"], (6, 36))


def test_every_type_that_is_known_has_its_number() -> None:
    for number, name in TYPES.items():
        assert gguf.GGMLQuantizationType[name.upper()] == number
    assert set(FORMATS) <= set(TYPES.values())


def damaged(whole: bytes, count: int) -> list[bytes]:
    """Prefixes, and files with some bytes changed, mostly at the beginning."""
    random = np.random.default_rng(1)
    found = [whole[: int(n)] for n in random.integers(0, len(whole), count)]
    found += [whole[:n] for n in range(0, min(len(whole), 400), 7)]
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(int(random.integers(1, 4))):
            span = len(data) if random.random() < 0.2 else min(len(data), 600)
            data[int(random.integers(span))] = int(random.integers(256))
        found.append(bytes(data))
    return found


def test_damaged_files_are_refused_or_read(tmp_path: Path) -> None:
    refused = 0
    one = write_folder(tmp_path / "m") / "model.safetensors"
    other = write_gguf(tmp_path / "m.gguf")
    for path, opened in ((one, open_safetensors), (other, open_gguf)):
        for data in damaged(path.read_bytes(), 300):
            path.write_bytes(data)
            try:
                for each in opened(path).weights.values():
                    np.asarray(each.data).tobytes()
            except plica.PlicaError as error:
                said = f"{error.code} {error}"
                refused += said.startswith("bad-model") and str(path) in said
    assert refused > 500


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "wrong size"),
        ({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}, "unknown dtype"),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, "wrong shape"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "behind the file"),
        ({"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}, "longer than its tensors"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
          "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, "overlaps"),
        ([], "not a JSON object"),
    ],
)  # fmt: skip
def test_a_wrong_header_is_refused(tmp_path: Path, header: Any, message: str) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(plica.PlicaError, match=message):
        open_safetensors(path)


def test_an_index_names_no_path(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text('{"weight_map": {"a": "../x.safetensors"}}')
    with pytest.raises(plica.PlicaError, match="outside of its folder"):
        open_safetensors(tmp_path)
    with pytest.raises(plica.PlicaError, match="cannot be read"):
        open_safetensors(tmp_path / "none")
