"""Declared externs: the interpreter computes their meaning, compiled code calls their kernel."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import plica
from plica.core import digest
from plica.extending.declared import CudaKernel, Kernel, TritonKernel, declared_extern
from plica.ir.graph.module import Extern, Module
from plica.runtime.cuda.driver import why_not

if find_spec("triton") is not None:
    import triton  # type: ignore[import-not-found, unused-ignore]  # of GPU machines
    import triton.language as tl  # type: ignore[import-not-found, unused-ignore]  # as above

    @triton.jit  # type: ignore[misc, untyped-decorator, unused-ignore]  # as above
    def gate_kernel(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(x + at, mask=at < n)
        b = tl.load(y + at, mask=at < n)
        tl.store(out + at, a * tl.sigmoid(a) * b, mask=at < n)
else:

    def gate_kernel(*_: Any) -> None:
        """Stands for a kernel where there is no Triton."""


CUDA = """
extern "C" __global__ void gate(const float* x, const float* y, float* out, long long n) {
  long long at = blockIdx.x * 128ll + threadIdx.x;
  if (at < n) out[at] = x[at] / (1.0f + expf(-x[at])) * y[at];
}
"""


MEANING = """
@plica.function
def meaning(x: Tensor[("n",), f32], y: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    return x * op.sigmoid(x) * y
"""
CALL = """
gate = plica.extern(SYMBOL, Fn[(Tensor[("n",), f32], Tensor[("n",), f32]), Tensor[("n",), f32]],
                    gradient=GRADIENT)
"""
MODEL = """
@plica.function
def main(x: Tensor[(700,), f32], y: Tensor[(700,), f32]) -> Tensor[(), f32]:
    return op.sum(GATE(x + 1.0, y) * y)
"""


def numpy_gate(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = x / (1 + np.exp(-x)) * y
    return found.astype(np.float32)


KERNELS: dict[str, Kernel] = {
    "triton": TritonKernel(gate_kernel, lambda of: (-(-of["n"] // 256),), (("BLOCK", 256),)),
    "cuda": CudaKernel(CUDA, "gate", lambda of: (-(-of["n"] // 128),), (128, 1, 1)),
    "python": numpy_gate,
}
meaning = plica.from_text(MEANING)
gates = {name: declared_extern("gate", meaning, kernel) for name, kernel in KERNELS.items()}
X, Y = np.linspace(-2, 2, 700, dtype=np.float32), np.linspace(1, 3, 700, dtype=np.float32)


def called(name: str) -> str:
    """The declaration of a kernel in a script."""
    of = gates[name]
    return CALL.replace("SYMBOL", repr(of.symbol)).replace("GRADIENT", repr(of.gradient))


def served_by(name: str) -> Module:
    """The model with a kernel."""
    return plica.from_text(called(name) + MODEL.replace("GATE", "gate"))


plain = plica.from_text(MEANING + MODEL.replace("GATE", "meaning"))


def compared(module: Any) -> None:
    """Compiled code and its gradient agree with the model that calls no extern."""
    np.testing.assert_allclose(plica.compile(module)(X, Y), plica.interpret(plain, X, Y), rtol=1e-5)
    slopes, expected = (plica.grad(each, wrt=("x", "y")) for each in (module, plain))
    for one, two in zip(plica.compile(slopes)(X, Y), plica.interpret(expected, X, Y), strict=True):
        np.testing.assert_allclose(np.asarray(one), two, rtol=1e-4, atol=1e-6)


def test_a_kernel_in_python_has_the_values_and_gradients_of_its_meaning() -> None:
    compared(served_by("python"))


@pytest.mark.parametrize("name", gates)
def test_the_interpreter_computes_the_meaning(name: str) -> None:
    found = plica.interpret(served_by(name), X, Y)
    assert np.array_equal(found, plica.interpret(plain, X, Y))
    slopes = [plica.interpret(plica.grad(each), X, Y) for each in (served_by(name), plain)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-5)


def test_the_same_declaration_is_the_same_extern() -> None:
    assert declared_extern("gate", meaning, KERNELS["cuda"]) is gates["cuda"]
    assert len({each.symbol for each in gates.values()}) == len(gates)
    assert digest(plica.from_text(str(served_by("cuda")))) == digest(served_by("cuda"))


@pytest.mark.skipif(why_not() is None, reason="there is a GPU")
@pytest.mark.parametrize("name", ["triton", "cuda"])
def test_a_machine_without_a_gpu_refuses_the_kernel(name: str) -> None:
    with pytest.raises(plica.PlicaError, match=r"does not run on this machine|NVIDIA driver"):
        plica.compile(served_by(name))


def test_an_extern_that_is_not_declared_here_is_refused() -> None:
    text = str(served_by("cuda")).replace(gates["cuda"].symbol, "declared_gate_elsewhere")
    module = plica.from_text(text)
    with pytest.raises(plica.UnsupportedError, match="Nothing serves the extern"):
        plica.compile(module)


def test_triton_compiles_the_kernel_for_a_gpu_that_is_not_here() -> None:
    pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, unused-ignore]  # as above
    from triton.compiler import ASTSource  # type: ignore[import-not-found, unused-ignore]  # as above

    types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(gate_kernel, signature=types, constexprs={"BLOCK": 256})
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


@pytest.mark.device
@pytest.mark.parametrize("name", ["triton", "cuda"])
def test_a_gpu_runs_the_kernel(name: str) -> None:
    compared(served_by(name))


@pytest.mark.parametrize("name", ["python", *[
    pytest.param(each, marks=pytest.mark.device) for each in ("triton", "cuda")
]])  # fmt: skip
def test_beside_an_operator_of_torch_library(name: str) -> None:
    torch = pytest.importorskip("torch")

    def sine(x: Any) -> Any:
        return torch.sin(x * 2)

    wave = torch.library.custom_op(
        f"plica_declared::wave_{name}", sine, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    wave.register_fake(torch.empty_like)
    wave.register_autograd(
        lambda ctx, d: d * torch.cos(ctx.x * 2) * 2,
        setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]),
    )

    class Wave(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
        def forward(self, x: Any) -> Any:
            return wave(x)

    exported = plica.from_torch(torch.export.export(Wave(), (torch.from_numpy(X),)))
    (operator,) = [each for each in exported.values if isinstance(each, Extern)]
    source = (
        called(name)
        + f"""
wave = plica.extern({operator.symbol!r}, Fn[(Tensor[(700,), f32],), Tensor[(700,), f32]],
                    gradient={operator.gradient!r})
@plica.function
def main(x: Tensor[(700,), f32], y: Tensor[(700,), f32]) -> Tensor[(), f32]:
    return op.sum(gate(wave(x), y))
"""
    )
    module = plica.from_text(source)
    value, slope = plica.compile(plica.value_and_grad(module, wrt="x"))(X, Y)
    x = torch.from_numpy(X.copy()).requires_grad_()
    expected = (torch.nn.functional.silu(torch.sin(x * 2)) * torch.from_numpy(Y)).sum()
    expected.backward()
    np.testing.assert_allclose(np.asarray(value), expected.detach().numpy(), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(slope), x.grad.numpy(), rtol=1e-4, atol=1e-5)
