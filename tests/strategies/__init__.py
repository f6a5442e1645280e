"""Generators for every grammar, derived from the grammars; what they make is well typed."""

from plica.ir.generate.builder import types
from plica.ir.generate.choice import names
from plica.ir.generate.definition import EXTERNS, modules
from plica.ir.generate.scalar import computes, dims, index_terms, kernels, literals, scalars
from plica.ir.generate.static import static_modules
from plica.ir.generate.value import (
    arrays,
    constants,
    dtypes,
    inputs_for,
    numbers,
    small_shapes,
    values_of,
)
from tests.strategies.mistake import MISTAKES, ill_typed
from tests.strategies.surface import surface
from tests.strategies.term import terms, toys

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
