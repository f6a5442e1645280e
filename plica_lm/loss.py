"""The loss of a decoder, for training: the mean cross-entropy of the next tokens of a batch.

    main(tokens, targets, weights…)      (batch, length) and (batch * length,), both i64

It calls the program of `plica_lm.decoder`, for texts that begin at position 0, with caches that
hold nothing but these texts.  `plica.value_and_grad` and `plica.training` derive it.
"""

from __future__ import annotations

from collections.abc import Mapping

from plica import op
from plica.core import Name
from plica.ir.graph.expression import Call, Function, Project, Var
from plica.ir.graph.module import Module, module
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.op import nn
from plica_lm.architecture import Architecture
from plica_lm.decoder import caches_of, decoder
from plica_lm.weight import Weight


def loss(of: Architecture, weights: Mapping[str, Weight], batch: int, length: int) -> Module:
    """The loss of an architecture, for weights of these shapes and formats."""
    called = decoder(of, weights).main_function()
    count = batch * length
    rows = op.reshape(op.iota((count,)), (batch, length))
    tokens, targets = (
        Var(Name("tokens"), tensor((batch, length), "i64")),
        Var(Name("targets"), tensor((count,), "i64")),
    )
    given = {
        "tokens": tokens,
        "positions": op.broadcast_to(op.iota((length,)), (batch, length)),
        "rows": rows,
        "seen": rows,
        "wanted": op.iota((count,)),
        **{name: op.zeros((count, of.shared, of.head)) for name in caches_of(of)},
    }
    params = [param for param in called.params if str(param.name) not in given]
    inner, main = Var(Name("decoder"), None), Var(Name("main"), None)
    args = tuple([given.get(str(param.name), param) for param in called.params])
    scores = Project(Call(inner, args), 0)
    words = weights.get("head", weights["embedding"]).shape[0]
    value = nn.cross_entropy(scores, targets, op.ones((words,)))
    outer = Function((), (), (tokens, targets, *params), None, value)
    return infer(module({inner: called, main: outer}, main))
