"""Generators for every grammar, derived from the grammars; what they make is well typed."""

from tests.strategies.definition import EXTERNS
from tests.strategies.inputs import inputs_for, values_of
from tests.strategies.mistake import MISTAKES, ill_typed
from tests.strategies.name import names
from tests.strategies.program import modules
from tests.strategies.scalar import computes, dims, index_terms, kernels, literals, scalars
from tests.strategies.static import static_modules
from tests.strategies.surface import surface
from tests.strategies.term import terms, toys
from tests.strategies.type import types
from tests.strategies.value import arrays, constants, dtypes, numbers, small_shapes

__all__ = [
    "EXTERNS",
    "MISTAKES",
    "arrays",
    "computes",
    "constants",
    "dims",
    "dtypes",
    "ill_typed",
    "index_terms",
    "inputs_for",
    "kernels",
    "literals",
    "modules",
    "names",
    "numbers",
    "scalars",
    "small_shapes",
    "static_modules",
    "surface",
    "terms",
    "toys",
    "types",
    "values_of",
]
