"""Processors: what LLVM knows of one by its name, which becomes part of the target.

A processor name implies features. With the target they decide the vector width, and whether a
machine may load the code. Names and features unknown to LLVM are refused: LLVM itself would ignore
them, or abort, so it is queried in a separate process.

>>> from plica.codegen.target import Target
>>> old = known(Target("cpu", "x86_64-unknown-linux-gnu", "haswell", ("-avx2",)))
>>> old.has("avx"), old.has("avx2"), old.has("avx512f"), old.vector_bits
(True, False, False, 256)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from attrs import evolve

from plica.codegen.llvm import toolchain
from plica.codegen.target import USUAL, Target, parse, unknown_target
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.host import NAMES

_FEATURE: Final = re.compile(r"[+-][\w.-]+", re.ASCII)
_CPU: Final = re.compile(r"[\w.+-]+", re.ASCII)
_UNKNOWN: Final = re.compile(r"^'(.+)' is not a recognized (processor|feature)", re.MULTILINE)


def known(target: Target) -> Target:
    """The target with the features its processor has; what LLVM does not know is refused."""
    here = toolchain.host()
    plain = target.cpu == "generic" and not target.features
    if plain or (target.triple, target.cpu, target.features) == (
        here.triple,
        here.cpu,
        here.features,
    ):
        return target
    return evolve(target, features=_features(target.triple, target.cpu, target.features))


def find_target(of: str | Target) -> Target:
    """The processor meant: this one, one that differs from it as said, or one given in full."""
    given: object = of
    if not isinstance(given, str | Target):
        raise unknown_target(given)
    return known(given if isinstance(given, Target) else parse(given, toolchain.host()))


def described(name: str, cpu: str | None, features: str | None) -> str | Target:
    """The processor of a triple, or one as named with another processor or other features."""
    if "-" not in name or set(name) & set(" :"):
        if cpu is None and features is None:
            return name
        machine = parse(name, toolchain.host())
        added = tuple(each for each in (features or "").split(",") if each)
        # Another processor has its own features; of this one, all but the named ones are kept.
        kept = machine.features if cpu is None else ()
        names = {each[1:] for each in added}
        return evolve(
            machine,
            cpu=cpu or machine.cpu,
            features=(*[each for each in kept if each[1:] not in names], *added),
        )
    usual = USUAL.get(name.split("-", maxsplit=1)[0], "")
    given = usual if features is None else features
    return Target("cpu", name, cpu or "generic", tuple(e for e in given.split(",") if e))


@lru_cache(maxsize=64)
def _features(triple: str, cpu: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """All features that are known of a processor, after those that were given."""
    # Nothing but names gets into LLVM's text.
    if wrong := [repr(each) for each in given if _FEATURE.fullmatch(each) is None]:
        message = "A feature is '+' or '-' and LLVM's name of it."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "+name", ", ".join(wrong)))
    if _CPU.fullmatch(cpu) is None:
        raise _refused("processor", [cpu], triple)
    machine = Target("cpu", triple, cpu, given)
    names = tuple(NAMES.get(machine.architecture, ()))
    answer = toolchain.apart(_text(names, cpu, given), machine, "optimise")
    found = _UNKNOWN.findall(answer.said)
    for kind, mine in (("processor", (cpu,)), ("feature", given)):
        strange = {name for name, what in found if what == kind}
        if named := [each for each in mine if each in strange]:
            raise _refused(kind, named, triple)
    if answer.code:
        lines = answer.said.strip().splitlines()
        message = f"LLVM makes no code for {triple} with this processor and these features."
        if "No available targets" in answer.said:
            message = f"LLVM makes no code for {triple}."
        last = lines[-1] if lines else f"exit code {answer.code}"
        raise UnsupportedError(Diagnostic("unsupported", message, None, None, f"{cpu}: {last}"))
    unknown = {name[1:] for name, what in found if what == "feature"}
    after = answer.made.decode("utf-8", "replace")
    has = {
        name: f"@needs{number}(" not in after
        for number, name in enumerate(names)
        if name not in unknown
    }
    return (
        *[each for each in given if each[1:] not in has],
        *[f"+{name}" for name, present in has.items() if present],
        # Last, so that they override the others.
        *[f"-{name}" for name, present in has.items() if not present and f"-{name}" in given],
    )


def _text(names: Sequence[str], cpu: str, given: Sequence[str]) -> str:
    """A caller for each feature, and arithmetic of every kind that kernels have."""
    lines = []
    for number, name in enumerate(names):
        more = ",".join([*given, f"+{name}"])
        lines += [
            f"define internal i32 @needs{number}(i32 %x) #{number + 1} {{",
            f"  %y = mul i32 %x, {number + 3}\n  ret i32 %y\n}}",
            f"define i32 @calls{number}(i32 %x) #0 {{",
            f"  %y = call i32 @needs{number}(i32 %x)\n  ret i32 %y\n}}",
            f'attributes #{number + 1} = {{ "target-cpu"="{cpu}" "target-features"="{more}" }}',
        ]
    for kind, add in (
        ("float", "fadd"),
        ("double", "fadd"),
        ("<8 x float>", "fmul"),
        ("i64", "mul"),
    ):
        word = re.sub(r"\W", "", kind)
        lines.append(f"define {kind} @use{word}({kind} %x) #0 {{")
        lines.append(f"  %y = {add} {kind} %x, %x\n  ret {kind} %y\n}}")
    lines.append(
        f'attributes #0 = {{ "target-cpu"="{cpu}" "target-features"="{",".join(given)}" }}'
    )
    return "\n".join(lines)


def _refused(kind: str, names: Sequence[str], triple: str) -> UnsupportedError:
    message = f"LLVM knows no such {kind} for {triple}."
    hint = "clang --print-supported-cpus and llc -mattr=help list the names."
    found = ", ".join(names)
    return UnsupportedError(Diagnostic("unsupported", message, None, None, found, hint))
