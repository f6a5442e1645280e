"""Plica: a deep-learning compiler in pure-functional Python.

Every name here is imported when it is first used, so that `import plica` costs next to nothing
and a deployed artefact never loads the compiler.

>>> import plica
>>> "compile" in dir(plica)
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

__version__ = "0.2.0"

# Note [Lazy imports]: `_PUBLIC` says where each public name lives; the imports under TYPE_CHECKING
# say the same to type checkers and editors.  A test keeps the two and `__all__` in step.
_PUBLIC: Final[dict[str, str]] = {
    "ArtefactError": "plica.runtime.error:ArtefactError",
    "InputError": "plica.runtime.error:InputError",
    "Module": "plica.ir.graph.module:Module",
    "PlicaError": "plica.runtime.error:PlicaError",
    "UnsupportedError": "plica.runtime.error:UnsupportedError",
    "alpha_equal": "plica.core.digest:alpha_equal",
    "check": "plica.rewrite.check.run:check",
    "checkpoint": "plica.rewrite.gradient:checkpoint",
    "compile": "plica.pipeline:compile",
    "connect": "plica.search.pool.remote:connect",
    "data": "plica.ir.text.script:data",
    "digest": "plica.core.digest:digest",
    "extern": "plica.ir.text.script:extern",
    "first_difference": "plica.core.digest:first_difference",
    "from_onnx": "plica.frontend.onnx:from_onnx",
    "from_stablehlo": "plica.frontend.stablehlo:from_stablehlo",
    "from_tflite": "plica.frontend.tflite:from_tflite",
    "from_text": "plica.ir.text.script:from_text",
    "from_torch": "plica.frontend.torch:from_torch",
    "function": "plica.ir.text.script:function",
    "grad": "plica.rewrite.gradient:grad",
    "interpret": "plica.ir.interpret.interpreter:interpret",
    "jvp": "plica.rewrite.gradient:jvp",
    "kernel": "plica.ir.text.script:kernel",
    "load": "plica.runtime.load:load",
    "op": "plica.op",
    "quantise": "plica.quantising:quantise",
    "script": "plica.script",
    "time": "plica.runtime.timing:time",
    "to_onnx": "plica.frontend.onnx.writer:to_onnx",
    "to_stablehlo": "plica.frontend.stablehlo:to_stablehlo",
    "training": "plica.training",
    "tune": "plica.tuning:tune",
    "value_and_grad": "plica.rewrite.gradient:value_and_grad",
    "vjp": "plica.rewrite.gradient:vjp",
}

__all__ = [
    "ArtefactError", "InputError", "Module", "PlicaError", "UnsupportedError", "__version__",
    "alpha_equal", "check", "checkpoint", "compile", "connect", "data", "digest", "extern",
    "first_difference", "from_onnx", "from_stablehlo", "from_text", "from_tflite", "from_torch",
    "function", "grad", "interpret", "jvp", "kernel", "load", "op", "quantise", "script", "time",
    "to_onnx", "to_stablehlo", "training", "tune", "value_and_grad", "vjp",
]  # fmt: skip

if TYPE_CHECKING:
    from plica import op, script, training
    from plica.core.digest import alpha_equal, digest, first_difference
    from plica.frontend.onnx import from_onnx
    from plica.frontend.onnx.writer import to_onnx
    from plica.frontend.stablehlo import from_stablehlo, to_stablehlo
    from plica.frontend.tflite import from_tflite
    from plica.frontend.torch import from_torch
    from plica.ir.graph.module import Module
    from plica.ir.interpret.interpreter import interpret
    from plica.ir.text.script import data, extern, from_text, function, kernel
    from plica.pipeline import compile
    from plica.quantising import quantise
    from plica.rewrite.check.run import check
    from plica.rewrite.gradient import checkpoint, grad, jvp, value_and_grad, vjp
    from plica.runtime.error import ArtefactError, InputError, PlicaError, UnsupportedError
    from plica.runtime.load import load
    from plica.runtime.timing import time
    from plica.search.pool.remote import connect
    from plica.tuning import tune
else:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for."""
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module, _, attribute = _PUBLIC[name].partition(":")
        found = import_module(module)
        value = getattr(found, attribute) if attribute else found
        globals()[name] = value  # the next use does not come here
        return value


def __dir__() -> list[str]:
    """Every public name, imported or not."""
    return sorted(__all__)
