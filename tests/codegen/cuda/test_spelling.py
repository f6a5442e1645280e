"""However torch spells attention, it is one kernel, and what is around it is in few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import plica
from plica.codegen.cuda.passes import GPU
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Call, Expr, Function, attr
from plica.ir.graph.module import Module
from plica.ir.passes import Pipeline
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from plica.rewrite.graph.walk import expressions
from plica.rewrite.history import begun
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.rule_pass import Setting, through

torch = pytest.importorskip("torch")
nn = torch.nn
WIDE, LONG, HEADS = 32, 16, 2


def network(of: Callable[..., Any], *layers: Any) -> Any:
    class Network(nn.Module):  # type: ignore[misc, name-defined]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, *given: Any) -> Any:
            return of(*given, *self.layers)

    return Network()


def by_hand(x: Any, inner: Any, outer: Any) -> Any:
    """Products and softmax of f16, each rounded."""
    b, t, c = x.shape
    q, k, v = (z.view(b, t, HEADS, c // HEADS).permute(0, 2, 1, 3) for z in inner(x).chunk(3, -1))
    weights = ((q * 0.25) @ k.transpose(-1, -2)).softmax(-1)
    return outer((weights @ v).transpose(1, 2).reshape(b, t, c))


def shared(q: Any, k: Any, v: Any) -> Any:
    """Two queries have one head."""
    k, v = (z[:, :, None].expand(1, 1, 2, LONG, 8).reshape(1, 2, LONG, 8) for z in (k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v)


def batches(q: Any, k: Any, v: Any) -> Any:
    scores = torch.baddbmm(torch.zeros(1, dtype=q.dtype), q, k.transpose(1, 2), beta=0, alpha=0.3)
    return torch.bmm(torch.softmax(scores, -1), v)


def layer() -> Any:
    return nn.TransformerEncoderLayer(WIDE, HEADS, 48, 0.0, "gelu", batch_first=True)


def heads() -> Any:
    whole = nn.MultiheadAttention(WIDE, HEADS)
    return network(lambda x, of: of(x, x, x, need_weights=False)[0], whole)


# fmt: off
SPELLINGS: dict[str, tuple[Callable[[], Any], list[tuple[int, ...]], int]] = {
    "encoder layer":             (layer,                 [(3, LONG, WIDE)], 7),
    "heads, time first":         (heads,                 [(LONG, 3, WIDE)], 3),
    "by hand": (lambda: network(by_hand, nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)),
                [(3, LONG, WIDE)], 4),
    "shared heads": (lambda: network(shared), [(1, 2, LONG, 8), *[(1, 1, LONG, 8)] * 2], 1),
    "batches":      (lambda: network(batches), [(2, LONG, 8)] * 3, 1),
}
# fmt: on


@pytest.mark.parametrize("word", SPELLINGS)
def test_attention_is_one_kernel(word: str) -> None:
    make, shapes, count = SPELLINGS[word]
    given = tuple([torch.randn(shape).half() for shape in shapes])
    whole = make().eval().half()
    for name, weights in whole.named_parameters():
        if "bias" in name:
            nn.init.normal_(weights)
    exported = plica.from_torch(torch.export.export(whole, given))
    passes = Pipeline(GPU.passes[: GPU.names.index("fuse") + 1])
    done = through(passes, begun(infer(exported)), Setting(DEFAULT_CONTRACT, ())).module
    assert isinstance(done, Module)
    functions = [each.callee for each in expressions(done.main_function().body)
                 if isinstance(each, Call) and isinstance(each.callee, Function)]  # fmt: skip
    chains = [each for each in functions if len(attr(each, "stages") or ()) > 4]
    assert (len(chains), len(functions)) == (1, count)


def test_attention_of_f32_is_one_kernel_where_its_products_may_be_parts() -> None:
    """Under a strict contract no form would make a kernel of all of it."""
    head = "import plica\nfrom plica.op import nn\nfrom plica import op\n"
    text = (
        f"{head}from plica.script import Tensor, f32\n\n@plica.function\n"
        "def main(q: Tensor[(2, 40, 32), f32], k: Tensor[(2, 32, 40), f32],\n"
        "         v: Tensor[(2, 40, 32), f32]) -> Tensor[(2, 40, 32), f32]:\n"
        "    return op.matmul(nn.softmax(op.matmul(q, k), axis=-1), v)\n"
    )
    passes = Pipeline(GPU.passes[: GPU.names.index("fuse") + 1])
    found = []
    for contract in (DEFAULT_CONTRACT, reassociates):
        made = through(passes, begun(infer(from_text(text))), Setting(contract)).module
        body = made.main_function().body
        functions = [each.callee for each in expressions(body) if isinstance(each, Call)]
        found.append(max(_products(each) for each in functions))
    assert found[0] == 2
    assert found[1] < 2


def _products(of: Expr) -> int:
    return sum(isinstance(each, Apply) and "matmul" in each.op for each in expressions(of))
