"""Equality of values that programs give."""

from __future__ import annotations

from typing import Any

import numpy as np

from plica.ir.interpret.value import DataValue


def same_value(a: Any, b: Any) -> bool:
    """Whether two values are equal: arrays in dtype, shape and every element, nan equal to nan.

    Functions are equal only to themselves.
    """
    stack: list[tuple[Any, Any]] = [(a, b)]
    while stack:
        a, b = stack.pop()
        if a is b:
            continue
        if isinstance(a, np.ndarray | np.generic) and isinstance(b, np.ndarray | np.generic):
            if a.dtype != b.dtype or a.shape != b.shape:
                return False
            same = np.asarray(a == b)
            if a.dtype.kind not in "biu":
                same = same | (np.isnan(a) & np.isnan(b))
            if not same.all():
                return False
        elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            stack.extend(zip(a, b, strict=True))
        elif isinstance(a, DataValue) and isinstance(b, DataValue):
            if a.data is not b.data or a.index != b.index:
                return False
            stack.append((a.fields, b.fields))
        else:
            return False
    return True
