"""Generators of well-typed programs, derived from the grammar: hypothesis strategies.

For tests, and for the fuzzers (`plica fuzz`). Nothing else imports this, because hypothesis is slow
to import.

>>> from hypothesis import Phase, given, settings
>>> @settings(max_examples=3, database=None, derandomize=True, phases=[Phase.generate])
... @given(static_modules())
... def every_parameter_is_typed(module):
...     assert all(param.type is not None for param in module.main_function().params)
>>> every_parameter_is_typed()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "EXTERNS", "arrays", "block_kernels", "computes", "constants", "dims", "dtypes", "index_terms",
    "inputs_for", "kernels", "literals", "modules", "names", "numbers", "scalars", "small_shapes",
    "static_modules", "types", "values_of",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.ir.generate.builder import types
    from plica.ir.generate.choice import names
    from plica.ir.generate.definition import EXTERNS, modules
    from plica.ir.generate.loop import block_kernels
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
else:
    lazily(__name__)
