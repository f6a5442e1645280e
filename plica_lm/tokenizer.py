"""Tokenizers: text to tokens and back, by the `tokenizers` package.

A folder of Hugging Face has a `tokenizer.json`; of a GGUF file the same is made from its metadata,
for byte-level BPE (GPT-2, Llama 3, Qwen 2) and for SentencePiece BPE with byte fallback (Llama,
Mistral, Gemma).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica_lm.architecture import unsupported

MAX_JSON_BYTES: Final = 1 << 28

_LETTERS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SPLITS: Final[Mapping[str, str | None]] = {
    "default": None, "gpt-2": None, "phi-2": None, "llama-bpe": _LETTERS % "{1,3}",
    "qwen2": _LETTERS % "",
}  # fmt: skip
"""The expression that words of byte-level BPE are split by; None is that of GPT-2."""

CONTROL, USER = 3, 4
"""The types of tokens that GGUF has, of those that no text is split into by merges."""


@frozen(eq=False)
class Tokenizer:
    """A tokenizer, the tokens that end a text, and the template of a chat if there is one."""

    inner: Any  # Any: a tokenizers.Tokenizer, which is imported late
    ends: frozenset[int] = frozenset()
    template: str | None = None
    bos: str = ""
    eos: str = ""

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text, with what a text begins with if `special`."""
        return list(self.inner.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self.inner.decode(list(tokens)))

    def stream(self) -> Callable[[int], str]:
        """From each next token to the text that is certain with it: parts of a character wait."""
        from tokenizers.decoders import DecodeStream

        state = DecodeStream(skip_special_tokens=True)
        return lambda token: state.step(self.inner, token) or ""

    def name(self, token: int) -> str:
        """A token as the vocabulary spells it."""
        return str(self.inner.id_to_token(token))


def from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a folder of Hugging Face."""
    from tokenizers import Tokenizer as Inner

    file = folder / "tokenizer.json"
    if not file.is_file():
        message = "There is no tokenizer."
        raise UnsupportedError(Diagnostic("bad-model", message, Place(file=str(folder)),
                                          "tokenizer.json, as `tokenizers` reads it"))  # fmt: skip
    inner = Inner.from_str(_text(file))
    config = {**_json(folder / "config.json"), **_json(folder / "generation_config.json")}
    said = _json(folder / "tokenizer_config.json")
    jinja = folder / "chat_template.jinja"
    template = _text(jinja) if jinja.is_file() else said.get("chat_template")
    if isinstance(template, list):
        named = {each["name"]: each["template"] for each in template}
        template = named.get("default")
    bos, eos = (_word(said.get(f"{name}_token")) for name in ("bos", "eos"))
    ends = config.get("eos_token_id")
    found = {*(ends if isinstance(ends, list) else [ends]), inner.token_to_id(eos) if eos else None}
    return Tokenizer(inner, frozenset(found - {None}), template, bos, eos)


def _word(of: Any) -> str:  # Any: what JSON holds
    return str(of["content"]) if isinstance(of, dict) else of or ""


def _json(file: Path) -> dict[str, Any]:
    return json.loads(_text(file)) if file.is_file() else {}


def _text(file: Path) -> str:
    if file.stat().st_size > MAX_JSON_BYTES:
        message, expected = "A file of a tokenizer is too large.", f"{MAX_JSON_BYTES} bytes or less"
        raise UnsupportedError(Diagnostic("too-large", message, Place(file=str(file)), expected))
    return file.read_text(encoding="utf-8")


def from_metadata(of: Mapping[str, Any]) -> Tokenizer:  # Any: what GGUF holds
    """The tokenizer that is described by the metadata of a GGUF file."""
    from tokenizers import AddedToken, processors

    said = {key.removeprefix("tokenizer.ggml."): value for key, value in of.items()}
    tokens: list[str] = list(said.get("tokens", ()))
    kinds: list[int] = list(said.get("token_type", ()))
    kind = said.get("model", "")
    if kind not in MAKERS:
        raise unsupported("Tokenizers of kind", kind, MAKERS)
    inner = MAKERS[kind](said, tokens)
    for wanted, special in ((USER, False), (CONTROL, True)):
        words = [word for word, each in zip(tokens, kinds, strict=False) if each == wanted]
        inner.add_tokens([AddedToken(word, special=special, normalized=False) for word in words])
    bos, eos = (said.get(f"{name}_token_id") for name in ("bos", "eos"))
    first = tokens[bos] if bos is not None else ""
    if said.get("add_bos_token", kind == "llama") and bos is not None:
        inner.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A $B", special_tokens=[(first, bos)]
        )
    ends = [said.get(f"{name}_token_id") for name in ("eos", "eot", "eom")]
    template = of.get("tokenizer.chat_template")
    known = frozenset(each for each in ends if each is not None)
    return Tokenizer(inner, known, template, first, tokens[eos] if eos else "")


def _byte_level(said: Mapping[str, Any], tokens: Sequence[str]) -> Any:  # Any: as above
    from tokenizers import Regex, Tokenizer as Inner, decoders, models, pre_tokenizers

    kind = said.get("pre", "default")
    if kind not in SPLITS:
        raise unsupported("Byte-level tokenizers that split words as", kind, SPLITS)
    merges = [tuple(each.split(" ", 1)) for each in said.get("merges", ())]
    vocabulary = {word: at for at, word in enumerate(tokens)}
    inner = Inner(models.BPE(vocabulary, merges, ignore_merges=kind == "llama-bpe"))
    split = SPLITS[kind]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    steps = [] if split is None else [pre_tokenizers.Split(Regex(split), "isolated")]
    inner.pre_tokenizer = pre_tokenizers.Sequence([*steps, level])
    inner.decoder = decoders.ByteLevel()
    return inner


def _sentence_piece(said: Mapping[str, Any], tokens: Sequence[str]) -> Any:  # Any: as above
    from tokenizers import Tokenizer as Inner, decoders, models, normalizers

    vocabulary = {word: at for at, word in enumerate(tokens)}
    scores = said["scores"]
    ranked = sorted(
        ((scores[at], left, right) for word, at in vocabulary.items() for cut in range(1, len(word))
         if (left := word[:cut]) in vocabulary and (right := word[cut:]) in vocabulary),
        key=lambda each: (-each[0], vocabulary[each[1]], vocabulary[each[2]]),
    )  # fmt: skip
    merges = [(left, right) for _, left, right in ranked]
    unknown = tokens[said.get("unknown_token_id", 0)]
    inner = Inner(models.BPE(vocabulary, merges, byte_fallback=True, unk_token=unknown,
                             fuse_unk=True))  # fmt: skip
    prefix = said.get("add_space_prefix", True)
    begin = [normalizers.Prepend("▁")] if prefix else []
    inner.normalizer = normalizers.Sequence([*begin, normalizers.Replace(" ", "▁")])
    end = [decoders.Strip(" ", 1, 0)] if prefix else []
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *end]
    )
    return inner


MAKERS: Final[Mapping[str, Callable[[Mapping[str, Any], Sequence[str]], Any]]] = {
    "gpt2": _byte_level, "llama": _sentence_piece,
}  # fmt: skip
"""What makes a tokenizer of each kind that GGUF names; Any: as above."""
