"""External code generators: libraries and compilers of others that take parts of a model.

class Blas:                                     what it can do, and how
    name = "blas"
    patterns = (("product", x @ y),)
    def build(self, region): return a function of arrays

exe = compile_external(model, [Blas()])
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from os import PathLike
from pathlib import Path
from shutil import which
from typing import Any, Protocol, TypeAlias

import numpy as np
from attrs import field, frozen

from plica.core import Term
from plica.extending.package import ExtensionVerdict
from plica.ir.contract import Contract, approx
from plica.ir.graph import Function, Module, main_module
from plica.ir.interpret.interpreter import interpret
from plica.ir.text.script import Scripted, as_module
from plica.ir.type import infer
from plica.pipeline import compile
from plica.rewrite.check.compare import difference
from plica.rewrite.check.data import seeded
from plica.rewrite.check.instance import instance
from plica.rewrite.code_region import CodeRegion, outlined
from plica.runtime.error import Diagnostic, PlicaError, UnsupportedError, wrong_argument
from plica.runtime.executable import Executable

Served: TypeAlias = str | PathLike[str] | Callable[..., Any]  # Any: arrays in, an array or several


class ExternalGenerator(Protocol):
    """What another code generator declares of itself."""

    @property
    def name(self) -> str:
        """What the symbols of its regions begin with."""

    @property
    def patterns(self) -> Sequence[tuple[str, Any]]:  # Any: a term with holes
        """What it can do: a word and a pattern each."""

    def build(self, region: CodeRegion) -> Served | None:
        """What computes a region; None where it had better stay here."""


class SourceGenerator:
    """A generator of C: `source` gives a text that defines the region's symbol.

    void SYMBOL(const float *x0, …, float *out0, …)      inputs, then outputs, rows in order
    """

    name: str = ""
    patterns: Sequence[tuple[str, Any]] = ()  # as above
    flags: tuple[str, ...] = ("-std=c99", "-O2", "-fPIC", "-shared")

    def __init__(self, folder: str | PathLike[str] | None = None) -> None:
        self.folder = Path(folder or tempfile.mkdtemp(prefix="plica-"))

    def source(self, region: CodeRegion) -> str | None:
        """The text for a region; None where it had better stay here."""
        raise NotImplementedError

    def build(self, region: CodeRegion) -> Served | None:
        """The library that the text of a region becomes."""
        if (text := self.source(region)) is None:
            return None
        if which("cc") is None:
            message, hint = "There is no C compiler.", "apt-get install gcc"
            raise UnsupportedError(Diagnostic("no-toolchain", message, None, "cc", "none", hint))
        # By its text: a process that has loaded a file never looks at it again.
        word = f"{region.symbol}_{sha256(text.encode()).hexdigest()[:12]}"
        path = self.folder / f"lib{word}.so"
        (self.folder / f"{word}.c").write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["cc", f"{word}.c", *self.flags, "-o", path.name, "-lm"],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            message = f"The C compiler refuses what {self.name!r} made of a region."
            said = " / ".join(done.stderr.strip().splitlines()[:4])
            raise UnsupportedError(Diagnostic("toolchain", message, None, "a library", said))
        return path


@frozen(eq=False)
class Outsourced:
    """A module that calls generators, what serves each call, and the regions of each."""

    module: Module
    externs: Mapping[str, Any]  # Any: a library or a function, as `plica.compile` takes them
    regions: tuple[tuple[str, CodeRegion], ...] = field(factory=tuple)

    @property
    def report(self) -> str:
        """Which regions go where; a line each."""
        lines = [
            f"{name}  {each.symbol}: {', '.join(each.patterns)}" for name, each in self.regions
        ]
        return "\n".join(lines) or "no region was taken"


def outsourced(mod: Module | Scripted, generators: Sequence[ExternalGenerator]) -> Outsourced:
    """The module with what generators take as calls; the first that takes a part has it."""
    known: Module = as_module(mod)
    externs: dict[str, Served] = {}
    regions: list[tuple[str, CodeRegion]] = []
    for generator in _checked(generators):
        if not generator.name.isidentifier():
            message = "The name of a code generator begins the symbols of its regions."
            expected = "letters, digits and _"
            raise UnsupportedError(
                Diagnostic("unsupported", message, None, expected, repr(generator.name))
            )

        def takes(region: CodeRegion, each: ExternalGenerator = generator) -> bool:
            served = each.build(region)
            if served is None:
                return False
            externs[region.symbol] = served
            regions.append((each.name, region))
            return True

        known = outlined(known, tuple(generator.patterns), f"plica_{generator.name}", takes).module
    return Outsourced(known, externs, tuple(regions))


def _checked(generators: Any) -> Sequence[ExternalGenerator]:  # Any: what is looked at here
    """Code generators, if they are such: a name, a table of patterns, a hook each."""
    given: Sequence[Any] = generators if isinstance(generators, Sequence) else (generators,)
    for each in given:
        name, patterns, build = (getattr(each, of, None) for of in ("name", "patterns", "build"))
        if not (isinstance(name, str) and isinstance(patterns, Sequence) and callable(build)):
            expected = "what has a name, patterns and a hook `build`"
            raise wrong_argument("This is no code generator.", expected, each)
        for row in patterns:
            if not (isinstance(row, Sequence) and len(row) == 2 and isinstance(row[1], Term)):
                message = f"The generator {name!r} has a row that is no pattern."
                raise wrong_argument(message, "a word, and a term with holes", row)
    return given


def compile_external(
    mod: Module | Scripted,
    generators: Sequence[ExternalGenerator],
    **options: Any,  # as `plica.compile` has them
) -> Executable:
    """The model compiled, but for what the generators take."""
    parts = outsourced(mod, generators)
    given = dict(options.pop("externs", None) or {})
    return compile(parts.module, externs={**given, **parts.externs}, **options)


def check_generator(
    of: ExternalGenerator,
    examples: int = 20,
    seed: int = 0,
    contract: Contract = approx(1e-4),  # noqa: B008  # a value
) -> tuple[ExtensionVerdict, ...]:
    """A verdict for each pattern: instances are drawn of it, compiled with the generator, and held
    to the interpreter."""
    seeds = range(seed * examples, (seed + 1) * examples)
    return tuple([_verdict(of, word, pattern, seeds, contract) for word, pattern in of.patterns])


def _verdict(
    of: ExternalGenerator, word: str, pattern: Term, seeds: Sequence[int], contract: Contract
) -> ExtensionVerdict:
    group, name = "external", f"{of.name}.{word}"
    taken = 0
    for number in seeds:
        made = instance(pattern, seeded(number))
        if made is None or not made.inputs:
            continue
        variables = tuple([var for var, _ in made.inputs])
        arrays = [np.where(np.isfinite(a), a, 1) if a.dtype.kind == "f" else a
                  for _, a in made.inputs]  # fmt: skip
        arrays = [np.asarray(a, b.dtype) for a, (_, b) in zip(arrays, made.inputs, strict=True)]
        whole = infer(main_module(Function((), (), variables, None, made.term)))
        try:
            parts = outsourced(whole, [of])
            if not parts.regions:
                continue
            found = compile(parts.module, externs=parts.externs, cache=False)(*arrays)
        except PlicaError as error:
            return ExtensionVerdict(group, name, "refuted", f"it fails: {error}", str(whole))
        taken += 1
        with np.errstate(all="ignore"):
            wanted = interpret(whole, *arrays)
            size = max([float(np.abs(a).sum(dtype=np.float64)) for a in arrays], default=1.0)
        why = difference(found, wanted, contract, size if np.isfinite(size) else 0.0)
        if why is not None:
            return ExtensionVerdict(group, name, "refuted", why, str(whole))
    if not taken:
        return ExtensionVerdict(group, name, "untested", "it took none of the instances")
    return ExtensionVerdict(group, name, "tested", f"{taken} instances agree")
