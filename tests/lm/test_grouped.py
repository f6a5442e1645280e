"""Weights of several tensors: the numbers of their definitions, one by one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import plica
from plica.core import Name
from plica.ir.graph import Function, Var, module
from plica.ir.type.dtype import dtype
from plica.ir.type.term import tensor
from plica_lm.format.grouped import GroupedFormat, awq, block_scaled, gptq

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
GROUP, DEPTH, COLUMNS = 16, 64, 24
NIBBLE_OF_COLUMN = {0: 0, 2: 1, 4: 2, 6: 3, 1: 4, 3: 5, 5: 6, 7: 7}  # as AutoAWQ packs them


def decoded(of: GroupedFormat, *given: Array) -> Array:
    params = [Var(Name(f"t{n}"), tensor(each.shape, dtype(each.dtype).name))
              for n, each in enumerate(given)]  # fmt: skip
    main = Var(Name("main"), None)
    program = module({main: Function((), (), tuple(params), None, of.decode(*params))}, main)
    meant = np.asarray(plica.interpret(program, *given))
    exe = plica.compile(program, contract="exact", cache=False, threads=1)
    np.testing.assert_array_equal(np.asarray(exe(*given)), meant)
    return meant


def words(*shape: int) -> Array:
    return RANDOM.integers(-(2**31), 2**31, shape).astype(np.int32)


def nibble(word: Any, at: int) -> int:
    return int(word) >> 4 * at & 15


def test_awq() -> None:
    weight, zeros = words(DEPTH, COLUMNS // 8), words(DEPTH // GROUP, COLUMNS // 8)
    scales = RANDOM.standard_normal((DEPTH // GROUP, COLUMNS)).astype(np.float16)
    found = decoded(awq(GROUP), weight, zeros, scales)
    for n, k in np.ndindex(COLUMNS, DEPTH):
        at = NIBBLE_OF_COLUMN[n % 8]
        number = nibble(weight[k, n // 8], at) - nibble(zeros[k // GROUP, n // 8], at)
        assert found[n, k] == np.float32(number) * np.float32(scales[k // GROUP, n])


@pytest.mark.parametrize("ordered", [False, True])
def test_gptq(ordered: bool) -> None:
    weight, zeros = words(DEPTH // 8, COLUMNS), words(DEPTH // GROUP, COLUMNS // 8)
    scales = RANDOM.standard_normal((DEPTH // GROUP, COLUMNS)).astype(np.float16)
    groups = np.arange(DEPTH) // GROUP
    if ordered:
        groups = RANDOM.permutation(groups)
    index = [groups.astype(np.int32)] if ordered else []
    found = decoded(gptq(GROUP, ordered=ordered), weight, zeros, scales, *index)
    for n, k in np.ndindex(COLUMNS, DEPTH):
        zero = nibble(zeros[groups[k], n // 8], n % 8) + 1 & 15
        number = nibble(weight[k // 8, n], k % 8) - zero
        assert found[n, k] == np.float32(number) * np.float32(scales[groups[k], n])


def test_floats_of_8_bits_in_blocks() -> None:
    codes = RANDOM.integers(0, 255, (70, 40)).astype(np.uint8)
    weight = np.where(codes & 127 == 127, 0, codes).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    scales = RANDOM.standard_normal((3, 3)).astype(np.float32)
    found = decoded(block_scaled(32, 16), weight, scales)
    for n, k in np.ndindex(*weight.shape):
        assert found[n, k] == np.float32(weight[n, k]) * scales[n // 32, k // 16]
