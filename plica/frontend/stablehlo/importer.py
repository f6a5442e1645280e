"""Modules in: from StableHLO's text, bytecode or an export of JAX to a module of Plica.

>>> text = '''
... func.func @main(%x: tensor<2x3xf32>) -> tensor<2xf32> {
...   %zero = stablehlo.constant dense<0.0> : tensor<f32>
...   %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
...     : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
...   return %sum : tensor<2xf32>
... }
... '''
>>> print(from_stablehlo(text))
# plica 1
from __future__ import annotations
<BLANKLINE>
import plica
from plica import op
from plica.script import Tensor, f32
<BLANKLINE>
<BLANKLINE>
@plica.function(attrs={"outputs": ("out0",)})
def main(x: Tensor[(2, 3), f32]) -> Tensor[(2,), f32]:
    return op.sum(x, axis=(1,))
<BLANKLINE>
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Final

from plica.core.collector import paused
from plica.core.name import Name
from plica.frontend.complex_pair import Complex
from plica.frontend.stablehlo.literal import COMPLEX, DTYPES
from plica.frontend.stablehlo.parser import parse
from plica.frontend.stablehlo.reader import HloReader, refuse_unknown
from plica.frontend.stablehlo.syntax import MlirFunction, MlirType, malformed
from plica.ir.graph.expression import Expr, Function, Tuple, Var
from plica.ir.graph.module import Module, main_module
from plica.ir.loop.scalar import index
from plica.ir.type import TensorType, infer
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError, wrong_argument

BYTECODE: Final = b"ML\xefR"  # how bytecode of MLIR begins


def from_stablehlo(source: str | bytes | PathLike[str] | Any, *, main: str = "main") -> Module:
    """The module that StableHLO is: its text, its bytecode, the path of either, or what
    `jax.export.export(…)` gives.

    `main` names the function.  Bytecode is read by jaxlib, which must be installed.
    """
    text = _text(source)
    with paused():
        parsed = parse(text)
        if (function := parsed.functions.get(main)) is None:
            malformed(f"There is no function @{main}.", 1, f"@{main}", ", ".join(parsed.functions))
        refuse_unknown(parsed)
        params = _params(function)
        results = HloReader(parsed).function(main, params)
        outputs = _outputs(results)
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        names = tuple([f"out{at}" for at in range(len(outputs))])
        attrs = (("outputs", names),)
        return infer(main_module(Function((), (), tuple(params), None, body, attrs)))


def _text(source: Any) -> str:
    """The text of a module in any supported form."""
    if callable(read := getattr(source, "mlir_module", None)):  # an export of JAX
        return str(read())
    if callable(read := getattr(source, "as_text", None)):  # what JAX lowers a function to
        return str(read())
    if isinstance(source, str) and "{" in source:
        return source
    if isinstance(source, str | PathLike):
        path = Path(source)
        try:
            source = path.read_bytes()
        except OSError as error:
            message = "The file of the module cannot be read."
            place, expected = Place(file=str(path)), "a file of StableHLO"
            raise InputError.of("bad-model", message, place, expected, error.strerror) from None
    if not isinstance(source, bytes):
        expected = "text, bytes, a path, or an export of JAX"
        raise wrong_argument("This is no module of StableHLO.", expected, source)
    if source.startswith(BYTECODE):
        return _disassembled(source)
    try:
        return source.decode()
    except UnicodeDecodeError:
        malformed("The file is neither text nor bytecode of MLIR.", 1)


def _disassembled(code: bytes) -> str:
    """The text of bytecode, by jaxlib."""
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import chlo, func, stablehlo  # noqa: F401  # registers them
    except ImportError as error:
        message = "Reading bytecode needs the package jaxlib, which is not installed."
        hint = "Install it with Plica, pip install 'plica[jax]', or give the text of the module."
        diagnostic = Diagnostic("missing-tool", message, None, "jaxlib", str(error), hint)
        raise UnsupportedError(diagnostic) from None
    with ir.Context() as context:
        stablehlo.register_dialect(context)
        chlo.register_dialect(context)
        try:
            try:
                return str(stablehlo.deserialize_portable_artifact(context, code))
            except (ValueError, RuntimeError, ir.MLIRError):
                return str(ir.Module.parse(code))
        except (ValueError, RuntimeError, ir.MLIRError) as error:
            malformed("The bytecode cannot be read.", 1, found=str(error)[:200])


def _params(function: MlirFunction) -> list[Var]:
    """The inputs, which have the names of the text."""
    wrong: list[Diagnostic] = []
    params: list[Var] = []
    for name, of in function.region.arguments:
        if None in of.shape or of.element not in DTYPES:
            wrong.append(_unfit(name, of))
            continue
        shape = tuple([index(size or 0) for size in of.shape])
        word = "".join(c if c.isalnum() else "_" for c in name.removeprefix("%"))
        params.append(
            Var(Name(word if word[:1].isalpha() else f"arg{word}"),
                TensorType(shape, DTYPES[of.element]))
        )  # fmt: skip
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])
    return params


def _unfit(name: str, of: MlirType) -> Diagnostic:
    message = f"The input {name} is of a type that Plica does not have."
    hint = "Export the function for inputs whose sizes are numbers."
    if of.element in COMPLEX:
        hint = "Give and take the parts of complex numbers apart."
    return Diagnostic("unsupported", message, Place(node=name), "a tensor", of.text, hint)


def _outputs(results: list[Any]) -> list[Expr]:
    outputs: list[Expr] = []
    for at, result in enumerate(results):
        if isinstance(result, Complex) or not isinstance(result, Expr):
            message = f"The output {at} is of a type that Plica does not have."
            hint = "Return the parts of complex numbers apart."
            raise UnsupportedError.of(
                "unsupported", message, Place(node="return"), "tensors", None, hint
            )
        outputs.append(result)
    if not outputs:
        malformed("The function has no results.", 1)
    return outputs
