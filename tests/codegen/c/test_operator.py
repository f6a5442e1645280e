"""Every operator of the registry: as C, it computes what it means."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from plica.ir.interpret.interpreter import interpret
from plica.ir.op import names
from plica.pipeline import compile
from tests.codegen.native import assert_close
from tests.codegen.test_operator import module_of
from tests.conftest import PROFILE
from tests.deep import spread
from tests.ir.reference.case import CASES

EXAMPLES = {"ci": 2, "dev": 10, "deep": 100}[PROFILE]


@pytest.mark.parametrize("name", spread(names(), len(names()) // 8))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_compiled_is_interpreted(name: str, data: st.DataObject) -> None:
    case = data.draw(CASES[name])
    of = module_of(name, case)
    found: Any = compile(of, target="c", cache=False)(*case.args)
    expected: Any = interpret(of, *case.args)
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for ours, meant in zip(found, expected, strict=True):
        assert_close(ours, meant, case.args)
