"""Diagnostics: the table of error codes, the compiler's kinds of error, and how they look.

>>> did_you_mean("sofmax", ["relu", "softmax", "dense"])
"Did you mean 'softmax'?"
>>> did_you_mean("qqqq", ["relu", "softmax"]) is None
True

The root of the family (`Place`, `Diagnostic`, `PlicaError`) is `plica.runtime.error`, which a
deployed artefact can import without the compiler.  Refusals inside the compiler are values; the
classes here are what they become when a user asked directly.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING, Final

from plica.runtime.error import Diagnostic, EvaluationError, PlicaError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "CODES",
    "MAX_TENSOR_BYTES",
    "CompilerBug",
    "EvaluationError",  # native code raises it too, so it lives with the runtime
    "IllTyped",
    "Malformed",
    "RuleFailed",
    "RuleRefused",
    "ScriptError",
    "did_you_mean",
    "ill_formed",
    "no_main",
    "render",
    "spanned_bytes",
    "too_large",
]

CODES: Final[dict[str, str]] = {
    # names and syntax
    "unknown-operator": "No operator has this name.",
    "unbound-name": "A name is used where nothing binds it.",
    "duplicate-name": "A name is bound twice where it must be unique.",
    "syntax": "The text is not valid Python, so it is not a script either.",
    "unsupported-syntax": "This is valid Python, but not a part of Plica's syntax.",
    "no-source": "The source of a decorated function cannot be found.",
    "kernel-output": "A kernel writes a buffer that is not one of its last parameters.",
    "bad-constant": "A constant does not fit its element type, or has no shape.",
    "missing-constant": "A text refers to a constant that was not supplied with it.",
    # calls and attributes
    "wrong-arity": "A call gives too many or too few arguments.",
    "unknown-attribute": "The operator has no attribute of this name.",
    "bad-attribute": "An attribute has a value the operator does not accept.",
    "bad-layout": "The text is not a layout of these axes.",
    "bad-optimiser": "An optimiser does not define a weight update, or does not fit the loss.",
    "bad-mesh": "A mesh of devices, or the description of its links, is malformed.",
    "bad-placement": "A placement is not a split, a replica or a partial value.",
    "bad-plan": "A step of a plan names no value, or the devices do not divide its dim.",
    "not-sharded": "An operator needs the whole of a value that a plan splits into blocks.",
    "rank-failed": "A rank died, disagrees with the others, or does not answer.",
    "bad-combiner": "A combiner breaks a law that reductions rely on.",
    # types
    "shape-conflict": "Two shapes that must agree do not.",
    "dtype-conflict": "Two element types that must agree do not.",
    "type-conflict": "Two types that must agree do not.",
    "cannot-infer": "A type is not determined by the program; an annotation is needed.",
    # patterns
    "non-exhaustive-match": "A match leaves some values without a clause.",
    "redundant-clause": "A clause can never be reached.",
    "bad-pattern": "A pattern does not fit the type it is matched against.",
    # data read from outside
    "bad-json": "The JSON text is not an encoded term.",
    "newer-version": "The data was written by a newer version of Plica.",
    "cyclic-data": "The data refers to itself, and terms cannot.",
    "unknown-class": "The data names a kind of term that does not exist.",
    "ill-formed-term": "A term is built from parts that its grammar does not allow together.",
    # models
    "bad-model": "A model file is damaged, or breaks the rules of its format.",
    "unknown-value": "Reading a model needs a value that depends on its inputs.",
    # artefacts and tools
    "bad-artefact": "An artefact is damaged, or the file is not an artefact.",
    "other-machine": "An artefact was made for a machine other than this one.",
    "cannot-read": "A file cannot be read at this path.",
    "cannot-write": "A file cannot be written at this path.",
    "missing-tool": "A tool of this machine, such as a C compiler, is missing or has failed.",
    # values given at call time
    "input-shape": "An input has the wrong shape.",
    "input-dtype": "An input has the wrong element type.",
    "input-type": "An input is not a value of its type.",
    "input-value": "An input has values that the model does not accept.",
    "input-missing": "An input was not given.",
    "input-unknown": "A value was given for an input that does not exist.",
    "not-finite": "A number that must be finite is infinite or nan.",
    # rules
    "bad-rule": "The sides of a rule are not valid patterns or terms.",
    "unbound-hole": "The right side of a rule uses a hole that its left side does not bind.",
    "rule-types": "The two sides of a rule cannot have one type.",
    "refuted-rule": "An instance shows that the sides of a rule differ.",
    "rule-fails": "A guard, a predicate or the right side of a rule fails on an instance.",
    "looping-rules": "A set of rules rewrites forever.",
    "unknown-pack": "No rule pack has this name.",
    "unknown-rule": "No rule has this name.",
    # extensions
    "unknown-extension": "No installed package provides this name.",
    "broken-extension": "An entry point of a package cannot be loaded, or has the wrong type.",
    "name-clash": "Two packages, or a package and Plica, provide the same name.",
    "bad-operator": "The record of an operator lacks a definition, or has the name of another one.",
    "broken-file": "A file of rules is not valid Python, or fails when it is run.",
    # schedules
    "illegal-step": "A schedule step violates a precondition.",
    "other-trace": "A difference is applied to another trace than it was computed from.",
    "not-good": "The trace to minimise does not satisfy the predicate.",
    # tuning
    "bad-record": "A tuning record is damaged or impossible.",
    "bad-database": "A file of tuning records is damaged, or is another kind of file.",
    "unknown-policy": "No search policy has this name.",
    "insecure-pool": "A device pool would be reached over a network without encryption.",
    "pool-failed": "A device pool cannot be reached, has no such device, or lost the job.",
    # derivatives
    "no-gradient": "An operator or function that must be differentiated has no gradient.",
    "not-scalar": "The gradient needs a function that returns one number.",
    "not-differentiable": "The function or parameter to differentiate contains no floats.",
    # placing
    "device-conflict": "A value is bound to two devices at once.",
    # running and compiling
    "no-main": "The module to run or compile has no main function.",
    "busy": "A server is at its limit of requests; retry later.",
    "timeout": "A request did not arrive in time.",
    "no-memory": "There is not enough memory for the computation.",
    "too-large": "A tensor is larger than any machine's memory can hold.",
    "input-device": "An input is on another device than the model.",
    "no-toolchain": "The compiler of a target is not installed.",
    "toolchain": "The compiler of a target rejected code that Plica generated.",
    "no-cuda": "A driver, a GPU or the compiler NVRTC is missing on this machine.",
    "cuda-compile": "NVRTC rejected CUDA C++ that Plica generated.",
    "device-memory": "A GPU is out of memory.",
    "device-fault": "A kernel failed on a device, or the device was lost with its data.",
    "device-error": "The driver of a GPU refused a request.",
    "bad-accelerator": "The declaration of an accelerator contradicts itself.",
    "bad-flow": "A statement of a flow does not fit its accelerator, or is out of bounds.",
    "bad-instruction": "An instruction of an accelerator has an invalid bit, field or word.",
    "bad-stream": "An instruction stream has a race, a deadlock or a token left over.",
    "wrong-kernel": "Validation found a kernel that differs from its stages.",
    "wrong-entry": "An entry of the store differs from a new compilation of its key.",
    "damaged-entry": "An entry of the store is damaged; its content is compiled again.",
    "worker-died": "A compiling process died; its kernel is compiled again.",
    "unwritable-store": "The store on disk is not writable; compiled code is not cached.",
    "unsafe-store": "The store on disk belongs to another user, or others may write to it.",
    "unsupported": "The program is valid, but Plica or the target does not support it yet.",
    "recursion-limit": "The program recurses deeper than the limit that was set.",
    "recursion-depth": "Compiled code recurses deeper than its stack allows.",
    "unknown-pass": "No pass or normal form has this name.",
    "misplaced-pass": "A pass comes before the pass that produces its input.",
    "loose-pass": "A pass has a looser float contract than the requested one.",
    "missing-pass": "A required pass, or kind of pass, does not come before another.",
    "index-out-of-bounds": "An index is out of bounds.",
    "match-failure": "No clause of a partial match matches the value.",
    "uninitialised-read": "A kernel reads or returns an element that was never written.",
    "data-race": "Two iterations of a parallel loop access one element, and one of them writes it.",
    "divergent-barrier": "Not all threads of a block reach the same barrier.",
    "endless-loop": "The while loops of a kernel exceed the limit of iterations.",
    "binding-out-of-range": "A block's variable is bound to a number outside its extent.",
    "block-isolation": "A block uses variables of the loops around it.",
    "thread-extent": "Loops over the same threads have different numbers of iterations.",
    "unknown-scope": "No memory scope has this name.",
    "scope-capacity": "The buffers of a memory scope do not fit into it.",
    "unknown-intrinsic": "No intrinsic has this name.",
    "bad-intrinsic": "The implementation of a tensor intrinsic differs from its meaning.",
    "region-uncovered": "A block accesses elements outside its declared regions.",
    "host-access": "A kernel for a device accesses its memory outside all threads.",
    "target-limit": "A kernel exceeds a limit of the target.",
    "illegal-lowering": "Lowering a kernel as requested would change its meaning.",
}
"""Every code a `Diagnostic` may carry, with its meaning; docs/errors.md is this table."""


MAX_TENSOR_BYTES: Final = 1 << 40  # tensors larger than this are refused before memory is requested


class ScriptError(PlicaError):
    """The text of a program cannot be read: its syntax or its names are wrong."""


class IllTyped(PlicaError):
    """The program is well formed, but has no type."""


class Malformed(PlicaError):
    """Data from outside (JSON, an archive, a term built by hand) breaks its format."""


class RuleRefused(PlicaError):
    """A declaration of a rule or a pack is invalid."""


class RuleFailed(RuleRefused):
    """A guard, a predicate or the right side of a rule raised an error on some term."""


class IllFormed(Malformed, ValueError):
    """A term cannot be built from these parts; raised by a `normal` hook."""


class OutOfRange(IllFormed):
    """A number is outside its dtype, as the sizes of a shape are when they do not fit an i64."""


def no_main() -> IllFormed:
    """The error of running or compiling a module that only has definitions."""
    hint = "Define a function, or say which one is the main."
    return IllFormed(Diagnostic("no-main", "The module has no main function.", suggestion=hint))


def spanned_bytes(shape: Iterable[int], itemsize: int) -> int:
    """The bytes that the strides of an array span, which numpy bounds for empty arrays too.

    >>> spanned_bytes((2**62, 0), 4) > MAX_TENSOR_BYTES
    True
    """
    return prod([max(1, size) for size in shape]) * itemsize


def too_large(type: str) -> Diagnostic:
    """The diagnostic for a tensor larger than `MAX_TENSOR_BYTES`."""
    message = "A tensor is too large to be held in memory."
    hint = "Compute it in smaller parts."
    return Diagnostic("too-large", message, None, f"at most {MAX_TENSOR_BYTES} bytes", type, hint)


def ill_formed(message: str) -> IllFormed:
    """The error of a `normal` hook."""
    return IllFormed(Diagnostic("ill-formed-term", message))


class CompilerBug(Exception):
    """A compiler invariant does not hold. Never caught, and not a `PlicaError`."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """A sentence that suggests the candidate nearest to `word`, or None when none is near.

    It is meant to be the `suggestion` of a diagnostic.  The order of the candidates is
    irrelevant.  The last word of a dotted name in another namespace is nearest.

    >>> did_you_mean("nn.sum", ["nn.silu", "sum"])
    "Did you mean 'sum'?"
    """
    known = sorted(set(candidates))
    last = word.rpartition(".")[2]
    near = [each for each in known if last != word and each.rpartition(".")[2] == last]
    near = near or difflib.get_close_matches(word, known, n=1)
    return f"Did you mean '{near[0]}'?" if near else None


LONGEST_EXCERPT: Final = 120
"""Characters of a line of source that are shown: lines of JSON can have thousands."""


def render(
    error: PlicaError, console: Console, line_of: Callable[[str, int], str] | None = None
) -> None:
    """Print every diagnostic of the error in colour, its notes last.

    `line_of(file, line)` gives a line of source to show under the message (`linecache.getline`);
    an empty string shows none.
    """
    from rich.text import Text

    for diagnostic in error.diagnostics:
        text = Text()
        if not diagnostic.is_placed():
            text.append(f"{diagnostic.place}: ", style="bold")
        text.append("error", style="bold red")
        text.append(f": {diagnostic.message} ")
        text.append(f"[{diagnostic.code}]", style="dim")
        for line in _excerpt(diagnostic, line_of):
            text.append(f"\n    {line}", style="cyan")
        for label, value in diagnostic.details():
            text.append(f"\n  {label}: ", style="bold")
            text.append(value)
        console.print(text, soft_wrap=True, highlight=False)
    for note in getattr(error, "__notes__", ()):
        console.print(Text(note), soft_wrap=True, highlight=False)
    if len(error.diagnostics) > 1:
        console.print(Text(f"{len(error.diagnostics)} errors"), style="bold")


def _excerpt(diagnostic: Diagnostic, line_of: Callable[[str, int], str] | None) -> tuple[str, ...]:
    """The line of source a diagnostic points at, and a mark under its column."""
    place = diagnostic.place
    if line_of is None or place is None or place.file is None or place.line is None:
        return ()
    if not (source := line_of(place.file, place.line).rstrip().expandtabs(1)):
        return ()
    bare = source.lstrip()
    if place.column is None:
        return (_window(bare, 0)[0],)
    shown, begun = _window(bare, max(0, place.column - 1 - (len(source) - len(bare))))
    return (shown, " " * begun + "^")


def _window(line: str, at: int) -> tuple[str, int]:
    """The part of a line that is shown around a column, and the column within that part.

    >>> _window("short", 2), _window("-" * 500 + "!" + "-" * 500, 500)[0][60]
    (('short', 2), '!')
    """
    start = max(0, at - LONGEST_EXCERPT // 2) if len(line) > LONGEST_EXCERPT else 0
    end = start + LONGEST_EXCERPT
    left, right = "…" if start else "", "…" if end < len(line) else ""
    whole = f"{left}{line[start + len(left) : end]}{right}"
    return whole, at - start
