"""Only running sums of products are rounded once: differences of equal products stay zero."""

import numpy as np
import pytest

import plica
from plica.codegen.emit.contraction import accumulations
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32

HEAD = "import plica\nfrom plica import op\n@plica.function\n"
ROOT = HEAD + (
    "def main(x: Tensor[(1000, 4), f32]):\n"
    "    u = op.mean(x, axis=1)\n"
    "    return op.sqrt(op.mean(x * x, axis=1) - u * u)\n"
)
PAIRS = {
    "x * x - y * y": HEAD
    + "def main(x: Tensor[(1000,), f32], y: Tensor[(1000,), f32]):\n"
    + "    return op.sqrt(x * x - y * y)\n",
    "x * y + x * -y": HEAD
    + "def main(x: Tensor[(1000,), f32], y: Tensor[(1000,), f32]):\n"
    + "    return op.sqrt(x * y + x * -y)\n",
    "sum(x * y) - x * y": HEAD
    + "def main(x: Tensor[(1000,), f32], y: Tensor[(1000,), f32]):\n"
    + "    return op.sqrt(op.sum(op.reshape(x * y, shape=(1000, 1)), axis=1) - x * y)\n",
}

i = axis("i")
x, y, total = (buffer(name, (4,), f32) for name in ("x", "y", "total"))


@pytest.mark.parametrize("contract", [None, "fused", "reassociates", "exact"])
def test_the_variance_of_equal_numbers_has_a_root(contract: str | None) -> None:
    column = np.random.default_rng(0).standard_normal((1000, 1)).astype(np.float32)
    rows = np.repeat(column, 4, axis=1)
    run = plica.compile(plica.from_text(ROOT), cache=False, threads=1, contract=contract)
    assert not np.asarray(run(rows)).any()


@pytest.mark.parametrize("text", PAIRS.values(), ids=PAIRS)
def test_equal_products_cancel(text: str) -> None:
    data = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    run = plica.compile(plica.from_text(text), cache=False, threads=1)
    assert not np.asarray(run(data, data)).any()


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (total[i] + x[i] * y[i], 1),
        (x[i] * y[i] + total[i], 1),
        (total[i] + x[i] * y[i] + x[0] * y[0], 2),
        (total[i] + x[i] * x[i], 0),
        (total[i] - x[i] * y[i], 0),
        (x[i] * y[i] + x[0] * y[0], 0),
        (x[i] + x[i] * y[i], 0),
        (x[i] * y[i] + 1.0, 0),
    ],
    ids=str,
)
def test_running_sums_alone_are_contracted(value: Scalar, count: int) -> None:
    assert len(accumulations(total, value)) == count


def test_a_matrix_product_multiplies_and_adds_at_once() -> None:
    text = HEAD + (
        "def main(x: Tensor[(64, 64), f32], w: Tensor[(64, 64), f32]):\n"
        "    return op.matmul(x, w)\n"
    )
    module = plica.from_text(text)
    assert "llvm.fmuladd" in plica.compile(module, cache=False, threads=1).source()
