"""Comparison of results with the reference: integers exactly, floats within a few units."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.ir.type.dtype import DTYPES, dtype

Array = np.ndarray[Any, Any]

# How many units in the last place may lie between us and the reference, relative to the greatest
# number about: computing in several steps and summing a few numbers costs a few units.
EPSILON: Final = {each.name: 2.0 ** (1 - each.row.digits) for each in DTYPES if each.is_float}
UNITS: Final = {
    **{each.name: 0 for each in DTYPES if each.is_storage},
    "f16": 8, "bf16": 8, "f32": 64, "f64": 4096,
}  # fmt: skip


def close(found: Array, wanted: Any, args: tuple[Array, ...] = ()) -> None:
    """Equal, or within a few units of the greatest magnitude about; nan and infinities agree."""
    kind = dtype(found.dtype)
    assert found.shape == np.shape(wanted)
    if not kind.is_float:
        np.testing.assert_array_equal(found, np.asarray(wanted).astype(found.dtype))
        return
    with np.errstate(all="ignore"):
        expected = np.asarray(wanted).astype(found.dtype).astype(np.float64)
    magnitudes = [np.abs(each.astype(np.float64)) for each in (found, expected, *args)]
    # A huge argument must not excuse a wrong result for the others.
    tame = [each[np.isfinite(each) & (each < 1e4)].max(initial=1.0) for each in magnitudes]
    tolerance = UNITS[kind.name] * EPSILON[kind.name]
    ours = found.astype(np.float64)
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance * max(tame))
