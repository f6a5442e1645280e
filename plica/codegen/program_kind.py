"""Deciding: which programs are one graph of kernels, and which need routines and objects.

A program without data, recursion and functions chosen when it runs can be written out as one graph,
which is the faster code.  So can some programs that have these, once all that depends on no input
is decided.  All others are dynamic.

>>> from plica.ir.text.script import from_text
>>> recursive = '''
... @plica.function
... def power(x: Tensor[(), f32], n: i64) -> Tensor[(), f32]:
...     return f32(1.0) if n == 0 else x * power(x, n - 1)
...
... @plica.function
... def main(x: Tensor[(), f32]) -> Tensor[(), f32]:
...     return power(x, COUNT)
... '''
>>> static_form(from_text(recursive.replace("COUNT", "i64(3)"))) is not None
True
>>> static_form(from_text(recursive.replace("COUNT", "op.cast(x, dtype=i64)"))) is None
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.codegen.lower.supported import has_too_many, unsupported
from plica.ir.graph.expression import Function, If, Match
from plica.ir.graph.module import Module
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import holds_function
from plica.rewrite.graph.walk import expressions
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.rewrite.graph import find_pass
else:
    find_pass = late("plica.rewrite.graph:find_pass")


def static_form(module: Module) -> Module | None:
    """The module, or one that means the same, as a static program; None where there is none.

    What has no main function to compile, or too many results, is left to those who refuse it.
    """
    if module.main is None or not isinstance(module.definitions().get(module.main), Function):
        return module
    known = infer(module)
    if has_too_many(known):
        return module
    if is_static(known):
        return module
    decided = find_pass("evaluate-partially")(known)
    return decided if is_static(decided) else None


def is_static(module: Module) -> bool:
    """Whether an inferred module can be written out as one graph."""
    if unsupported(module, sizes_come=True):
        return False
    return not any(
        isinstance(node, If | Match) and holds_function(type_of(node))
        for _, function in module.functions()
        for node in expressions(function)
    )
