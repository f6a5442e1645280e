"""Judging: whether the one code of a program with open sizes computes what the program means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from warnings import catch_warnings, simplefilter

import numpy as np
from attrs import asdict, evolve, frozen

from plica.codegen.open_fuzz.case import Case, arrays_for, with_names
from plica.codegen.open_fuzz.peer import Array, meaning
from plica.core import Term
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.loop.scalar import Scalar
from plica.ir.text.show.type import show_dim
from plica.ir.type import TensorType, dim_var, known
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.runtime.error import EvaluationError, InputError, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.open_executable import OpenExecutable
from plica.runtime.process import Died, apart

Compile: TypeAlias = Callable[[Module, int, "str | None"], Executable]
"""One code for a module, on this many threads, under a contract; what has none is refused."""

Kind: TypeAlias = Literal["passed", "refused", "meaning", "names", "crash"]

NEAR: Final = 1e-4  # how far a result may always be off, of its largest number
GROWN: Final = 30.0
"""By how much more than the interpreter's rounding native code may be off, and the like."""


@frozen
class CaseVerdict:
    """What became of a case."""

    kind: Kind
    reason: str = ""
    runs: int = 0
    without_value: int = 0

    @property
    def is_wrong(self) -> bool:
        """Whether this is what is looked for."""
        return self.kind in ("meaning", "names", "crash")


def judge(
    of: Case, compiled: Compile, *, renames: bool = True, isolated: bool = True
) -> CaseVerdict:
    """What becomes of a case, in a process of its own if `isolated`: it may die."""
    if not isolated:
        return judged(of, compiled, renames=renames)
    said = apart(lambda: json.dumps(asdict(judged(of, compiled, renames=renames))).encode())
    if isinstance(said, Died):
        last = str(said).strip().splitlines()[-1:] or ["it says nothing"]
        return CaseVerdict("crash", last[0])
    return CaseVerdict(**json.loads(said))


def judged(of: Case, compiled: Compile, *, renames: bool = True) -> CaseVerdict:
    """What becomes of a case, in this process."""
    try:
        verdict = _agrees(of, compiled(of.module, of.threads, of.contract), of.module, of.sizes)
        if verdict.is_wrong or not renames:
            return verdict
        names = of.renamed
        other = with_names(of.module, names)
        exe = compiled(other, of.threads, of.contract)
        wrong = _names_wrong(exe, other, tuple([names[dim] for dim in of.dims]))
        if wrong is not None:
            return CaseVerdict("names", wrong)
        sizes = [{names[name]: size for name, size in each.items()} for each in of.sizes]
        again = _agrees(of, exe, other, sizes)
        if again.is_wrong:
            return evolve(again, reason=f"with other names, {again.reason}")
        return evolve(verdict, runs=verdict.runs + again.runs)
    except UnsupportedError as error:
        return CaseVerdict("refused", error.diagnostics[0].message)
    except CRASHES as error:
        return CaseVerdict("crash", crash(error))


def _agrees(
    of: Case, exe: Executable, module: Module, sizes: Sequence[Mapping[str, int]]
) -> CaseVerdict:
    """Whether the code computes what the module means at all sizes."""
    assert isinstance(exe, OpenExecutable)
    runs = without = 0
    for each in sizes:
        at = ", ".join(f"{name} = {size}" for name, size in each.items())
        arrays = arrays_for(module, each)
        try:
            expected = _flat(interpret(module, *arrays))
        except (InputError, EvaluationError) as error:
            without += 1
            try:
                exe(*arrays)
            except (InputError, EvaluationError):
                continue
            said = f"there is a value where the interpreter says: {error.diagnostics[0].message}"
            return CaseVerdict("meaning", f"at {at} {said}")
        try:
            found = _flat(exe(*arrays))
        except (InputError, EvaluationError) as error:
            return CaseVerdict(
                "meaning", f"at {at} the code refuses: {error.diagnostics[0].message}"
            )
        runs += 1
        if (wrong := difference_from(found, expected, truths_of(module, arrays, each))) is not None:
            return CaseVerdict("meaning", f"at {at} {wrong}")
    return CaseVerdict("passed", runs=runs, without_value=without)


def _flat(of: Any) -> tuple[Array, ...]:
    return tuple([np.asarray(each) for each in (of if isinstance(of, tuple) else (of,))])


Truths: TypeAlias = tuple[tuple[Array, ...], tuple[Array, ...]]


def truths_of(module: Module, arrays: Sequence[Array], sizes: Mapping[str, int]) -> Truths | None:
    """What numpy gives in doubles, and what it gives for inputs a little off; None for nothing."""
    main = module.main_function()
    numbers: dict[Term, int] = {dim_var(name): size for name, size in sizes.items()}
    random = np.random.default_rng(1)
    found = []
    for much in (0.0, 2.0**-23):
        moved = [array * (1 + much * random.uniform(-1, 1, array.shape)) for array in arrays]
        given = dict(zip(main.params, moved, strict=True))
        try:
            with np.errstate(all="ignore"), catch_warnings():
                simplefilter("ignore")  # the mean of nothing
                found.append(_flat(meaning(main.body, given, numbers)))
        except (ValueError, IndexError):  # numpy has no maximum of nothing, for one
            return None
    return found[0], found[1]


def difference_from(
    found: Sequence[Array], expected: Sequence[Array], truths: Truths | None
) -> str | None:
    """What differs, None where nothing does but by rounding."""
    for number, (mine, other) in enumerate(zip(found, expected, strict=True)):
        if (mine.dtype, mine.shape) != (other.dtype, other.shape):
            return f"{mine.dtype}{list(mine.shape)} stands for {other.dtype}{list(other.shape)}"
        if truths is not None and truths[0][number].shape != other.shape:
            shape = list(truths[0][number].shape)
            return f"the interpreter gives shape {list(other.shape)}, numpy {shape}"
        if not np.array_equal(np.isfinite(mine), np.isfinite(other)):
            return "not the same elements are finite"
        kept = np.isfinite(other)
        if truths is not None:
            kept &= np.isfinite(truths[0][number])
        b = other[kept].astype(np.float64)
        truth, shaken = b, b
        if truths is not None:
            truth, shaken = (arrays[number][kept].astype(np.float64) for arrays in truths)
        apart_ = _most(mine[kept].astype(np.float64) - truth)
        own, shake, scale = _most(b - truth), _most(shaken - truth), _most(truth)
        allowed = NEAR * scale + 1e-5 + GROWN * shake
        if own > allowed:
            return f"the interpreter is {own:.3g} from numpy, whose largest number is {scale:.3g}"
        if apart_ > allowed + GROWN * own:
            return f"{apart_:.3g} off where the largest number is {scale:.3g}"
    return None


def _most(of: Array) -> float:
    return float(np.abs(of).max(initial=0.0))


# --- names ----------------------------------------------------------------------------------------


def _names_wrong(exe: Executable, of: Module, dims: tuple[str, ...]) -> str | None:
    """What the code says of its dims that its module does not."""
    assert isinstance(exe, OpenExecutable)
    if exe.dims != dims:
        return f"the dims are called {exe.dims} instead of {dims}"
    types = [param.type for param in of.main_function().params]
    for port, each in zip(exe.inputs, types, strict=True):
        assert isinstance(each, TensorType)
        shape = tuple(map(_size, each.shape))
        if tuple(port.shape) != shape:
            return f"the input {port.name} has sizes {port.shape} instead of {shape}"
    for port in exe.outputs:
        if strange := sorted({*_words(port.shape)} - {*dims, "min", "max"}):
            return f"the output {port.name} speaks of {strange}"
    return None


def _size(of: Scalar) -> int | str:
    number = known(of)
    return show_dim(of, lambda each: str(getattr(each, "name", each))) if number is None else number


def _words(shape: Sequence[Any]) -> Iterator[str]:
    for each in shape:
        if isinstance(each, str):
            yield from re.findall(r"[A-Za-z_]\w*", each)
