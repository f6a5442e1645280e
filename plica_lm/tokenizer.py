"""Tokenizers: text to tokens and back, by the `tokenizers` package.

A Hugging Face folder has a `tokenizer.json`; of a GGUF file the same is made from its metadata,
for byte-level BPE (GPT-2, Llama 3, Qwen 2) and for SentencePiece BPE with byte fallback (Llama,
Mistral, Gemma).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

from plica.runtime.error import PlicaError
from plica_lm.refusal import DAMAGED, read_json, read_text, refusal, unsupported
from plica_lm.value import FLAG, TEXT, TOKEN, Value, check, integer, is_a, items

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
    """A tokenizer, its end tokens, and the chat template, if any."""

    inner: Any  # Any: a tokenizers.Tokenizer, which is imported late
    ends: frozenset[int] = frozenset()
    template: str | None = None
    bos: str = ""
    eos: str = ""

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text, with the initial ones if `special`."""
        check("prompt", text, TEXT, at="prompt")
        return list(self.inner.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self.inner.decode(list(tokens)))

    def stream(self) -> TokenStream:
        """From each next token to the text that is certain with it: parts of a character wait."""
        from tokenizers.decoders import DecodeStream

        return TokenStream(self, DecodeStream(skip_special_tokens=True))

    def name(self, token: int) -> str:
        """A token as the vocabulary spells it."""
        return str(self.inner.id_to_token(token))


@define(eq=False)
class TokenStream:
    """Incremental decoding of a token sequence."""

    tokenizer: Tokenizer
    state: Any  # Any: a tokenizers.decoders.DecodeStream
    tokens: list[int] = field(factory=list)
    length: int = 0

    def __call__(self, token: int) -> str:
        self.tokens.append(token)
        text: str = self.state.step(self.tokenizer.inner, token) or ""
        self.length += len(text)
        return text

    def rest(self) -> str:
        """The decoded rest of an incomplete character: U+FFFD."""
        return self.tokenizer.decode(self.tokens)[self.length :]


def from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder."""
    from tokenizers import Tokenizer as Inner

    file = folder / "tokenizer.json"
    text = read_text(file)
    with _described(f"{file.name} is damaged."):
        inner = Inner.from_str(text)
    config = {**_json(folder / "config.json"), **_json(folder / "generation_config.json")}
    path = folder / "tokenizer_config.json"
    said = _json(path)
    for name, value in FIELDS.items():
        if said.get(name) is not None:
            check(f"{name} in {path}", said[name], value, "bad-model")
    jinja = folder / "chat_template.jinja"
    template = read_text(jinja) if jinja.is_file() else said.get("chat_template")
    if isinstance(template, list):
        named = {each["name"]: each["template"] for each in template}
        template = named.get("default")
    bos, eos = (_word(said.get(f"{name}_token")) for name in ("bos", "eos"))
    ends = config.get("eos_token_id")
    if ends is not None:
        check(f"eos_token_id in {folder}", ends, items(TOKEN, "a token id, or a list"), "bad-model")
    found = {*(ends if isinstance(ends, list) else [ends]), inner.token_to_id(eos) if eos else None}
    return Tokenizer(inner, frozenset(found - {None}), template, bos, eos)


@contextmanager
def _described(message: str) -> Iterator[None]:
    """Turns errors of the package `tokenizers` into refusals."""
    try:
        yield
    except PlicaError:
        raise
    except Exception as error:  # noqa: BLE001  # the package raises no narrower class
        raise refusal("bad-model", message, "a tokenizer as `tokenizers` reads it", str(error),
                      DAMAGED) from None  # fmt: skip


_WORD: Final = Value((str, dict), "text, or an object with content", lambda found: isinstance(
    found if isinstance(found, str) else found.get("content"), str))  # fmt: skip
_TEMPLATE: Final = Value((dict,), "an object with name and template", lambda found: (
    isinstance(found.get("name"), str) and isinstance(found.get("template"), str)))  # fmt: skip
FIELDS: Final[Mapping[str, Value]] = {
    "bos_token": _WORD, "eos_token": _WORD,
    "chat_template": Value((str, list), "a template, or a list of named ones", lambda found: (
        isinstance(found, str) or all(is_a(each, _TEMPLATE) for each in found))),
}  # fmt: skip
"""The entries of `tokenizer_config.json` that are read."""


def _word(of: Any) -> str:  # Any: what JSON holds
    return str(of["content"]) if isinstance(of, dict) else of or ""


def _json(file: Path) -> dict[str, Any]:
    return read_json(read_text(file), file) if file.is_file() else {}


def _list_of(element: Value, words: str) -> Value:
    return Value((list,), words, lambda found: all(is_a(each, element) for each in found))


METADATA: Final[Mapping[str, Value]] = {
    "model": TEXT, "pre": TEXT, "tokens": _list_of(TEXT, "a list of texts"),
    "token_type": _list_of(integer(0, 6), "a list of integers from 0 to 6"),
    "scores": _list_of(Value((float,), "a number"), "a list of numbers"),
    "merges": _list_of(Value((str,), "two words", lambda text: " " in text[1:]),
                       "a list of pairs of words"),
    "add_bos_token": FLAG, "add_space_prefix": FLAG,
}  # fmt: skip
"""The metadata of a GGUF file that describe its tokenizer, below `tokenizer.ggml`."""


def from_metadata(of: Mapping[str, Any]) -> Tokenizer:  # Any: what GGUF holds
    """The tokenizer that is described by the metadata of a GGUF file."""
    from tokenizers import AddedToken, processors

    said = {key.removeprefix("tokenizer.ggml."): value for key, value in of.items()}
    kind = said.get("model", "")
    if kind not in MAKERS:
        raise unsupported("The tokenizer (tokenizer.ggml.model)", kind, MAKERS)
    for name, each in METADATA.items():
        needed = name in ("tokens", *NEEDED[kind])
        if needed or name in said:
            check(f"tokenizer.ggml.{name}", said.get(name), each, "bad-model")
    tokens: list[str] = said["tokens"]
    check("tokenizer.ggml.tokens", len(tokens), integer(1), "bad-model")
    for name in ("bos", "eos", "eot", "eom", "unknown"):
        if f"{name}_token_id" in said:
            check(f"tokenizer.ggml.{name}_token_id", said[f"{name}_token_id"],
                  integer(0, len(tokens) - 1), "bad-model")  # fmt: skip
    kinds: list[int] = list(said.get("token_type", ()))
    with _described("The tokenizer in the metadata (tokenizer.ggml) is damaged."):
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
    if template is not None:
        check("tokenizer.chat_template", template, TEXT, "bad-model")
    known = frozenset(end for end in ends if end is not None)
    return Tokenizer(inner, known, template, first, tokens[eos] if eos is not None else "")


def _byte_level(said: Mapping[str, Any], tokens: Sequence[str]) -> Any:  # Any: as above
    from tokenizers import Regex, Tokenizer as Inner, decoders, models, pre_tokenizers

    kind = said.get("pre", "default")
    if kind not in SPLITS:
        raise unsupported("The word split (tokenizer.ggml.pre)", kind, SPLITS)
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

NEEDED: Final[Mapping[str, tuple[str, ...]]] = {"gpt2": ("merges",), "llama": ("scores",)}
"""The metadata that each kind requires, besides `tokens`."""
