"""Tokenizers of folders and of GGUF metadata, and templates of chats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plica.core.diagnostic import Malformed
from plica.runtime.error import InputError, PlicaError, UnsupportedError
from plica_lm.chat import rendered
from plica_lm.tokenizer import SPLITS, Tokenizer, from_folder, from_metadata

TEXTS = ("Hello, world!", "  two  spaces\n\nand 12345 lines\t", "ünïcödé 🙂 漢字", "",
         "<s> it's WE'LL", "def f(x):\n    return x  # 3.14\r\n")  # fmt: skip


def trained(split: str | None) -> Any:
    """A byte-level BPE that was trained on this file."""
    from tokenizers import Regex, Tokenizer as Inner, decoders, models, pre_tokenizers, trainers

    inner = Inner(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    first = [] if split is None else [pre_tokenizers.Split(Regex(split), "isolated")]
    inner.pre_tokenizer = pre_tokenizers.Sequence([*first, level])
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        [Path(__file__).read_text(encoding="utf-8"), *TEXTS],
        trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, special_tokens=["<s>"]),
    )
    return inner


def pieces() -> Any:
    """A SentencePiece BPE that was trained on this file."""
    from tokenizers import Tokenizer as Inner, decoders, models, normalizers, trainers

    inner = Inner(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    inner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    inner.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    special = ["<unk>", "<s>", "</s>", *(f"<0x{at:02X}>" for at in range(256))]
    text = Path(__file__).read_text(encoding="ascii", errors="ignore")
    inner.train_from_iterator(text.split("\n"), trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, max_token_length=8))  # fmt: skip
    return inner


def metadata(inner: Any, **more: Any) -> dict[str, Any]:
    said = json.loads(inner.to_str())["model"]
    words = sorted(said["vocab"], key=said["vocab"].get)
    control = {"<s>", "</s>"}
    return {
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3 if each in control else 1 for each in words],
        "tokenizer.ggml.merges": [" ".join(each) for each in said["merges"]],
        "tokenizer.ggml.scores": [-float(at) for at in range(len(words))],
        **{f"tokenizer.ggml.{name}": value for name, value in more.items()},
    }


def streamed(of: Tokenizer, tokens: list[int]) -> str:
    push = of.stream()
    return "".join([push(each) for each in tokens])


@pytest.mark.parametrize("kind", SPLITS)
def test_byte_level_tokenizers_of_gguf_are_those_they_were_made_of(kind: str) -> None:
    inner = trained(SPLITS[kind])
    of = from_metadata(metadata(inner, model="gpt2", pre=kind, eos_token_id=5))
    for text in TEXTS:
        tokens = of.encode(text)
        if kind != "llama-bpe":  # which takes whole words first
            assert tokens == inner.encode(text).ids
        said = text.replace("<s>", "")
        assert of.decode(tokens) == said
        assert streamed(of, tokens) == said
    assert of.ends == {5}


def test_pieces_of_gguf_are_those_they_were_made_of() -> None:
    inner = pieces()
    of = from_metadata(metadata(inner, model="llama", bos_token_id=1, eos_token_id=2))
    for text in TEXTS[:4]:
        assert of.encode(text) == [1, *inner.encode(text, add_special_tokens=False).ids]
        assert of.decode(of.encode(text)) == text
        assert of.encode(text, special=False)[:1] != [1]
    assert (of.bos, of.eos, of.ends) == ("<s>", "</s>", frozenset({2}))
    assert streamed(of, of.encode("漢字 is said")) == "漢字 is said"


def test_an_incomplete_character_at_the_end_is_replaced() -> None:
    of = from_metadata(metadata(trained(None), model="gpt2"))
    tokens = of.encode("né漢")
    stream = of.stream()
    text = "".join([stream(each) for each in tokens[:-1]])
    assert text + stream.rest() == of.decode(tokens[:-1])
    assert stream.rest() in ("", "\ufffd")


def test_a_folder_says_how_texts_end_and_how_chats_look(tmp_path: Path) -> None:
    inner = trained(None)
    (tmp_path / "tokenizer.json").write_text(inner.to_str(), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "eos_token": {"content": "<s>"}, "bos_token": None,
        "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default",
                           "template": "d"}]}))  # fmt: skip
    of = from_folder(tmp_path)
    assert (of.ends, of.eos, of.bos, of.template) == (frozenset({0, 7, 9}), "<s>", "", "d")
    (tmp_path / "chat_template.jinja").write_text("j")
    assert from_folder(tmp_path).template == "j"
    assert of.encode("Hello") == inner.encode("Hello").ids
    with pytest.raises(Malformed, match=r"tokenizer\.json cannot be read"):
        from_folder(tmp_path / "other")


def test_kinds_that_are_not_known_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="'bert' is not supported"):
        from_metadata({"tokenizer.ggml.model": "bert"})
    few = {"tokens": ["a"], "merges": [], "model": "gpt2"}
    said = {f"tokenizer.ggml.{name}": value for name, value in few.items()}
    with pytest.raises(UnsupportedError, match=r"'qwen' is not[\s\S]*mean 'qwen2'"):
        from_metadata({**said, "tokenizer.ggml.pre": "qwen"})
    for name in few:
        with pytest.raises(PlicaError, match=name):
            from_metadata({key: said[key] for key in said if not key.endswith(name)})
    for name, wrong in (("tokens", [3]), ("merges", ["ab"]), ("merges", ["x y"]),
                        ("eos_token_id", 1), ("bos_token_id", "a")):  # fmt: skip
        with pytest.raises(Malformed, match="ggml"):
            from_metadata({**said, f"tokenizer.ggml.{name}": wrong})


def test_templates_are_rendered_in_a_sandbox() -> None:
    said = [{"role": "user", "content": "a<b"}]
    found = rendered(
        "{{ bos_token }}{% for m in messages %}\n[{{ m['role'] }}] {{ m.content | tojson }}\n"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}", said, bos="<s>"
    )  # fmt: skip
    assert found == '<s>[user] "a<b"\n[assistant]'
    assert rendered(None, said) == "user: a<b\nassistant:"
    for wrong in (
        "{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}",
        "{% for x in range(10**9) %}{% endfor %}",
        "{% include 'x' %}", "{{ 1 / 0 }}", "{{ messages[3].content + 1 }}", "{% for",
        "{% for i in range(90000) %}{{ 'x' * 100 }}{% endfor %}",
    ):  # fmt: skip
        with pytest.raises(InputError, match="chat template refuses"):
            rendered(wrong, said)
