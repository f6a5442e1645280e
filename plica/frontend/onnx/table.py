"""The table: one row for each ONNX operator, a function from a node to terms.

The rows stand in several files, which are loaded one after the other until the operator is found:
a model loads those of its own operators and few more.

>>> sorted(TABLE)[:3]
['Abs', 'Acos', 'Acosh']
>>> "Conv" in TABLE, "Hovercraft" in TABLE
(True, False)
>>> REASONS["StringSplit"]
'strings are not supported'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from plica.frontend.onnx.attribute import RefusedForGood
from plica.frontend.onnx.row.word import Row

FILES: Final = (
    "linear", "window", "shape", "elementwise", "part", "pool", "norm", "reduction", "index",
    "create", "quantise", "resize", "control", "scan", "recurrent", "sample", "signal", "detect",
    "patch", "affine", "unpool", "loss", "sequence", "ngram", "determinant", "bit",
)  # fmt: skip
"""The files of `plica.frontend.onnx.row`, the commonest operators first."""


class Table(Mapping[str, Row]):
    """Rows by the name of the operator."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._rows: dict[str, Row] = {}
        self._loaded = 0

    def __getitem__(self, name: str) -> Row:
        while name not in self._rows and self._loaded < len(self._files):
            self._load()
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        while self._loaded < len(self._files):
            self._load()
        return iter(self._rows)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _load(self) -> None:
        file = import_module(f"plica.frontend.onnx.row.{self._files[self._loaded]}")
        self._rows.update(file.TABLE)
        self._loaded += 1


TABLE: Final = Table(FILES)

TABLES: Final[Mapping[str, Table]] = {
    "": TABLE,
    "ai.onnx.ml": Table(("tree", "learned")),
    "com.microsoft": Table(("fused", "quantised", "contributed")),
}
"""The rows of each domain that has any; of others only what is defined by the standard is read."""


class MissingOperators(RefusedForGood):
    """The model has operators that there are not."""


_WHY: Final[dict[str, tuple[str, ...]]] = {
    "random numbers are not supported": (
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike",
    ),
    "strings are not supported": (
        "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit",
    ),
    "image files are not supported": ("ImageDecoder",),
    "it is not implemented yet": (
        "MaxRoiPool",
    ),
}  # fmt: skip

REASONS: Final = {name: why for why, names in _WHY.items() for name in names}
"""Why an operator is refused; a test holds the names to the standard's."""

LEARNED_REASONS: Final = {
    "CastMap": "maps are not supported",
    "CategoryMapper": "strings are not supported",
    "DictVectorizer": "maps are not supported",
    "SVMClassifier": "it is not implemented yet",
    "SVMRegressor": "it is not implemented yet",
    "ZipMap": "maps are not supported; export with `zipmap=False`",
}
"""Why an operator of ai.onnx.ml is refused."""


def reason_of(name: str, domain: str) -> str | None:
    """Why an operator is refused, if that can be said."""
    return {"": REASONS, "ai.onnx.ml": LEARNED_REASONS}.get(domain, {}).get(name)
