"""Random programs whose sizes become known while they run."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

import plica
from plica.cli.fuzz.graph import compiled
from plica.core.diagnostic import IllTyped
from plica.ir.generate.measured import measured_program
from plica.ir.graph.module import Module
from plica.rewrite.fuzz import fuzz
from plica.runtime.error import Diagnostic


def test_each_has_a_value_and_most_kinds_are_drawn() -> None:
    texts = []
    for seed in range(40):
        module, inputs = measured_program(Random(seed))
        plica.interpret(module, *inputs)
        texts.append(str(module))
    for word in ("measure", "argwhere", "if chosen", "left > 0", 'dim_value(dim="2*'):
        assert any(word in each for each in texts), word


def test_a_loop_that_has_a_name_is_compiled_under_measured_sizes() -> None:
    module = plica.from_text("""
@plica.function(dims="n k")
def main(x: Tensor[("n", 2), f32], count: i64) -> Tensor[("k", 2), f32]:
    measure("k", op.minimum(count, op.dim_value("n")))
    y = op.match_shape(op.slice(x, (0,), ("k",), axes=(0,)), ("k", 2))
    def turn(left: i64, z: Tensor[("k", 2), f32]) -> Tensor[("k", 2), f32]:
        return turn(left - 1, z + z) if left > 0 else z
    return turn(count, y) + turn(i64(1), op.negative(y))
""")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for count in (0, 2, 5):
        inputs = (x, np.int64(count))
        np.testing.assert_array_equal(compiled(module, inputs), plica.interpret(module, *inputs))


def test_what_fails_to_type_while_it_is_compiled_is_a_finding() -> None:
    def failing(module: Module, inputs: tuple[Any, ...]) -> Any:
        raise IllTyped(Diagnostic("type-conflict", "Two types are one."))

    found = fuzz((), examples=3, native=failing, every=1, whole=True).finding
    assert found is not None
    assert found.kind == "native"
    assert "Two types are one." in found.reason
