"""Donated inputs of a program: those that a caller gives away, as an attribute of main."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from attrs import evolve

from plica.codegen.backend import Backend
from plica.codegen.program_kind import kind_of
from plica.ir.graph.module import Module, module
from plica.ir.text.script import Scripted
from plica.pipeline.kernel_main import with_main
from plica.runtime.error import Diagnostic, Place, UnsupportedError

DONATED = "donated"
"""The attribute of a main function that names the inputs that may be written over."""


def with_donated(
    of: Any,  # Any: what `plica.compile` takes
    names: str | Sequence[str],
    backend: Backend,
) -> Module:
    """The module whose inputs of these names are updated in place."""
    wanted = (names,) if isinstance(names, str) else tuple(names)
    whole = _read(of)
    main = whole.main_function()
    known = [str(each.name) for each in main.params]
    for name in wanted:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else None
            message, expected = f"There is no input {name!r} to donate.", ", ".join(known)
            wrong = Diagnostic("input-unknown", message, None, expected, name, hint)
            raise UnsupportedError(wrong)
    staged = kind_of(whole) == "staged"
    if not backend.updates or staged:
        why = "whose sizes become known while it runs" if staged else "of this target"
        message = f"Inputs of a program {why} are not donated."
        place = Place(node=wanted[0])
        raise UnsupportedError(Diagnostic("unsupported", message, place, "cpu", backend.name))
    attrs = {**dict(main.attrs), DONATED: tuple(dict.fromkeys(wanted))}
    changed = evolve(main, attrs=tuple(sorted(attrs.items())))
    table = {name: changed if name is whole.main else value for name, value in whole.items()}
    return module(table, whole.main)


def _read(of: Any) -> Module:  # as above
    if isinstance(of, Module):
        return with_main(of)
    if isinstance(of, Scripted):
        return with_main(of.module)
    from plica.frontend.onnx import from_onnx  # the reader of models is not always needed

    return from_onnx(of)
