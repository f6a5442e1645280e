"""StableHLO in: sources, names, bytecode, and what is refused."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.core.diagnostic import Malformed
from plica.frontend.stablehlo.parser import parse
from plica.runtime.error import PlicaError

TEXT = """
// a comment
module @acme attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<2x3xf32> loc("x"), %0: tensor<3xf32>) -> (tensor<2xf32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %wide = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %product = call @times(%x, %wide) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %sum = stablehlo.reduce(%product init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    return %sum : tensor<2xf32>
  }
  func.func private @times(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %r = stablehlo.multiply %a, %b : tensor<2x3xf32>
    return %r : tensor<2x3xf32>
  }
}
"""

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.array([1, 2, 3], np.float32)


def test_a_module_becomes_a_program_of_operators() -> None:
    module = plica.from_stablehlo(TEXT)
    assert "op.sum(x * " in str(module)
    assert [str(each.name) for each in module.main_function().params] == ["x", "arg0"]
    np.testing.assert_array_equal(plica.interpret(module, X, Y), X @ Y)


def test_a_text_is_compiled() -> None:
    exe = plica.compile(TEXT)
    np.testing.assert_allclose(exe(X, Y), X @ Y, rtol=1e-6)
    assert [each.name for each in exe.outputs] == ["out0"]


def test_a_file_is_compiled(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(TEXT)
    np.testing.assert_allclose(plica.compile(path)(X, Y), X @ Y, rtol=1e-6)
    np.testing.assert_allclose(plica.interpret(plica.from_stablehlo(str(path)), X, Y), X @ Y)


def test_another_function_is_the_main_one() -> None:
    module = plica.from_stablehlo(TEXT, main="times")
    np.testing.assert_array_equal(plica.interpret(module, X, X), X * X)


def test_an_export_and_its_bytecode_are_read() -> None:
    jax = pytest.importorskip("jax")
    exported = jax.export.export(jax.jit(lambda x: jax.nn.softmax(x) @ x.T))(X)
    expected = plica.interpret(plica.from_stablehlo(exported), X)
    found = plica.interpret(plica.from_stablehlo(bytes(exported.mlir_module_serialized)), X)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(plica.compile(exported)(X), expected, rtol=1e-5)


def test_the_generic_syntax_is_read() -> None:
    jax = pytest.importorskip("jax")

    def function(x: object) -> object:
        return jax.numpy.sort(jax.lax.while_loop(lambda y: y.sum() < 99, lambda y: y + 1, x))[:, 1:]

    lowered = jax.jit(function).lower(X)
    texts = [lowered.as_text(), lowered.as_text(debug_info=True)]
    operation = lowered.compiler_ir().operation
    texts.append(operation.get_asm(print_generic_op_form=True))
    digests = {plica.digest(plica.from_stablehlo(each)) for each in texts}
    assert len(digests) == 1


def body(text: str, of: str = "tensor<2xf32>") -> str:
    return f"func.func @main(%a: {of}) -> {of} {{\n{text}\nreturn %a : {of}\n}}"


REFUSED = {
    "an open size": (body("", "tensor<?xf32>"), "is of a type that Plica does not have"),
    "complex inputs": (body("", "tensor<2xcomplex<f32>>"), "is of a type that Plica does not have"),
    "no tensor": (body("", "!stablehlo.token"), "is of a type that Plica does not have"),
    "an unknown operation": (body("%b = acme.twice %a : tensor<2xf32>"), "acme.twice is not supp"),
    "an unknown custom call": (
        body("%b = stablehlo.custom_call @acme(%a) : (tensor<2xf32>) -> tensor<2xf32>"),
        "The target is not known",
    ),
    "several devices": (
        "module attributes {mhlo.num_replicas = 2 : i32} {"
        + body("%b = stablehlo.replica_id : tensor<ui32>") + "}",
        "runs on one device",
    ),
    "a body that is no function of scalars": (
        body(
            "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
            '%b = "stablehlo.reduce"(%a, %z) <{dimensions = array<i64: 0>}> ({\n'
            "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n"
            "%s = stablehlo.while(%i = %p) : tensor<f32>\n"
            "cond { %t = stablehlo.constant dense<false> : tensor<i1>\n"
            "stablehlo.return %t : tensor<i1> }\n"
            "do { stablehlo.return %i : tensor<f32> }\n"
            "stablehlo.return %s : tensor<f32> }) : (tensor<2xf32>, tensor<f32>) -> tensor<f32>"
        ),
        "not a function of scalars",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_plica_does_not_have_is_refused(name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(plica.UnsupportedError, match=message):
        plica.from_stablehlo(text)


MALFORMED = {
    "no function": "module {}",
    "no end": body("")[:-1],
    "an unknown value": body("%b = stablehlo.abs %c : tensor<2xf32>"),
    "no return": "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { }",
    "another number of elements": body("%b = stablehlo.constant dense<[1.0]> : tensor<2x1xf32>"),
    "an open string": body('%b = "stablehlo.abs'),
    "recursion": body("%b = call @main(%a) : (tensor<2xf32>) -> tensor<2xf32>"),
    "deep nesting": body("%b = stablehlo.constant " + "{a = [" * 300),
    "a strange character": body("%b = stablehlo.abs %a ; tensor<2xf32>"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_module_is_refused(name: str) -> None:
    with pytest.raises(Malformed):
        plica.from_stablehlo(MALFORMED[name])


def test_a_wrong_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlicaError, match="no module of StableHLO"):
        plica.from_stablehlo(3)
    with pytest.raises(PlicaError, match="cannot be read"):
        plica.from_stablehlo(tmp_path / "absent.mlir")
    with pytest.raises(PlicaError, match="neither text nor bytecode"):
        plica.from_stablehlo(b"\xff\xfe\x00")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_texts_are_refused_or_read(seed: int) -> None:
    """No damage leads to anything but a refusal."""
    draw = random.Random(seed)
    text = list(TEXT)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text))
        text[at] = draw.choice(["", *'<>{}()[],:=%@x1-"', text[draw.randrange(len(text))]])
    with suppress(PlicaError):
        plica.from_stablehlo("".join(text))


def test_the_text_of_a_large_constant_is_bytes() -> None:
    of = "tensor<2x2xi16>"
    text = body(f'%b = stablehlo.constant dense<"0x0100020003000400"> : {of}')
    (operation, _) = parse(text).functions["main"].region.operations
    assert operation.attributes["value"].text == 'dense<"0x0100020003000400">'
