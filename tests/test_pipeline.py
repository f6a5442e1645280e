"""The pipeline end to end: compiled modules compute what they mean."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.codegen.lower.shared_passes import GROUP
from plica.codegen.target import Target
from plica.core.diagnostic import RuleRefused
from plica.core.name import Name
from plica.demo.cnn_script import cnn
from plica.ir.graph.expression import Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.term import tensor
from plica.pipeline import compile
from plica.rewrite import exact
from plica.runtime.error import PlicaError, UnsupportedError
from tests.codegen.native import assert_close
from tests.conftest import Golden
from tests.strategies import inputs_for, static_modules

ROOT = Path(__file__).parents[1]
X = Var(Name("x"), tensor((3,), "f32"))


def doubled() -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), (X,), None, X * 2.0)}, main)


def leaves(value: Any) -> list[Any]:
    return (
        [leaf for item in value for leaf in leaves(item)] if isinstance(value, tuple) else [value]
    )


@given(st.data())
def test_compiled_is_interpreted(data: st.DataObject) -> None:
    of = data.draw(static_modules())
    args = data.draw(inputs_for(of))
    exe = compile(of)
    try:
        expected = interpret(of, *args)
    except PlicaError:  # a place that is not there: compiled code refuses it, too
        with pytest.raises(PlicaError):
            exe(*args)
        return
    found = exe(*args)
    for ours, meant in zip(leaves(found), leaves(expected), strict=True):
        assert_close(ours, meant)


def test_passes(golden: Golden) -> None:
    golden(str(GROUP))


@pytest.mark.parametrize(
    ("option", "value"),
    [("database", "no/such.db"), ("database", 7), ("threads", 0), ("threads", 1.5)],
)
def test_options_that_mean_nothing_are_refused(option: str, value: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile(doubled(), **{option: value})
    assert str(value) in str(caught.value)


def test_all_bad_options_are_listed() -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile(doubled(), threads=-1, database="no/such.db")
    assert len(caught.value.diagnostics) == 2


def test_packs_rewrite_within_the_contract() -> None:
    main = Var(Name("main"), None)
    plain = module({main: Function((), (), (X,), None, (X + 0.0) * 1.0)}, main)
    ones = np.ones(3, np.float32)
    loose = compile(plain, packs=["algebra"])
    strict = compile(plain, packs=["algebra"], contract=exact)
    assert "add" not in loose.source("kernel")
    assert "add" in strict.source("kernel")
    assert "multiply" not in strict.source("kernel")
    assert np.array_equal(loose(ones), strict(ones))


def test_an_unknown_pack_is_refused() -> None:
    with pytest.raises(RuleRefused, match="algebra"):
        compile(doubled(), packs=["algebr"])


def test_threads_may_be_asked_for() -> None:
    assert compile(doubled(), threads=4)(np.ones(3, np.float32)).tolist() == [2, 2, 2]  # type: ignore[union-attr]


def test_unknown_targets() -> None:
    with pytest.raises(UnsupportedError, match="No layer of this model can run on the target"):
        compile(doubled(), target="accel")
    with pytest.raises(UnsupportedError, match="cannot run on this machine"):
        compile(doubled(), target=Target("cpu", "wasm32-unknown-unknown", "generic"))


@pytest.mark.usefixtures("young")
def test_the_cache_holds_what_somebody_uses() -> None:
    first = compile(doubled())
    assert compile(doubled()) is first
    assert compile(doubled(), cache=False) is not first
    seen = weakref.ref(first)
    del first
    gc.collect()
    assert seen() is None


def test_the_same_text_in_every_process() -> None:
    code = (
        "import plica; from plica.demo.cnn_script import cnn; exe = plica.compile(cnn); "
        "print(exe.source('llvm') + exe.source('kernel'), end='')"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},  # in this process it is another
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    exe = compile(cnn)
    assert exe.source("llvm") + exe.source("kernel") == there


def test_what_the_store_holds_can_be_saved_in_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Traces of kernels that are read again have steps of which nothing is imported."""
    code = (
        "import sys, plica; from plica.demo.cnn_script import cnn; "
        "plica.compile(cnn, threads=1).save(sys.argv[1])"
    )
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    compile(cnn, threads=1).save(tmp_path / "one.plica")
    assert any((tmp_path / "store").iterdir())
    made = [sys.executable, "-c", code, str(tmp_path / "two.plica")]
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True)
    assert (tmp_path / "one.plica").read_bytes() == (tmp_path / "two.plica").read_bytes()
