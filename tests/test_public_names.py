"""The public names of `import plica`: lazy, cheap, complete."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import plica

ROOT = Path(__file__).parents[1]
HEAVY = {"numpy", "onnx", "torch", "xgboost", "llvmlite", "attrs", "rich"}
LAYERS = ("core", "ir", "rewrite", "schedule", "codegen", "search")


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_import_brings_nothing_heavy() -> None:
    loaded = set(python("import sys, plica; print(*sys.modules)").split())
    assert "plica" in loaded
    assert not loaded & HEAVY
    assert not {name for name in loaded if name.startswith("plica.")}


def test_errors_come_without_the_compiler() -> None:
    loaded = set(python("import sys, plica; plica.InputError; print(*sys.modules)").split())
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("plica.")} == {
        "plica.runtime",
        "plica.runtime.error",
    }


@pytest.mark.parametrize("name", sorted(plica._PUBLIC))
def test_every_name_is_where_the_table_says(name: str) -> None:
    module, _, attribute = plica._PUBLIC[name].partition(":")
    found = import_module(module)
    expected = getattr(found, attribute) if attribute else found
    assert getattr(plica, name) is expected


def test_the_table_and_the_type_checker_agree() -> None:
    source = (ROOT / "plica" / "__init__.py").read_text(encoding="utf-8")
    told = {
        alias.asname or alias.name: (
            f"plica.{alias.name}" if node.module == "plica" else f"{node.module}:{alias.name}"
        )
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == plica._PUBLIC
    assert sorted(plica.__all__) == sorted(["__version__", *plica._PUBLIC]) == dir(plica)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'plica' has no attribute 'nonsense'"):
        getattr(plica, "nonsense")  # noqa: B009  # the type checker would refuse it


@pytest.mark.parametrize("layer", LAYERS)
def test_the_root_shows_the_layers(layer: str) -> None:
    link = ROOT / layer
    assert link.is_symlink()
    assert link.readlink() == Path("plica", layer)
    assert (ROOT / "plica" / layer / "__init__.py").is_file()


def test_a_small_compile_imports_few_modules() -> None:
    code = """
import sys, numpy as np
from onnx import TensorProto as T, helper as H, numpy_helper as N
w = N.from_array(np.ones((4, 3, 3, 3), "f4"), "w")
v = N.from_array(np.ones((144, 5), "f4"), "v")
nodes = [("Conv", "x w", "a"), ("Relu", "a", "b"), ("Flatten", "b", "c"), ("MatMul", "c v", "y")]
made = [H.make_node(op, given.split(), [out]) for op, given, out in nodes]
x, y = (H.make_tensor_value_info(n, T.FLOAT, s) for n, s in (("x", (1, 3, 8, 8)), ("y", (1, 5))))
graph = H.make_graph(made, "g", [x], [y], [w, v])
model = H.make_model(graph, opset_imports=[H.make_opsetid("", 17)], ir_version=8)
import plica
plica.compile(model, cache=False)(np.ones((1, 3, 8, 8), "f4"))
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "plica"))
"""
    loaded = python(code).split()
    assert len(loaded) <= 334
    assert not {name for name in loaded if name.startswith("plica.runtime.staged")}
