from __future__ import annotations

from hypothesis import given

from plica.core.binding import free_vars
from plica.ir.graph.expression import Let, Var
from plica.ir.graph.module import Module
from plica.rewrite.graph.alpha_rename import alpha_renamed
from plica.rewrite.graph.anf import to_anf
from plica.rewrite.graph.dataflow import FREE, bindings, intervals, live_after
from tests.rewrite.graph.law import WHOLE, let_chain
from tests.strategies import modules


@WHOLE
@given(modules())
def test_it_agrees_with_the_definition(module: Module) -> None:
    known = to_anf(module)
    for _, function in known.functions():
        body = alpha_renamed(function, known.names).body
        lets, result = bindings(body)
        values = [value for _, value in lets] + [result]
        uses = [{v for v in free_vars(value) if isinstance(v, Var)} for value in values]
        found = intervals(body)
        for var, (born, last) in found.items():
            assert born == next((i for i, (name, _) in enumerate(lets) if name is var), FREE)
            later = [i for i, each in enumerate(uses) if var in each and i > born]
            assert last == max(later, default=born)
        for position, live in enumerate(reversed(list(live_after(body)))):
            expected = {
                var
                for var, (born, last) in found.items()
                if born <= position < last
                or (born <= position and var in set().union(*uses[position + 1 :]))
            }
            assert live == expected


def test_long_blocks() -> None:
    body = let_chain(5_000).main_function().body
    assert isinstance(body, Let)
    assert len(intervals(body)) == 5_001
    assert all(len(live) == 2 for live in list(live_after(body))[1:])
