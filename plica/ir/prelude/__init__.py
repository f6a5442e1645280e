"""The prelude: a library of lists, options, trees and functions in the language itself.

It is a script, `library.py`.  A text's module gets it by linking (`plica.ir.graph.link.merge`); a
live
script imports what it uses from `plica.ir.prelude.library`, as from any Python module.

>>> str(prelude().find("length").ret)
'Tensor[(), i64]'
>>> [int(each) for each in list_items(list_value([np.int64(1), np.int64(2)]))]
[1, 2]
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import numpy as np

from plica.ir.graph.module import Module
from plica.ir.interpret.value import DataValue, Value, build
from plica.ir.text.script import from_text

__all__ = ["list_items", "list_value", "prelude"]

_FILE: Final = "library.py"


@lru_cache(maxsize=1)
def prelude() -> Module:
    """The library as a module without a main function, read once."""
    return from_text(files(__name__).joinpath(_FILE).read_text(encoding="utf-8"), _FILE)


def list_value(items: Iterable[Any]) -> DataValue:
    """The prelude list of these values; numpy numbers become arrays."""
    library = prelude()
    result = build(library, "Nil")
    empty, cons = result, build(library, "Cons", np.int64(0), result)
    for item in reversed(list(items)):
        value = np.asarray(item) if isinstance(item, np.generic) else item
        result = DataValue(empty.data, cons.index, cons.name, (value, result))
    return result


def list_items(value: Value) -> list[Any]:
    """The values of a prelude list."""
    found = []
    while isinstance(value, DataValue) and value.fields:
        item, value = value.fields
        found.append(item)
    return found
