"""Operators of com.microsoft: the same as onnxruntime's, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.ir.graph.module import Module
from plica.rewrite import approx, rewrite
from plica.rewrite.packs.byte_product import FEW_ROWS, few_bits_for

FEW = settings(max_examples=max(5, settings().max_examples // 10), deadline=None)


def product(sizes: tuple[int, int, int], bits: int, block: int, **more: Any) -> onnx.ModelProto:
    """x by a weight in blocks; `zeros` or `bias` among its inputs, other words are attributes."""
    rows, depth, columns = sizes
    rng, blocks = np.random.default_rng(3), -(-depth // block)
    whole = rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    scales = rng.random(columns * blocks).astype(np.float32)
    given: dict[str, Any] = {"w": whole, "s": scales}
    names = ["x", "w", "s"]
    if more.pop("zeros", False):
        row = -(-blocks * bits // 8)
        given["z"] = rng.integers(0, 256, columns * row).astype(np.uint8)
        names.append("z")
    if more.pop("groups", False):
        given["g"] = (np.arange(depth) // block).astype(np.int32)
        names += [""] * (4 - len(names)) + ["g"]
    how = {"K": depth, "N": columns, "bits": bits, "block_size": block, **more}
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **how)
    graph = helper.make_graph(
        [node], "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, depth))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, columns))],
        [numpy_helper.from_array(each, name) for name, each in given.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@FEW
@given(st.data())
def test_products_of_few_bits_are_onnxruntimes(data: st.DataObject) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    sizes = tuple(data.draw(st.integers(1, most)) for most in (5, 150, 20))
    block, bits = data.draw(st.sampled_from((16, 32))), data.draw(st.sampled_from((4, 4, 8)))
    model = product((sizes[0], sizes[1], sizes[2]), bits, block, zeros=data.draw(st.booleans()))
    x = np.random.default_rng(1).standard_normal(sizes[:2]).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = plica.compile(model, cache=False)(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


@FEW
@given(st.data())
def test_products_of_few_bits_are_made_of_the_bits(data: st.DataObject) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    rows, columns = data.draw(st.integers(1, FEW_ROWS)), data.draw(st.integers(1, 70))
    block, depth = data.draw(st.sampled_from((16, 32, 64))), data.draw(st.integers(2, 400))
    bits, zeros = data.draw(st.sampled_from((4, 4, 8))), data.draw(st.booleans())
    model = product((rows, depth, columns), bits, block, zeros=zeros)
    after, derivation = rewrite(plica.from_onnx(model), few_bits_for(0), approx(1e-4))
    assert isinstance(after, Module)
    assert [each.rule.name for each in derivation.steps] == ["few-bit-columns"]
    x = np.random.default_rng(1).standard_normal((rows, depth)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for found in (plica.interpret(after, x), plica.compile(after, cache=False)(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (product((1, 32, 4), 3, 32), "2, 4 or 8"),
        (product((1, 32, 4), 4, 32, groups=True), "g_idx"),
        (product((1, 64, 4), 4, 32, block_size=16), "bytes for each block"),
    ],
    ids=["bits", "groups", "blocks"],
)
def test_other_products_are_refused(model: onnx.ModelProto, said: str) -> None:
    with pytest.raises(plica.PlicaError, match=said):
        plica.from_onnx(model)


def test_other_operators_of_the_domain_are_named() -> None:
    model = product((1, 32, 4), 4, 32)
    model.graph.node[0].op_type = "Hovercraft"
    with pytest.raises(plica.UnsupportedError, match=r"com.microsoft.Hovercraft"):
        plica.from_onnx(model)
