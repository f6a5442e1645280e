"""Retracing: kernels of an artefact made again; a wrong trace, barrier, text or code is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

import plica
from plica.codegen.llvm.toolchain import host
from plica.codegen.lower.passes import LOWERING
from plica.codegen.retrace import retraced, texts_of
from plica.frontend.zoo import resnet
from plica.ir.graph.module import Module
from plica.ir.text.script import from_text
from plica.pipeline import assemble, lower, record, target_of
from plica.runtime.artefact import Artefact
from plica.runtime.error import ArtefactError
from plica.runtime.link import can_link
from plica.runtime.record import CompilationRecord, KernelTrace
from plica.schedule.trace import Trace

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

MODEL = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(4, 16), f32], w: Tensor[(16, 32), f32]) -> Tensor[(4, 32), f32]:
    return op.nn.softmax(op.matmul(x, w), axis=-1)
"""


@lru_cache(maxsize=1)
def model() -> Module:
    return from_text(MODEL)


@lru_cache(maxsize=1)
def artefact() -> Artefact:
    return plica.compile(model(), threads=1, cache=False).artefact


@lru_cache(maxsize=1)
def on_gpu() -> tuple[Artefact, CompilationRecord]:
    """The record of a GPU's kernels; the code beside it is not looked at."""
    made = record(lower(model(), target=target_of("cuda:sm_80")))
    return replace(artefact(), device=object()), made  # type: ignore[arg-type]  # only that it is one


def test_everything_is_made_again() -> None:
    found = retraced(artefact(), artefact().record(), prove=True, rebuild=True)
    assert found.kernels == len(artefact().record().traces)
    assert found.steps > 10
    assert found.proved > 10
    assert (found.rebuilt, found.not_rebuilt) == (found.kernels, "")


@pytest.mark.skipif(host().architecture != "x86_64", reason="processors of another architecture")
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
def test_code_for_another_processor_is_rebuilt(cpu: str) -> None:
    made = plica.compile(model(), target=f"cpu:{cpu}", threads=1, cache=False).artefact
    found = retraced(made, made.record(), rebuild=True)
    assert (found.rebuilt, found.not_rebuilt) == (found.kernels, "")


def test_code_for_another_architecture_is_rebuilt_with_the_model_only() -> None:
    other = "aarch64" if host().architecture == "x86_64" else "x86-64-v3"
    target = target_of(f"cpu:{other}")
    made = assemble(lower(model(), target=target), target)
    found = retraced(made, made.record(), rebuild=True)
    assert found.rebuilt == 0
    assert "--replay" in found.not_rebuilt


def test_kernels_of_a_gpu_are_made_again() -> None:
    found = retraced(*on_gpu(), rebuild=True)
    assert found.kernels
    assert found.barriers
    assert "GPU" in found.not_rebuilt


def changed(change: Callable[[KernelTrace], KernelTrace]) -> CompilationRecord:
    """The record with one of its traces changed: the first that has steps."""
    old = artefact().record()
    at = next(n for n, each in enumerate(old.traces) if len(Trace.from_json(each.json)) > 3)
    traces = [change(each) if n == at else each for n, each in enumerate(old.traces)]
    return replace(old, traces=tuple(traces))


def shorter(of: KernelTrace) -> KernelTrace:
    trace = Trace.from_json(of.json)
    cut = trace.prefix(len(trace) - 1)
    return replace(of, json=cut.to_json(), python=cut.to_python())


def other_decision(of: KernelTrace) -> KernelTrace:
    return replace(of, python=Trace(()).to_python())


def other_kernel(of: KernelTrace) -> KernelTrace:
    return replace(of, before=of.before.replace("0.0", "1.0", 1).replace("-inf", "0.0", 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (shorter, "makes another kernel"),
        (other_decision, "one in Python, and another in JSON"),
        (other_kernel, "makes another kernel"),
        (lambda of: replace(of, before="nothing"), "cannot be taken"),
        (lambda of: replace(of, json=Trace(()).to_json()), "another in JSON"),
    ],
)
def test_a_wrong_trace_is_named(change: Callable[[KernelTrace], KernelTrace], said: str) -> None:
    with pytest.raises(ArtefactError, match=rf"The kernel \w+_[0-9a-f]{{8}}.*{said}"):
        retraced(artefact(), changed(change))


def test_a_trace_beyond_the_contract_is_named() -> None:
    gpu, made = on_gpu()
    with pytest.raises(ArtefactError, match="do not keep the contract"):
        retraced(gpu, replace(made, asked="exact"))


def test_a_damaged_barrier_is_named() -> None:
    gpu, made = on_gpu()
    lines = made.kernels.splitlines()
    at = next(n for n, line in enumerate(lines) if "barrier(" in line)
    without = replace(made, kernels="\n".join(lines[:at] + lines[at + 1 :]))
    with pytest.raises(ArtefactError, match="A barrier is missing in its text"):
        retraced(gpu, without)


def test_a_page_that_forgets_barriers_is_found() -> None:
    gpu, made = on_gpu()
    fewer = tuple([name for name in LOWERING["gpu"].names if name not in ("barriers", "narrow")])
    with pytest.raises(ArtefactError, match="Threads meet where none of them waits"):
        retraced(gpu, replace(made, lowering=fewer))


def test_a_pass_that_is_not_here_is_named() -> None:
    with pytest.raises(ArtefactError, match="'fold-space', which made its kernels, is not here"):
        retraced(artefact(), replace(artefact().record(), lowering=("fold-space",)))


def test_wrong_code_is_named() -> None:
    kernels = [n for n, each in enumerate(artefact().objects) if b"k." in each]
    objects = list(artefact().objects)
    data = bytearray(objects[kernels[-1]])
    data[68] ^= 1  # behind the header of the file code begins
    objects[kernels[-1]] = bytes(data)
    wrong = replace(artefact(), objects=tuple(objects))
    with pytest.raises(ArtefactError, match="not what the compiler makes of it"):
        retraced(wrong, wrong.record(), rebuild=True)


def test_digests_of_kernels_are_needed() -> None:
    with pytest.raises(ArtefactError, match="needs the digest"):
        retraced(artefact(), replace(artefact().record(), digests=()))


def depthwise(channels: int, size: int) -> Module:
    """A lone depthwise convolution, whose text is laid out by the length of names."""
    return from_text(f"""
import plica
from plica import op

@plica.function
def main(x: Tensor[(1, {channels}, {size}, {size}), f32], w: Tensor[({channels}, 1, 3, 3), f32]):
    return op.nn.conv2d(x, w, padding=1, groups={channels})
""")


def test_the_layout_of_a_text_does_not_matter() -> None:
    made = plica.compile(depthwise(24, 28), threads=1, cache=False).artefact
    assert retraced(made, made.record(), rebuild=True).rebuilt == 1


def test_code_of_common_nests_is_made_again() -> None:
    made = plica.compile(resnet(18, image=32, width=0.25, classes=10), threads=1, cache=False)
    found = retraced(made.artefact, made.artefact.record(), rebuild=True)
    assert found.rebuilt > found.kernels  # nests that kernels have in common are objects, too


def test_texts_are_equal_up_to_names() -> None:
    made = artefact().record()
    assert all(f"def {name}(" in text for name, text in texts_of(made).items())
    renamed = re.sub(r"\bx(_\d+)?\b", r"renamed\1", made.kernels)
    assert renamed != made.kernels
    assert retraced(artefact(), replace(made, kernels=renamed)).kernels


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (" = 0.0", " = 1.0", "Its text is another kernel's"),
        (r"(for \w+ in \w+\()\d+", r"\g<1>3", "Its text is another kernel's"),
        ("for ", "for for ", "Its text is no kernel"),
        (r"def (\w+)\(", "def other(", "There is no text of it"),
    ],
)
def test_another_text_is_named(old: str, new: str, said: str) -> None:
    made = artefact().record()
    other = re.sub(old, new, made.kernels, count=1)
    assert other != made.kernels
    with pytest.raises(ArtefactError, match=said):
        retraced(artefact(), replace(made, kernels=other))


def test_texts_with_options_are_read() -> None:
    head = '@plica.kernel(dims="n m")\ndef f(x: X):\n    x[0] = 1\n\n\n'
    texts = f"{head}@plica.kernel\ndef g():\n    x\n"
    found = texts_of(replace(artefact().record(), kernels=texts))
    assert list(found) == ["f", "g"]
    assert found["g"] == "@plica.kernel\ndef g():\n    x"


HALF = """
@plica.kernel
def half(x: Buffer[(8,), f32], y: Buffer[(8,), f32]):
    for i in range(4):
        y[i] = x[i]
"""

FACTORED = """
@plica.kernel
def rows(A: Buffer[(3, 50), f32], R: Buffer[(3,), f32]):
    part = alloc(Buffer[(16, 3), f32])
    for i, k, l in grid(3, 4, 16):
        with block("part", spatial=(l, i), reduce=(k,), where=16 * k + l < 50):
            with init():
                part[l, i] = 0.0
            part[l, i] += A[i, 16 * k + l]
    for i, k in grid(3, 16):
        with block("R", spatial=(i,), reduce=(k,)):
            with init():
                R[i] = 0.0
            R[i] += part[k, i]
"""

OPEN_AT_ZERO = """
import plica
from plica import op

@plica.function
def main(x: Tensor[("n",), i64]) -> Tensor[(), i64]:
    return op.take(x, 0)
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HALF, id="outputs that begin as zeros"),
        pytest.param(FACTORED, id="an index bounded by a predicate on loops"),
        pytest.param(OPEN_AT_ZERO, id="an element of an axis that may be empty"),
    ],
)
def test_right_artefacts_raise_no_alarm(text: str) -> None:
    """Found by verifying all that tests compile: pytest --verify-compiled."""
    of = plica.compile(from_text(text), cache=False).artefact
    found = retraced(of, of.record(), prove=True, rebuild=True)
    assert found.kernels == len(of.record().traces) > 0
