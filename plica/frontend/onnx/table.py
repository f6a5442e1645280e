"""The table: one row for each ONNX operator, a function from a node to terms.

>>> sorted(TABLE)[:3]
['Abs', 'Acos', 'Acosh']
>>> "Conv" in TABLE, "Hovercraft" in TABLE
(True, False)
>>> REASONS["StringSplit"]
'strings are not supported'

Supported versions and operators.

All operators that are not supported are listed at once, before any node is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from plica.core.diagnostic import Malformed
from plica.frontend.onnx.attribute import RefusedForGood, name_of
from plica.frontend.onnx.order import domain_of, every_node, opset_versions
from plica.frontend.onnx.row.word import Row
from plica.frontend.onnx.schema import schema_of
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.frontend.onnx.expand import has_definition

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto


OLDEST: Final = 6  # operators of earlier versions have other meanings, which are not supported


def _unchanged(names: Iterable[str], version: int) -> bool:
    """Whether operators of an old version mean what they mean in the oldest that is read."""
    if version < 1:
        return False
    pairs = [[schema_of(name, at, "") for at in (version, OLDEST)] for name in names]
    return all(
        a is not None and b is not None and a.since_version == b.since_version for a, b in pairs
    )


def check_versions(opsets: Mapping[str, int], names: Iterable[str]) -> None:
    """Refuse versions of the standard's operators that have other meanings, or are not known."""
    from onnx import defs

    newest = defs.onnx_opset_version()
    version = opsets.get("")
    if version is not None and version < OLDEST and _unchanged(names, version):
        return
    if version is not None and not OLDEST <= version <= newest:
        message = f"Version {version} of the ONNX operators is not supported."
        code = "newer-version" if version > newest else "unsupported"
        raise UnsupportedError.of(code, message, None, f"{OLDEST} to {newest}", str(version))


def check_operators(
    graph: GraphProto,
    functions: Mapping[tuple[str, str, str], FunctionProto],
    opsets: Mapping[str, int],
) -> None:
    """List every operator that is not supported, with the names of its nodes."""
    wrong: list[Diagnostic] = []
    lost: list[Diagnostic] = []
    places = [(graph.node, opsets, "")]
    for name, proto in functions.items():
        places.append((proto.node, opset_versions(proto.opset_import), f"{name[1]}/"))
    for nodes, versions, prefix in places:
        for node, before in every_node(nodes, prefix):
            domain = domain_of(node)
            if (domain, node.op_type, node.overload) in functions:
                continue
            if domain not in versions:
                message = f"The domain {domain!r} of {node.op_type} is not imported."
                lost.append(Diagnostic("bad-model", message, Place(node=before + name_of(node))))
            elif not _is_read(node.op_type, versions[domain], domain):
                wrong.append(missing(node, domain, before + name_of(node)))
    if wrong:
        raise MissingOperators(wrong[0], *wrong[1:], *lost)
    if lost:
        raise Malformed(lost[0], *lost[1:])


def _is_read(name: str, version: int, domain: str) -> bool:
    """Whether there is a row, or a definition by operators with rows."""
    if domain in TABLES and name in TABLES[domain]:
        return True
    return reason_of(name, domain) is None and has_definition(name, version, domain)


def missing(proto: NodeProto, domain: str, place: str) -> Diagnostic:
    """The diagnostic of an operator without a row."""
    name = f"{domain}.{proto.op_type}" if domain else proto.op_type
    reason = reason_of(proto.op_type, domain)
    message = f"The operator {name} is not supported{f': {reason}' if reason else ''}."
    hint = "docs/onnx.md lists the operators that are."
    return Diagnostic("unsupported", message, Place(node=place), None, name, hint)


FILES: Final = (
    "linear", "window", "shape", "elementwise", "part", "pool", "norm", "reduction", "index",
    "create", "quantise", "resize", "control", "scan", "recurrent", "sample", "signal", "detect",
    "patch", "sequence", "ngram",
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
    "com.microsoft": Table(("fused", "quantised")),
}
"""The rows of each domain; other domains only have the standard's definitions."""


class MissingOperators(RefusedForGood):
    """The model has unknown operators."""


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
"""Why an operator is refused; a test compares the names with the standard."""
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
