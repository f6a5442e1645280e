"""Open sizes: one code serves every size, and gives what the interpreter gives."""

from __future__ import annotations

from pathlib import Path
from re import findall
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.ir.type.term import TensorType
from plica.runtime.error import InputError, PlicaError, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.interface import dims_of
from plica.runtime.open_executable import OpenExecutable
from tests.deep import spread

HEAD = """
from __future__ import annotations
import plica
from plica.op import nn

@plica.function
def main(NAME
"""

# fmt: off
CASES = {
    "elementwise": ("x[n m] -> [n m]",             "op.exp(x) * x + op.abs(x)"),
    "row":         ("x[n] y[] -> [n]",             "nn.relu(x - y)"),
    "broadcast":   ("x[n 3] y[3] -> [n 3]",        "x * y"),
    "crossed":     ("x[n 1] y[m] -> [n m]",        "x + y"),
    "sum":         ("x[n m] -> [n]",               "op.sum(x, axis=(1,))"),
    "columns":     ("x[n m] -> [m]",               "op.sum(x, axis=(0,))"),
    "all":         ("x[n m] -> []",                "op.sum(x)"),
    "top":         ("x[n 5] -> [n]",               "op.max(x, axis=(1,))"),
    "softmax":     ("x[n 40] -> [n 40]",           "nn.softmax(x, axis=-1)"),
    "dense":       ("x[n 24] w[32 24] -> [n 32]",  "nn.relu(nn.dense(x, w))"),
    "deep":        ("x[n m 24] w[32 24] -> [n m 32]", "nn.dense(x, w)"),
    "product":     ("x[n k] y[k m] -> [n m]",      "x @ y"),
    "turned":      ("x[n m] -> [m n]",             "op.transpose(x, (1, 0))"),
    "merged":      ("x[n m 4] -> [n*m 4]",         'op.reshape(x, shape=("n*m", 4)) * 2.0'),
    "split":       ("x[n 12] -> [n 3 4]",          'op.reshape(x, shape=("n", 3, 4)) + 1.0'),
    "doubled":     ("x[n 4] -> [2*n 2]",           'op.reshape(x, shape=("2*n", 2))'),
    "joined":      ("x[n 4] y[m 4] -> [n+m 4]",    "op.concatenate((x, y), axis=0)"),
    "window":      ("x[n 3 h 9] w[4 3 3 3] -> [n 4 h 9]", "nn.conv2d(x, w, padding=(1, 1))"),
    "bordered":    ("x[1 2 h w] w[2 1 3 3] -> [1 2 h+4 w+4]", "nn.conv(x, w, padding=3, groups=2)"),
    "pooled":      ("x[n 2 8 8] -> [n 2 4 4]",     "nn.max_pool(x, kernel=(2, 2), strides=(2, 2))"),
    "normed":      ("x[n m 16] g[16] -> [n m 16]", "nn.layer_norm(x, g, g)"),
    "size":        ("x[n 3] -> []",                "op.cast(op.size(x), dtype=f32)"),
    "counted":     ("x[n m] -> [n m]",             "x + op.cast(op.iota_like(x, 1), dtype=f32)"),
    "mean":        ("x[n m 4] -> [n 4]",           "op.mean(x, axis=(1,))"),
    "warm":        ("x[n 4] -> [4]",               "op.mean(op.tanh(x), axis=0)"),
    "spread":      ("x[n m] -> [n]",               "op.var(x, axis=1)"),
    "twice":       ("x[n m] -> [2*n]",
                    "op.logsumexp(op.concat((x, x), axis=0), axis=1)"),
    "round":       ("x[n m 3] y[3 n m] -> [3 n m]",
                    "op.transpose(op.mean(x, axis=1, keepdims=True), (2, 0, 1)) + y"),
    "rows of few": ("x[n 2 3 5] -> [n 2 3]",
                    "op.min(x - op.mean(x, axis=(2, 3), keepdims=True), axis=3)"),
    "several sums": ("x[n 2 3 5] -> [n 2 5]",
                    "op.sum(x * op.rsqrt(op.var(x, axis=(2, 3), keepdims=True) + 1.0), axis=2)"),
    "chosen":      ("x[n 3] c[bool] -> [n 3]",     "op.exp(x) if c else x * 2.0"),
    # Kernels that differ in the name of a dim only: each launch says which dims it means.
    "two means":   ("x[n 3 h w] -> [n 3 1 1]",
                    "nn.global_avg_pool(nn.max_pool(x, kernel=(2, 2), strides=(2, 2), "
                    "padding=(1, 1)))"),
    "two counts":  ("x[h w] -> []",
                    "op.cast(op.size(x, axis=0), dtype=f32) "
                    "/ op.cast(op.size(x, axis=1), dtype=f32) + op.sum(op.exp(x))"),
    "two rows":    ("x[h w] y[w h] -> [1]",
                    "op.sum(op.exp(op.sum(op.exp(x), axis=0)), axis=0, keepdims=True) "
                    "- op.sum(op.exp(op.sum(op.exp(y), axis=0)), axis=0, keepdims=True)"),
}
# fmt: on


def typed(words: str) -> str:
    """A type: sizes in a row, or the dtype of a scalar."""
    if words == "bool":
        return "Tensor[(), bool]"
    sizes = [each if each.isdigit() else f'"{each}"' for each in words.split()]
    return f"Tensor[({', '.join(sizes)}{',' if len(sizes) == 1 else ''}), f32]"


def written(signature: str, body: str) -> Module:
    params, _, result = signature.partition(" -> ")
    given = ", ".join(
        f"{name}: {typed(words)}" for name, words in findall(r"(\w+)\[(.*?)\]", params)
    )
    text = f"{given}) -> {typed(result[1:-1])}:\n    return {body}"
    return plica.from_text(HEAD.replace("NAME", text))


def module_of(case: str) -> Module:
    return written(*CASES[case])


MADE: dict[str, tuple[Module, OpenExecutable]] = {}


def made(case: str) -> tuple[Module, OpenExecutable]:
    if case not in MADE:
        whole = module_of(case)
        exe = plica.compile(whole, contract="reassociates")
        assert isinstance(exe, OpenExecutable), f"{case} is compiled for each size"
        MADE[case] = whole, exe
    return MADE[case]


def inputs(exe: OpenExecutable, sizes: dict[str, int], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    found = []
    for port in exe.inputs:
        shape = [sizes.get(str(size), size) for size in port.shape]
        if port.dtype == "f32":
            found.append(rng.normal(size=shape).astype(np.float32))
        else:
            found.append(rng.integers(0, 2, shape).astype(port.numpy))
    return found


SIZE = st.sampled_from((0, 1, 2, 3, 5, 15, 16, 17, 64, 67, 83))


@pytest.mark.parametrize("case", spread(CASES, 2 * len(CASES) // 3))
@given(st.lists(SIZE, min_size=3, max_size=3))
@settings(max_examples=max(4, settings().max_examples // 6))
def test_every_size_gives_what_the_interpreter_gives(case: str, drawn: list[int]) -> None:
    whole, exe = made(case)
    arrays = inputs(exe, dict(zip(exe.dims, drawn, strict=False)))
    try:
        found = np.asarray(exe(*arrays))
    except InputError:
        with pytest.raises(PlicaError):
            plica.interpret(whole, *arrays)
        return
    wanted = np.asarray(plica.interpret(whole, *arrays))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_rows_of_every_number_are_done_once_and_no_more() -> None:
    """Pieces of 4 rows and of more, remainders joined to others, too few rows for any piece."""
    text = """
@plica.function
def main(at: Tensor[("n",), i64], t: Tensor[(6, 40), f32], w: Tensor[(448, 40), f32]):
    return nn.relu(nn.dense(op.exp(op.take(t, at, axis=0)), w))
"""
    exe = plica.compile(plica.from_text(text), cache=False, threads=1)
    random = np.random.default_rng(0)
    table, weight = (random.standard_normal((k, 40)).astype(np.float32) for k in (6, 448))
    for rows in (*range(12), 29, 31, 32, 33, 65, 80):
        at = random.integers(0, 6, rows)
        wanted = np.maximum(np.exp(table[at]) @ weight.T, 0)
        np.testing.assert_allclose(exe(at, table, weight), wanted, rtol=1e-4, atol=1e-4)
        if rows:
            at[-1] = 6
            with pytest.raises(PlicaError, match="outside"):
                exe(at, table, weight)


def test_a_softmax_of_nothing_is_empty() -> None:
    exe = plica.compile(written("x[n m] -> [n m]", "nn.softmax(x, axis=-1)"))
    assert isinstance(exe, OpenExecutable)
    for shape in ((0, 3), (3, 0)):
        assert np.asarray(exe(np.zeros(shape, np.float32))).shape == shape


@pytest.mark.parametrize("k", [3, 70])
def test_the_first_of_an_open_axis(k: int) -> None:
    text = f"""
@plica.function
def main(x: Tensor[(2, "n"), f32]):
    return op.topk(x, k={k})
"""
    exe = plica.compile(plica.from_text(text), cache=False)
    random = np.random.default_rng(k)
    for size in (k, k + 1, 83):
        x = random.integers(-9, 9, (2, size)).astype(np.float32)
        x[0, 1] = np.nan
        values, places = exe(x)
        ordered = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=-1, kind="stable")[:, :k]
        np.testing.assert_array_equal(places, ordered)
        np.testing.assert_array_equal(values, np.take_along_axis(x, ordered, -1))
    with pytest.raises(InputError):
        exe(np.zeros((2, k - 1), np.float32))


def test_sizes_that_do_not_agree_name_the_dim() -> None:
    _, exe = made("product")
    with pytest.raises(InputError, match=r"k is 3 \(axis 1 of 'x'\)"):
        exe(np.ones((2, 3), np.float32), np.ones((4, 2), np.float32))


def test_a_size_may_have_code_of_its_own() -> None:
    exe = plica.compile(module_of("dense"), cache=False)
    arrays = [np.ones((5, 24), np.float32), np.ones((32, 24), np.float32)]
    before = exe(*arrays)
    special = exe.at(*arrays)
    assert type(special) is Executable
    np.testing.assert_allclose(exe(*arrays), before, rtol=1e-6)


def test_it_is_saved_with_its_dims(tmp_path: Path) -> None:
    _, exe = made("deep")
    exe.save(tmp_path / "m.plica")
    again = plica.load(tmp_path / "m.plica")
    assert isinstance(again, OpenExecutable)
    assert again.dims == exe.dims == ("n", "m")
    arrays = inputs(exe, {"n": 3, "m": 7})
    np.testing.assert_array_equal(again(*arrays), exe(*arrays))
    with pytest.raises(UnsupportedError, match="compiler"):
        again.at(*arrays)


def test_dims_are_names_that_stand_alone() -> None:
    _, exe = made("joined")
    assert [(each.name, each.port, each.axis) for each in dims_of(exe._interface)] == [
        ("n", 0, 0),
        ("m", 1, 0),
    ]


def test_modules_that_differ_in_the_names_of_dims_have_entries_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    pairs = [("h", "w"), ("w", "h"), ("rows", "columns"), ("h", "w")]
    body = "op.sum(op.exp(x), axis=1)"
    made = [plica.compile(written(f"x[{a} {b}] -> [{a}]", body)) for a, b in pairs]
    assert [exe.dims for exe in made if isinstance(exe, OpenExecutable)] == pairs
    assert str(made[2].inputs[0]) == "x: Tensor[('rows', 'columns'), f32]"
    assert made[2].outputs[0].type == "Tensor[('rows',), f32]"
    assert made[1].outputs[0].type == "Tensor[('w',), f32]"
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 8
    for exe in made:
        np.testing.assert_allclose(exe(x), np.exp(x).sum(axis=1), rtol=1e-5)


def test_dims_whose_names_read_alike_are_two() -> None:
    a, b = dim_var(Name("n", 1)), dim_var(Name("n_1"))
    assert str(a.name) == str(b.name)
    x, main = Var(Name("x"), TensorType((a, b), f32)), Var(Name("main"), None)
    body = Apply("mean", (x,), (("axis", (1,)), ("keepdims", False)))
    exe = plica.compile(module({main: Function((a, b), (), (x,), None, body)}, main), cache=False)
    assert isinstance(exe, OpenExecutable)
    assert len(set(exe.dims)) == 2
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(exe(array), array.mean(axis=1))


def test_errors_name_the_dims_of_the_module_that_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    arrays = [np.ones((2, 3), np.float32), np.ones((4, 2), np.float32)]
    for first in ("k", "depth"):
        exe = plica.compile(written(f"x[n {first}] y[{first} m] -> [n m]", "x @ y"))
        with pytest.raises(InputError, match=rf"{first} is 3 \(axis 1 of 'x'\)"):
            exe(*arrays)


SQUARE = "z[n m] -> []", "op.sum(op.cumsum(op.matmul(op.transpose(z), z), axis=0))"


@pytest.mark.parametrize("size", [1 << 24, 1 << 30, 1 << 31, 1 << 32, 1 << 33, 3 << 40, 1 << 60])
def test_sizes_never_wrap_round(size: int) -> None:
    exe = plica.compile(written(*SQUARE), threads=1)
    try:
        array = np.ones((0, size), np.float32)
    except ValueError:  # numpy has a limit too
        pytest.skip("no such array")
    with pytest.raises(PlicaError, match="m is ") as caught:
        exe(array)
    assert caught.value.code == "no-memory"


@pytest.mark.parametrize("size", [1 << 31, 1 << 33, 1 << 62])
def test_the_size_of_an_output_never_wraps_round(size: int) -> None:
    exe = plica.compile(written("z[n m] -> [m m]", "op.matmul(op.transpose(z), z)"), threads=1)
    try:
        array = np.ones((0, size), np.float32)
    except ValueError:
        pytest.skip("no such array")
    with pytest.raises(PlicaError, match=rf"m is {size} \(axis 1 of 'z'\)") as caught:
        exe(array)
    assert caught.value.code == "no-memory"


def test_an_output_that_no_memory_holds_names_the_dims_and_their_inputs() -> None:
    exe = plica.compile(written("z[n m] -> [m m]", "op.matmul(op.transpose(z), z)"), threads=1)
    with pytest.raises(
        PlicaError, match=r"(?s)the output 'output'.*m is 6000000 \(axis 1 of 'z'\)"
    ) as caught:
        exe(np.ones((0, 6_000_000), np.float32))
    assert caught.value.code == "no-memory"


JOINT = {
    "window": "op.sum(nn.max_pool(op.concat((x, y), axis=2), kernel=(5,)) * 2.0, axis=2)",
    "conv": "op.sum(nn.conv(op.concat((x, y), axis=2), op.full((2, 2, 5), 0.1)), axis=2)",
    "far": "op.sum(nn.max_pool(op.slice(op.concat((x, y), axis=2), starts=(1,), "
    "stops=(2147483647,), steps=(5,), axes=(2,)), kernel=(5,)), axis=2)",
    "greatest": "op.max(op.slice(op.concat((x, y), axis=2), starts=(6,), "
    "stops=(2147483647,), axes=(2,)), axis=2)",
}


@pytest.mark.parametrize("case", JOINT)
def test_what_an_operator_needs_of_several_sizes_is_asked_for(case: str) -> None:
    whole = written("x[n 2 h] y[n 2 w] -> [n 2]", JOINT[case])
    exe = plica.compile(whole, threads=1)
    assert isinstance(exe, OpenExecutable)
    outcomes = set()
    for sizes in ((20, 7), (4, 2), (2, 4), (1, 1), (2, 2), (3, 3), (25, 1)):
        arrays = [np.ones((1, 2, size), np.float32) for size in sizes]
        try:
            expected = plica.interpret(whole, *arrays)
        except PlicaError:
            outcomes.add("refused")
            with pytest.raises(InputError, match="h is "):
                exe(*arrays)
        else:
            outcomes.add("given")
            np.testing.assert_allclose(exe(*arrays), expected, rtol=1e-5)
    assert outcomes == {"given", "refused"}
