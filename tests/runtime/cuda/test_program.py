"""Programs on a GPU, here one that is made of the processor: calls, arrays, artefacts, faults."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import path_of
from plica.ir.text.script import from_text
from plica.pipeline import assemble, lower
from plica.runtime import archive
from plica.runtime.artefact import Artefact, from_members, to_members
from plica.runtime.cuda import dlpack as lent
from plica.runtime.cuda.array import DeviceArray
from plica.runtime.cuda.driver import DeviceError, device, why_not
from plica.runtime.cuda.program import CudaExecutable, handle_of
from plica.runtime.cuda.step import DeviceLaunch, DeviceProgram
from plica.runtime.error import ArtefactError, InputError, UnsupportedError
from plica.runtime.load import executable
from plica.runtime.verify import verify
from tests.codegen.cuda.emulate import COMPILER
from tests.runtime.cuda.fake import FREE, FakeDriver, plugged

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine"),
    pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]"),
]

SOURCE = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(
    x: Tensor[(5, 4), f32], y: Tensor[(5, 4), f32]
) -> tuple[Tensor[(5, 4), f32], Tensor[(5,), f32]]:
    z = x * 2.0 + y
    return z, op.sum(z, axis=1, keepdims=False)
"""


@lru_cache(maxsize=1)
def artefact() -> Artefact:
    target = GpuTarget("sm_90")
    made = assemble(lower(from_text(SOURCE), target=target), target)
    assert isinstance(made, Artefact)
    return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return plugged(monkeypatch, FakeDriver())


@pytest.fixture
def exe(gpu: FakeDriver) -> CudaExecutable:
    gpu.runs(artefact())
    made = executable(artefact())
    assert isinstance(made, CudaExecutable)
    return made


def pair() -> tuple[Any, Any]:
    values = np.arange(20, dtype=np.float32).reshape(5, 4)
    return values, values[::-1] - 3


def check(found: Any, x: Any, y: Any) -> None:
    z = x * 2 + y
    np.testing.assert_array_equal(np.asarray(found[0]), z)
    np.testing.assert_array_equal(np.asarray(found[1]), z.sum(1))


class OnGpu:
    """An array of another library, whose memory the fake driver reads as it is."""

    def __init__(self, values: Any, number: int = 0) -> None:
        self.values, self.number, self.streams = values, number, list[Any]()

    def __dlpack_device__(self) -> tuple[int, int]:
        return lent.CUDA, self.number

    def __dlpack__(self, stream: Any = None) -> object:
        self.streams.append(stream)
        port = plica.runtime.port.Port("x", self.values.shape, "f32", np.dtype(np.float32))
        return lent.capsule_of(self, self.values.ctypes.data, port, self.number)


class Nowhere:
    """A tensor without memory, as those of torch's device `meta`."""

    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("Unknown device type meta for Dlpack")

    def __dlpack__(self, **words: object) -> object:
        raise BufferError("Cannot pack tensors on meta")


def aligned(values: Any) -> Any:
    room = np.empty(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    made = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def test_arrays_of_numpy_give_arrays_of_numpy(exe: CudaExecutable) -> None:
    x, y = pair()
    for _ in range(2):
        found = exe(x, y)
        assert all(type(each) is np.ndarray for each in found)
        check(found, x, y)
    check(exe(y=y, x=x), x, y)
    check(exe(y, x), y, x)


@pytest.mark.usefixtures("young")
def test_arrays_on_the_gpu_are_read_where_they_are(exe: CudaExecutable, gpu: FakeDriver) -> None:
    x, y = pair()
    given = OnGpu(aligned(x))
    for _ in range(3):  # at once, then as a graph
        before = len(gpu.graphs)
        gpu.asked.clear()
        found = exe(given, y)
        assert isinstance(found[0], DeviceArray)
        assert gpu.asked.count("cuMemcpyHtoDAsync_v2") == 1  # the other one
        check(found, x, y)
        del found
        gc.collect()
    assert len(gpu.graphs) >= before
    assert given.streams[0] == 0x1000
    assert not lent._given  # all is given back


def test_what_lies_otherwise_is_gathered(exe: CudaExecutable, gpu: FakeDriver) -> None:
    _, y = pair()
    room = aligned(np.zeros(24, np.float32))
    exe(OnGpu(room[1:21].reshape(5, 4)), y)
    assert gpu.gathered == 1


def test_results_are_given_out_without_a_copy(exe: CudaExecutable, gpu: FakeDriver) -> None:
    x, y = pair()
    first, _ = exe(OnGpu(aligned(x)), y)
    words = first.__cuda_array_interface__
    assert words["shape"] == (5, 4)
    assert words["data"][0] == first.address

    class Words:
        __cuda_array_interface__ = words

    check(exe(first, Words()), x * 2 + y, x * 2 + y)
    assert first.__dlpack_device__() == (lent.CUDA, 0)
    with pytest.raises(BufferError, match="shared"):
        first.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="elsewhere"):
        first.__dlpack__(dl_device=(1, 0))
    with pytest.raises(ValueError, match="copied"):
        np.asarray(first, copy=False)
    assert str(first.shape) in repr(first)


def test_a_capsule_nobody_takes_is_given_back(exe: CudaExecutable) -> None:
    x, y = pair()
    first, _ = exe(OnGpu(aligned(x)), y)
    capsule = first.__dlpack__()
    assert len(lent._given) == 1
    del capsule
    assert not lent._given


def test_with_a_stream_nothing_is_waited_for(exe: CudaExecutable, gpu: FakeDriver) -> None:
    x, y = pair()
    given = OnGpu(aligned(x))
    gpu.asked.clear()
    found = exe(given, y, stream=7)
    assert "cuStreamSynchronize" not in gpu.asked
    assert gpu.asked.count("cuStreamWaitEvent") == 2
    check(found, x, y)

    class Torch:
        cuda_stream = 5

    class Said:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 9

    assert (handle_of(Torch()), handle_of(Said())) == (5, 9)
    with pytest.raises(InputError, match="no stream"):
        exe(x, y, stream="there")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (OnGpu(np.zeros((5, 3), np.float32)), "input-shape"),
        (OnGpu(np.zeros((5, 4), np.float32), number=3), "input-device"),
        (np.zeros((5, 4)), "input-dtype"),
        ("nothing", "input-type"),
        (Nowhere(), "input-type"),
    ],
)
def test_what_does_not_fit_is_refused(exe: CudaExecutable, given: Any, code: str) -> None:
    with pytest.raises(InputError) as caught:
        exe(given, pair()[1])
    assert caught.value.code == code


def test_an_artefact_is_written_and_loaded(
    exe: CudaExecutable, gpu: FakeDriver, tmp_path: Path
) -> None:
    path = tmp_path / "m.plica"
    exe.save(path)
    told = verify(path)
    assert told.target == "cuda:sm_90"
    again = plica.load(path)
    x, y = pair()
    check(again(x, y), x, y)
    assert "__global__" in again.source("cuda")
    assert again.source("cuda") == exe.source()
    kernel = again.artefact.launches[0].kernel
    assert "bind" in str(again.trace(kernel))
    assert kernel in str(again.profile(x, y, runs=2))
    assert again.seconds(x, y, runs=2) == [2e-3, 2e-3]
    with pytest.raises(UnsupportedError, match="processors"):
        again.export(tmp_path / "lib.so")
    with pytest.raises(InputError, match="at least"):
        again.profile(x, y, runs=0)


def test_before_each_timed_run_its_stream_is_given(exe: CudaExecutable, gpu: FakeDriver) -> None:
    streams: list[int] = []
    begin = len(gpu.asked)
    assert len(exe.seconds(*pair(), runs=2, before=streams.append)) == 2
    assert streams == [0x1000] * gpu.asked[begin:].count("cuEventElapsedTime")


@pytest.mark.parametrize("how", ["an unknown function", "tensors that overlap"])
def test_an_edited_artefact_is_refused(how: str, gpu: FakeDriver, tmp_path: Path) -> None:
    found = artefact().device
    assert isinstance(found, DeviceProgram)
    steps, layout = found.steps, found.layout
    if how == "an unknown function":
        launches = [each for each in steps if isinstance(each, DeviceLaunch)]
        steps = tuple([replace(each, function="other") for each in launches])
    else:
        layout = replace(layout, places=(0,) * len(layout.places))
    edited = replace(artefact(), device=replace(found, steps=steps, layout=layout))
    path = tmp_path / "m.plica"
    archive.write(path, archive.pack(to_members(edited)))
    for read in (verify, plica.load):
        with pytest.raises(ArtefactError, match=r"not define other|overlap"):
            read(path)
    if how == "an unknown function":
        with pytest.raises(ArtefactError, match="not define other"):
            CudaExecutable(edited)


def test_members_are_the_same_when_read_again() -> None:
    made = from_members(archive.unpack(archive.pack(to_members(artefact()))))
    assert made.device == artefact().device
    assert made.text == artefact().text
    assert made.objects == artefact().objects


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plugged(monkeypatch, FakeDriver(8, 0))
    with pytest.raises(ArtefactError, match="another") as caught:
        executable(artefact())
    assert caught.value.code == "other-machine"


def test_without_a_driver_an_artefact_is_refused(tmp_path: Path) -> None:
    if why_not() is None:
        pytest.skip("there is a GPU")
    path = tmp_path / "m.plica"
    archive.write(path, archive.pack(to_members(artefact())))
    with pytest.raises(DeviceError) as caught:
        plica.load(path)
    assert caught.value.code == "no-cuda"


def test_a_fault_ends_all_work(exe: CudaExecutable, gpu: FakeDriver) -> None:
    x, y = pair()
    check(exe(x, y), x, y)
    gpu.fails["cuStreamSynchronize"] = 700
    with pytest.raises(DeviceError, match="failed on the GPU"):
        exe(x, y)
    del gpu.fails["cuStreamSynchronize"]
    for again in (lambda: exe(x, y), lambda: executable(artefact()), lambda: exe.seconds(x, y)):
        with pytest.raises(DeviceError, match="failed before") as caught:
            again()
        assert caught.value.code == "device-fault"
    assert "failed before" in (why_not() or "")


def test_too_little_memory_is_told(gpu: FakeDriver) -> None:
    with pytest.raises(DeviceError, match="not enough memory") as caught:
        device().reserve(FREE + 1)
    assert caught.value.diagnostics[0].expected == f"{FREE + 1} bytes"
    assert caught.value.code == "device-memory"
    device().reserve(64)  # and the next one works


def test_what_the_driver_refuses_is_told(gpu: FakeDriver) -> None:
    gpu.fails["cuStreamCreate"] = 1
    with pytest.raises(DeviceError, match="refused cuStreamCreate"):
        device().stream()


def test_a_call_by_addresses_is_a_part_of_another_stream(
    exe: CudaExecutable, gpu: FakeDriver
) -> None:
    x, y = (aligned(each.astype(np.float32)) for each in pair())
    z, total = (aligned(np.zeros(shape, np.float32)) for shape in ((5, 4), (5,)))
    places = [each.ctypes.data for each in (x, y)], [each.ctypes.data for each in (z, total)]
    asked: list[list[str]] = []
    for turn in range(4):
        x += turn
        gpu.asked.clear()
        exe.run_at(*places, 77)
        asked.append([each for each in gpu.asked if each != "cuCtxSetCurrent"])
        check((z, total), x, y)
    assert asked[0].count("cuStreamWaitEvent") == 1  # after what was there
    assert asked[0][-2:] == ["cuLaunchKernel"] * 2
    assert asked[1].count("cuStreamWaitEvent") == 0
    assert asked[2] == asked[3] == ["cuGraphLaunch"]
    other = aligned(np.zeros((5, 4), np.float32))
    exe.run_at(places[0], [other.ctypes.data, total.ctypes.data], 77)  # elsewhere in between
    np.testing.assert_array_equal(other, z)
    x += 1
    exe.run_at(*places, 77)
    check((z, total), x, y)
    gpu.asked.clear()
    check(exe(x, y), x, y)
    assert gpu.asked.count("cuStreamWaitEvent") == 1  # the workspace is one


def test_memory_of_results_that_are_gone_is_taken_again(
    exe: CudaExecutable, gpu: FakeDriver
) -> None:
    x, y = pair()
    given = OnGpu(aligned(x))
    seen = []
    for _ in range(3):
        found = exe(given, y)
        check(found, x, y)
        seen.append([each.address for each in found])
        del found
        gpu.asked.clear()
    assert seen[0] == seen[1] == seen[2]
    held = exe(given, y)
    assert "cuMemAlloc_v2" not in gpu.asked
    other = exe(given, y)  # while the first one is there
    assert held[0].address != other[0].address
    check(held, x, y)
    check(other, x, y)


@pytest.mark.parametrize(("stream", "again"), [(1, True), (0x1000, True), (99, False), (-1, False)])
def test_memory_that_others_may_still_read_is_waited_for_or_given_back(
    exe: CudaExecutable, gpu: FakeDriver, stream: int, again: bool
) -> None:
    x, y = pair()
    given = OnGpu(aligned(x))
    first, second = exe(given, y)
    place = first.address
    first.__dlpack__(stream=stream)  # nobody takes it
    del first, second
    gc.collect()
    gpu.asked.clear()
    found = exe(given, y)
    assert gpu.asked.count("cuMemAlloc_v2") == (0 if again else 1)
    waits = gpu.asked.count("cuStreamWaitEvent")
    assert waits == (1 if stream == 1 else 0)
    assert not again or found[0].address == place
    check(found, x, y)


class Tensor:
    """What the runtime asks of a tensor of torch."""

    is_cuda, requires_grad, layout, dtype = True, False, "strided", "float32"

    def __init__(self, values: Any) -> None:
        self.values, self.shape, self.device = values, values.shape, SimpleNamespace(index=0)

    def is_neg(self) -> bool:
        return False

    def is_contiguous(self) -> bool:
        return bool(self.values.flags.c_contiguous)

    def get_device(self) -> int:
        return 0

    def element_size(self) -> int:
        return int(self.values.itemsize)

    def stride(self) -> tuple[int, ...]:
        return tuple([each // self.values.itemsize for each in self.values.strides])

    def data_ptr(self) -> int:
        return int(self.values.ctypes.data)


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The stream that is torch's own, where tensors are those of this file."""
    stream = [55]
    raw = SimpleNamespace(_cuda_getCurrentRawStream=lambda number: stream[-1])
    torch = SimpleNamespace(Tensor=Tensor, strided="strided", float32="float32", _C=raw)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return stream


def test_tensors_of_torch_are_asked_by_its_own_words(
    exe: CudaExecutable, gpu: FakeDriver, current: list[int]
) -> None:
    y = aligned(pair()[1].astype(np.float32))
    wide = aligned(np.zeros((5, 8), np.float32))
    gpu.asked.clear()
    exe(Tensor(wide[:, ::2]), Tensor(y))
    assert gpu.gathered == 1
    assert gpu.asked.count("cuStreamWaitEvent") == 1  # both are of one stream
    with pytest.raises(InputError) as caught:
        exe(Tensor(wide), Tensor(y))
    assert caught.value.code == "input-type"  # which has no DLPack here


def test_dense_tensors_of_torch_are_read_in_their_own_stream(
    exe: CudaExecutable, gpu: FakeDriver, current: list[int]
) -> None:
    x, y = (aligned(each.astype(np.float32)) for each in pair())
    exe(Tensor(x), Tensor(y))  # after what the model's own stream has to do
    gpu.asked.clear()
    found = exe(Tensor(x), Tensor(y))
    assert "cuStreamWaitEvent" not in gpu.asked
    assert gpu.asked[-1] == "cuStreamSynchronize"  # which ends the call
    gpu.asked.clear()
    found[0].__dlpack__(stream=7)
    check(found, x, y)
    assert "cuStreamWaitEvent" not in gpu.asked  # it is complete
    assert found[0].__cuda_array_interface__["stream"] is None


def test_in_the_stream_of_everybody_nothing_waits(
    exe: CudaExecutable, gpu: FakeDriver, current: list[int]
) -> None:
    x, y = (aligned(each.astype(np.float32)) for each in pair())
    current.append(0)
    exe(Tensor(x), Tensor(y), stream=lent.LEGACY)
    gpu.asked.clear()
    found = exe(Tensor(x), Tensor(y), stream=0)
    found[0].__dlpack__(stream=lent.LEGACY)
    assert {"cuStreamWaitEvent", "cuStreamSynchronize"}.isdisjoint(gpu.asked)
    assert found[0].__cuda_array_interface__["stream"] == lent.LEGACY
    found[0].__dlpack__(stream=7)
    assert gpu.asked.count("cuStreamWaitEvent") == 1
    check(found, x, y)  # the copy waits as well
    assert gpu.asked.count("cuStreamWaitEvent") == 3
    gpu.asked.clear()
    check(exe(Tensor(x), Tensor(y), stream=7), x, y)  # whose handle may be gone tomorrow
    assert gpu.asked.count("cuStreamWaitEvent") >= 3  # after both others, and before it


def test_inputs_of_which_one_is_no_tensor_are_taken_one_by_one(
    exe: CudaExecutable, gpu: FakeDriver, current: list[int]
) -> None:
    x, y = (aligned(each.astype(np.float32)) for each in pair())
    for given in ((Tensor(x), y), (x, Tensor(y))):
        check(exe(*given), x, y)
    check(exe(Tensor(x), y=Tensor(y)), x, y)
    check(exe(Tensor(x), Tensor(y)), x, y)
