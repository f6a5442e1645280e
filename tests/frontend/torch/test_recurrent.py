"""Recurrent layers of torch: long sequences are loops, and one code serves every batch."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # it may be missing
from torch import nn

import plica
from plica.codegen.program_kind import repeats
from plica.frontend import recurrence
from plica.rewrite.graph.walk import expressions

KINDS: Final[dict[str, Any]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def _agrees(found: Any, wanted: Any) -> None:
    """Outputs and last states, a tuple of two for an LSTM."""
    leaves = torch.utils._pytree.tree_leaves(wanted)
    assert len(found) == len(leaves)
    for mine, reference in zip(found, leaves, strict=True):
        np.testing.assert_allclose(mine, reference.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "both_ways"), [("lstm", True), ("gru", False)])
def test_a_long_sequence_is_a_loop_of_blocks(
    kind: str, both_ways: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrence, "MOST_STEPS", 4)
    monkeypatch.setattr(recurrence, "BLOCK", 3)
    torch.manual_seed(5)
    model = KINDS[kind](3, 4, bidirectional=both_ways, batch_first=True).eval()
    x = torch.randn(2, 11, 3)
    module = plica.from_torch(torch.export.export(model, (x,)))
    assert repeats(module)
    written = len(expressions(module.main_function()))
    _agrees(plica.compile(module)(x.numpy()), model(x))
    _agrees(plica.interpret(module, x.numpy()), model(x))
    longer = plica.from_torch(torch.export.export(model, (torch.randn(2, 41, 3),)))
    assert len(expressions(longer.main_function())) == written  # 11 and 41 leave as many over


def test_one_code_serves_every_batch() -> None:
    torch.manual_seed(6)
    model = nn.GRU(3, 4, num_layers=2).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.randn(5, 2, 3),), dynamic_shapes=({1: batch},))
    module = plica.from_torch(program)
    exe = plica.compile(module)
    for size in (1, 7):
        x = torch.randn(5, size, 3)
        _agrees(exe(x.numpy()), model(x))
        _agrees(plica.interpret(module, x.numpy()), model(x))


@pytest.mark.parametrize("both_ways", [False, True])
def test_final_states_have_their_own_rank_whatever_torch_says(
    both_ways: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions of torch leave an axis more at them where shapes are worked out."""
    from torch._decomp import decompositions

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(3, 4, batch_first=True, bidirectional=both_ways)
            self.after = nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            _, (state, _) = self.layer(x)
            made: torch.Tensor = self.after(state[-1])
            return made

    def off(layer: Any) -> Any:
        def run(given: Any, hidden: Any, *args: Any, **named: Any) -> Any:
            out, states = layer(given, hidden, *args, **named)
            return out, tuple(each.unsqueeze(0) for each in states)

        return run

    torch.manual_seed(7)
    model, x = Last().eval(), torch.randn(2, 3, 3)
    program = torch.export.export(model, (x,))
    for name in ("one_layer_lstm", "mkldnn_one_layer_lstm"):
        monkeypatch.setattr(decompositions, name, off(getattr(decompositions, name)))
    _agrees([plica.interpret(plica.from_torch(program), x.numpy())], model(x))
