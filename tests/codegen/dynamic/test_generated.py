"""Generated programs with closures, data and recursion: compiled, they mean what they mean."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings, strategies as st

from plica.core.diagnostic import EvaluationError, IllTyped
from plica.ir.graph.shape_specialisation import sized, sizes_of
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.infer import infer
from plica.runtime.error import UnsupportedError
from tests.codegen.dynamic.agree import alike, arrays_in, compiled, flat
from tests.conftest import PROFILE
from tests.strategies import inputs_for, modules, static_modules

EXAMPLES: Final = {"ci": 8, "dev": 60, "deep": 3_000}[PROFILE]


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_whole_programs(data: st.DataObject) -> None:
    agrees(data, data.draw(st.sampled_from((True, False))))


def agrees(data: st.DataObject, whole: bool) -> None:
    """A program at the sizes of its inputs, over objects, beside the interpreter."""
    module = infer(data.draw(modules(depth=1) if whole else static_modules()))
    args = data.draw(inputs_for(module))
    try:
        if module.main_function().dims:
            shapes = [each.shape for each in arrays_in(args)]
            module = sized(module, sizes_of(module, shapes))
        meant = flat(interpret(module, *args), module)
    except (EvaluationError, IllTyped):
        return  # it has no value, or an operator has no meaning at these sizes
    try:
        exe = compiled(module)
    except (EvaluationError, IllTyped, UnsupportedError):
        return  # functions in the interface, polymorphic functions as values
    found = exe(*args)
    several = list(found) if isinstance(found, tuple) else [found]
    assert alike(tuple(meant), tuple(several), 1e-4)
