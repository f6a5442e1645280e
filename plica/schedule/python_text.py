"""Python text: a trace as the do-block that makes it.

>>> from plica.schedule.primitive import split
>>> from plica.schedule.spelling import spell
>>> found = Step(spell("block", number=0, role="s"))
>>> around = Step(spell("loops", block=Handle(0, 0, "block")))
>>> of = Trace((found, around, Step(split(Handle(1, 0, "loop"), (None, 4)))))
>>> print(to_python(of))
from plica.schedule import do
from plica.schedule.primitive import block, loops, split
<BLANKLINE>
@do
def schedule():
    block_0_0 = yield block(0, 's')
    loop_1_0, *_ = yield loops(block_0_0)
    yield split(loop_1_0, (None, 4))
<BLANKLINE>
>>> from_python(to_python(of)) is of
True

Executed by Python it records the same trace; `from_python` reads it without executing anything.
Names are prefixed by their sort: `block_`, `loop_` or `number_`. With a program, the names are
those of its loops and blocks.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from plica.core import Name, Term, encode, field_names
from plica.ir.loop.index_map import IndexMap
from plica.schedule.do_reader import read_do
from plica.schedule.handle import Handle, Output
from plica.schedule.instruction import Instruction
from plica.schedule.map_text import show_map
from plica.schedule.replay import kernel_of, states
from plica.schedule.spelling import spelled
from plica.schedule.trace import Program, Step, Trace, handles

PRIMITIVES: Final = "plica.schedule.primitive"


def to_python(trace: Trace, program: Program | None = None, kernel: str | None = None) -> str:
    """The do-block that makes the trace; with a program, in the names of its loops and blocks."""
    words: dict[str, set[str]] = {"plica.schedule": {"do"}}
    calls = [_called(step, words) for step in trace.steps]
    taken = {word for names in words.values() for word in names}
    names, arities = _names(trace, program, kernel, taken)
    given: dict[int, dict[int, str]] = {}
    for handle, name in names.items():
        given.setdefault(handle.step, {})[handle.output] = name
    lines = []
    for number, (step, template) in enumerate(zip(trace.steps, calls, strict=True)):
        own = {_slot(each): names[each] for each in handles(step.instruction)}
        call = template.format_map(own)
        single = step.instruction.gives == "one"
        targets = _targets(given.get(number, {}), arities.get(number), single)
        lines.append(f"    {targets}yield {call}")
    imports = [
        f"from {module} import {', '.join(sorted(found))}"
        for module, found in sorted(words.items())
    ]
    body = lines or ["    yield from ()"]
    return "\n".join((*imports, "", "@do", "def schedule():", *body, ""))


def from_python(text: str, file: str = "<trace>") -> Trace:
    """Read what `to_python` wrote; nothing is run.  Raises `Malformed` at a place."""
    return read_do(text, file, form_of)


@cache
def form_of(cls: type[Instruction]) -> tuple[tuple[str, str, bool], ...] | None:
    """How the function of a kind takes the fields: parameter, field, whether it is variadic.

    None if the kind has no function that takes its fields one by one.
    """
    if (function := function_of(cls)) is None:
        return None
    fields = field_names(cls)
    if function is cls:
        return tuple([(field, field, False) for field in fields])
    params = list(inspect.signature(function).parameters.values())
    if len(params) != len(fields) or any(p.kind is p.VAR_KEYWORD for p in params):
        return None
    own = [param.name for param in params]
    order = own if sorted(own) == sorted(fields) else list(fields)
    starred = [param.kind is param.VAR_POSITIONAL for param in params]
    if any(starred[:-1]):  # what follows would have to be named
        return None
    return tuple(zip(own, order, starred, strict=True))


def function_of(cls: type[Instruction]) -> Any:
    """What has the name of a kind next to its instruction class: that itself, or a function."""
    found = getattr(sys.modules.get(cls.__module__), cls.kind, None)
    return found if found is cls or inspect.isfunction(found) else None


def _called(step: Step, words: dict[str, set[str]]) -> str:
    """The call of a step, with a slot for each of its handles."""
    what = step.instruction
    kind, fields = spelled(what)
    form = form_of(type(what))
    arguments: list[Any] = []
    for _, field, starred in form or ():
        value = fields[field]
        arguments.extend(value if starred else (value,))
    if form is not None and function_of(type(what))(*arguments) is what:
        module = type(what).__module__
        inside = module == PRIMITIVES or module.startswith(f"{PRIMITIVES}.")
        words.setdefault(PRIMITIVES if inside else module, set()).add(kind)
        call = f"{kind}({', '.join(_text(argument, words) for argument in arguments)})"
    else:  # no function makes it: by the names of its fields
        words["plica.schedule"].add("spell")
        named = [f"{name}={_text(value, words)}" for name, value in fields.items()]
        call = f"spell({', '.join((repr(kind), *named))})"
    if step.decision is None:
        return call
    words["plica.schedule"].add("decided")
    return f"decided({', '.join((call, *map(str, step.decision)))})"


def _text(value: Any, words: dict[str, set[str]]) -> str:
    if isinstance(value, Handle):
        return f"{{{_slot(value)}}}"
    if isinstance(value, IndexMap) and (shown := show_map(value)) is not None:
        words.setdefault("plica.ir.loop.index_map", set()).add("index_map")
        return f"index_map({shown})"
    if isinstance(value, Term):
        words["plica.schedule"].add("term")
        return f"term({_braced(repr(encode.to_json(value)))})"
    if isinstance(value, Name):
        words.setdefault("plica.core.name", set()).add("Name")
        return f"Name({_braced(repr(value.hint))}, {value.index})"
    if isinstance(value, tuple):
        inside = ", ".join(_text(each, words) for each in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value!r}')"
    return _braced(repr(value))


def _slot(handle: Handle) -> str:
    return f"{handle.sort}_{handle.step}_{handle.output}"


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _targets(names: Mapping[int, str], arity: int | None, single: bool) -> str:
    """The left side of an assignment; without an arity, one that fits any."""
    if not names:
        return ""
    if single and names.keys() == {0}:
        return f"{names[0]} = "
    shown = [names.get(each, "_") for each in range(max(names) + 1)]
    if arity is None:
        return f"{', '.join((*shown, '*_'))} = "
    shown += ["_"] * (arity - len(shown))
    return f"({shown[0]},) = " if arity == 1 else f"{', '.join(shown)} = "


def _names(
    trace: Trace, program: Program | None, kernel: str | None, taken: set[str]
) -> tuple[dict[Handle, str], dict[int, int]]:
    """A name for every handle that is used, and how many things each step gives, if known."""
    used = dict.fromkeys(h for step in trace.steps for h in handles(step.instruction))
    ordered = sorted(used, key=lambda h: (h.step, h.output))
    if program is None:
        return {h: _slot(h) for h in ordered}, {}
    _, _, found = kernel_of(program, kernel)
    outputs: dict[Handle, Output] = {}
    for state in states(trace, found):  # as they are given: later they may be gone
        outputs |= {h: what for h, what in state.outputs.items() if h.step == state.steps - 1}
    arities = [0] * len(trace)
    for handle in outputs:
        arities[handle.step] += 1
    names: dict[Handle, str] = {}
    for handle in ordered:
        name = _unused(_hint(handle, outputs[handle]), taken)
        taken.add(name)
        names[handle] = name
    return names, dict(enumerate(arities))


def _hint(handle: Handle, output: Output) -> str:
    match output:
        case int():
            return f"number_{handle.step}_{handle.output}"
        case Name():
            own = str(output)
        case _:
            own = str(output.name)
    word = re.sub(r"\W", "_", own)
    return f"{handle.sort}_{word}"


def _unused(hint: str, taken: set[str]) -> str:
    name, count = hint, 0
    while name in taken:
        count += 1
        name = f"{hint}__{count}"
    return name


def term(text: str) -> Term:
    """The term of an instruction without a syntax of its own, in the encoding of the core."""
    return encode.from_json(text)
