"""Executables: how they are called, what they refuse, and that threads do not disturb them."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Project, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.op import find
from plica.ir.type.term import TupleType, Type, tensor
from plica.pipeline import compile
from plica.runtime.element import ELEMENTS
from plica.runtime.error import EvaluationError, InputError, UnsupportedError
from plica.runtime.executable import Executable, address_of
from plica.runtime.port import Port

ROOT = Path(__file__).parents[2]
ONES = np.ones((2, 3), np.float32)


def model(body: Callable[..., Expr], **types: Type) -> Module:
    params = [Var(Name(name), type) for name, type in types.items()]
    main = Var(Name("main"), None)
    return module({main: Function((), (), tuple(params), None, body(*params))}, main)


@pytest.fixture(scope="module")
def affine() -> Executable:
    """x * scale + 1."""
    return compile(
        model(lambda x, s: x * s + 1.0, x=tensor((2, 3), "f32"), scale=tensor((), "f32"))
    )


def test_inputs_by_position_and_by_name(affine: Executable) -> None:
    expected = [[3, 3, 3], [3, 3, 3]]
    assert affine(ONES, 2.0).tolist() == expected  # type: ignore[union-attr]
    assert affine(ONES, scale=2).tolist() == expected  # type: ignore[union-attr]
    assert affine(scale=np.float32(2), x=ONES).tolist() == expected  # type: ignore[union-attr]


def test_names_and_types(affine: Executable) -> None:
    assert [str(port) for port in affine.inputs] == [
        "x: Tensor[(2, 3), f32]",
        "scale: Tensor[(), f32]",
    ]
    assert [str(port) for port in affine.outputs] == ["output: Tensor[(2, 3), f32]"]
    assert repr(affine).startswith("<Executable (x: Tensor[(2, 3), f32], scale: Tensor[(), f32])")


def refusals(exe: Executable, *args: Any, **named: Any) -> list[tuple[str, str | None]]:
    with pytest.raises(InputError) as caught:
        exe(*args, **named)
    return [
        (each.code, None if each.place is None else each.place.node)
        for each in caught.value.diagnostics
    ]


def test_refusals(affine: Executable) -> None:
    assert refusals(affine, ONES.T, 1.0) == [("input-shape", "x")]
    assert refusals(affine, ONES.astype(np.float64), 1.0) == [("input-dtype", "x")]
    assert refusals(affine, ONES, True) == [("input-dtype", "scale")]
    assert refusals(affine, [1, 2], 1.0) == [("input-type", "x")]
    assert refusals(affine, ONES) == [("input-missing", "scale")]
    assert refusals(affine, ONES, 1.0, 2.0) == [("input-unknown", None)]
    assert refusals(affine, ONES, 1.0, x=ONES) == [("input-unknown", "x")]
    with pytest.raises(InputError, match="Did you mean 'scale'"):
        affine(ONES, scal=1.0)


def test_all_refusals_come_at_once(affine: Executable) -> None:
    assert refusals(affine, ONES.T, scal=1.0) == [
        ("input-unknown", None),
        ("input-missing", "scale"),
        ("input-shape", "x"),
    ]


def test_arrays_in_any_layout(affine: Executable) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = (values * 2 + 1).tolist()
    wide = np.zeros((4, 6), np.float32)
    wide[::2, ::2] = values
    unaligned = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    unaligned[:] = values
    readonly = values.copy()
    readonly.flags.writeable = False
    for given in (
        np.asfortranarray(values),
        wide[::2, ::2],
        values[::-1][::-1],
        values.astype(">f4"),
        unaligned,
        readonly,
        Foreign(values),
    ):
        found = affine(given, 2.0)
        assert isinstance(found, np.ndarray)
        assert found.tolist() == expected


class Foreign:
    """An array of another library: it speaks DLPack, and is no numpy array."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Elsewhere:
    """An array in the memory of another device."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the array is on another device")

    def __dlpack_device__(self) -> Any:
        return (2, 0)


def test_an_array_on_another_device_is_refused(affine: Executable) -> None:
    assert refusals(affine, Elsewhere(), 2.0) == [("input-type", "x")]


def test_results_are_shared_by_dlpack(affine: Executable) -> None:
    found = affine(ONES, 2.0)
    assert isinstance(found, np.ndarray)
    shared = np.from_dlpack(found)
    assert shared.__array_interface__["data"] == found.__array_interface__["data"]


def test_every_dtype_goes_in_and_out() -> None:
    names = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32"]
    types = {name: tensor((2,), name) for name in [*names, "f64"]}
    exe = compile(model(lambda *given: Tuple(given), **{f"x_{n}": t for n, t in types.items()}))
    arrays = [np.array([0, 1], type.dtype.numpy) for type in types.values()]
    found = exe(*arrays)
    assert isinstance(found, tuple)
    for given, out in zip(arrays, found, strict=True):
        assert out.dtype == given.dtype
        assert out is not given
        assert out.tolist() == given.tolist()
    assert found[10].dtype == ml_dtypes.bfloat16


def test_numbers_must_fit() -> None:
    exe = compile(model(lambda x: x + 1, x=tensor((), "u8")))
    assert exe(255) == 0
    for bad in (256, -1, 1.0, True):
        assert refusals(exe, bad) == [("input-dtype", "x")]
    flag = compile(model(lambda x: x, x=tensor((), "bool")))
    assert flag(True) == np.bool_(True)
    assert refusals(flag, 1) == [("input-dtype", "x")]


def test_tuples_in_and_out() -> None:
    pair = TupleType((tensor((2,), "f32"), TupleType((tensor((), "f32"),))))
    exe = compile(
        model(lambda p: Tuple((Project(Project(p, 1), 0), Tuple((Project(p, 0),)))), p=pair)
    )
    assert [port.name for port in exe.inputs] == ["p[0]", "p[1][0]"]
    assert [port.name for port in exe.outputs] == ["output[0]", "output[1][0]"]
    found = exe((np.array([1, 2], np.float32), (3.0,)))
    assert isinstance(found, tuple)
    assert [each.tolist() for each in found] == [3.0, [1, 2]]
    assert refusals(exe, 5.0) == [("input-type", "p")]
    assert refusals(exe, (5.0,)) == [("input-type", "p")]
    assert refusals(exe, (np.zeros(3, np.float32), 1.0)) == [
        ("input-shape", "p[0]"),
        ("input-type", "p[1]"),
    ]


def test_nothing_in_and_nothing_out() -> None:
    assert compile(model(lambda: Tuple(())))() == ()
    constant = compile(model(lambda: const([[1.5]], "f64")))()
    assert isinstance(constant, np.ndarray)
    assert constant.tolist() == [[1.5]]
    one = compile(model(lambda x: Tuple((x,)), x=tensor((), "f32")))(2.0)
    assert isinstance(one, tuple)
    assert len(one) == 1


def test_empty_tensors() -> None:
    empty = const(np.zeros((0, 2), np.float32))
    exe = compile(model(lambda x: Tuple((x * 2.0, empty)), x=tensor((2, 0), "f32")))
    found = exe(np.zeros((2, 0), np.float32))
    assert isinstance(found, tuple)
    assert [each.shape for each in found] == [(2, 0), (0, 2)]


def test_an_index_outside_is_an_error_not_a_number() -> None:
    take = find("take")
    assert take is not None
    exe = compile(model(take, x=tensor((3,), "f32"), at=tensor((2,), "i64")))
    values = np.array([5, 6, 7], np.float32)
    assert exe(values, np.array([-1, 0])).tolist() == [7, 5]  # type: ignore[union-attr]
    with pytest.raises(EvaluationError) as caught:
        exe(values, np.array([0, 3]))
    assert caught.value.code == "index-out-of-bounds"
    assert exe(values, np.array([1, 1])).tolist() == [6, 6]  # type: ignore[union-attr]


def test_threads_do_not_disturb_each_other() -> None:
    exe = compile(
        model(lambda x: (x * 2.0 + x) @ (x + 1.0), x=tensor((48, 48), "f32"))
    )  # several temporaries
    inputs = [np.full((48, 48), number, np.float32) for number in range(8)]
    alone = [exe(each) for each in inputs]
    wrong: list[int] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for _ in range(50):
            if not np.array_equal(exe(inputs[number]), alone[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_results_are_the_callers_own(affine: Executable) -> None:
    first = affine(ONES, 1.0)
    second = affine(ONES, 2.0)
    assert isinstance(first, np.ndarray)
    assert first.tolist() == [[2, 2, 2], [2, 2, 2]]
    assert first is not second


def test_sources(affine: Executable) -> None:
    assert "def multiply" in affine.source("kernel")
    assert "define i64 @plica_main(ptr %table)" in affine.source()
    assert "plica_main" in affine.source("asm")
    with pytest.raises(InputError, match="There is no source of kind 'fortran'"):
        affine.source("fortran")
    assert affine.target.startswith("cpu")
    assert affine.workspace >= 0


def test_a_port_prints_as_scripts_write_it() -> None:
    assert str(Port("x", (3,), "i8", np.dtype("int8"))) == "x: Tensor[(3,), i8]"


def test_the_runtime_needs_nothing_of_the_compiler() -> None:
    code = "import sys, plica.runtime.executable; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"attr", "attrs", "llvmlite", "pyrsistent", "rich", "ml_dtypes"}
    ours = {name for name in loaded if name.startswith("plica.")}
    assert all(name.startswith("plica.runtime") for name in ours)


def test_a_masked_array_is_refused_rather_than_unmasked(affine: Executable) -> None:
    masked = np.ma.array(ONES, mask=ONES > 0)
    assert refusals(affine, masked, 2.0) == [("input-type", "x")]


def test_a_copy_is_the_executable_itself(affine: Executable) -> None:
    assert copy.copy(affine) is affine
    assert copy.deepcopy([affine])[0] is affine


def test_an_executable_belongs_to_its_process(affine: Executable) -> None:
    with pytest.raises(UnsupportedError, match="belongs to its process"):
        pickle.dumps(affine)


@pytest.mark.parametrize("of", ["bool", "i8", "u64", "f16", "bf16", "f32", "f64"])
def test_addresses_of_arrays(of: str) -> None:
    for shape in ((), (0, 3), (2, 3)):
        array = np.zeros(shape, ELEMENTS[of].numpy)
        assert address_of(array) == array.ctypes.data
        array.flags.writeable = False
        assert address_of(array) == array.ctypes.data
