"""`plica compile`, `plica run` and `plica verify`: from a script to arrays, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.cli import main
from plica.codegen.cuda.toolchain import path_of
from plica.runtime.archive import read
from plica.runtime.cuda.driver import why_not
from plica.runtime.elf import header
from plica.runtime.host import features
from plica.runtime.link import architecture, can_link
from tests.runtime.model import SOURCE, inputs, model

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script, its artefact, and arrays."""
    inside = tmp_path_factory.mktemp("cli")
    (inside / "m.py").write_text(SOURCE, encoding="utf-8")
    for name, array in zip(("x", "w", "at"), inputs(), strict=True):
        np.save(inside / f"{name}.npy", array)
    assert main(["compile", str(inside / "m.py"), "-o", str(inside / "m.plica")]) == 0
    return inside


def given(folder: Path, *names: str) -> list[str]:
    return [word for name in names for word in ("--input", f"{name}={folder / name}.npy")]


def test_compile_then_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out.npz"
    words = ["run", str(folder / "m.plica"), *given(folder, "x", "w", "at")]
    assert main([*words, "-o", str(out)]) == 0
    assert "output[0]: Tensor[(3, 5), f32]" in capsys.readouterr().out
    found = np.load(out)
    for port, expected in zip(model().outputs, model()(*inputs()), strict=True):
        assert np.array_equal(found[port.name], expected)
    assert main(words) == 0
    assert "[[" in capsys.readouterr().out


def test_compile_validates(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compile", str(folder / "m.py"), "--validate", "-o", str(folder / "v.plica")]
    assert main(words) == 0
    assert "validated: every kernel" in capsys.readouterr().out
    assert (folder / "v.plica").read_bytes() == (folder / "m.plica").read_bytes()


def test_run_needs_nothing_of_the_compiler(folder: Path) -> None:
    code = (
        "import sys; from plica.cli import main; code = main(sys.argv[1:]);"
        "print(*sys.modules); sys.exit(code)"
    )
    words = ["run", str(folder / "m.plica"), *given(folder, "x", "w", "at")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not set(done.stdout.split()) & {"llvmlite", "pyrsistent", "attr", "rich"}


def test_run_refuses_what_does_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artefact = str(folder / "m.plica")
    assert main(["run", artefact, *given(folder, "x", "w")]) == 1
    assert "'at' is not given" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["run", artefact, "--input", "x"])
    assert "NAME=FILE.npy" in capsys.readouterr().err
    assert main(["run", artefact, "--input", f"x={folder / 'm.py'}"]) == 1
    assert "holds no array" in capsys.readouterr().err


def test_what_was_taken_for_something_else_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A text for an array, a model for an artefact, an artefact for a model, a folder for all."""
    text, model = folder / "t.txt", folder / "M.onnx"
    text.write_text("1 2 3")
    model.write_bytes(b"no artefact")
    artefact = str(folder / "m.plica")
    main(["compile", str(folder / "m.py"), "-o", artefact])
    capsys.readouterr()
    for argv, said in (
        (["run", artefact, "--input", f"x={text}"], ["holds no array", "numpy.save"]),
        (["run", artefact, "--input", f"x={folder}"], ["Is a directory"]),
        (["run", str(model)], ["is no artefact", f"plica compile {model} -o M.plica"]),
        (["verify", str(model)], ["is no artefact", f"plica compile {model} -o M.plica"]),
        (["explain", artefact], ["This is a compiled artefact", "Give the model"]),
        (["compile", artefact, "-o", str(folder / "n.plica")], ["This is a compiled artefact"]),
        (["compile", str(folder), "-o", str(folder / "n.plica")], ["cannot be read", ".onnx"]),
    ):
        assert main(argv) == 1
        told = " ".join(capsys.readouterr().err.split())
        assert "pickle" not in told
        assert "Errno" not in told
        for each in said:
            assert each.replace(" ", "") in told.replace(" ", ""), (argv, told)


def test_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artefact = str(folder / "m.plica")
    assert main(["verify", artefact, "--model", str(folder / "m.py")]) == 0
    said = capsys.readouterr().out
    assert "good" in said
    assert "contract: approx(" in said
    assert "rules and passes: " in said
    assert main(["verify", artefact, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["workspace"] == model().workspace
    assert found["asked"].startswith("approx(")
    assert main(["verify", artefact, "--model", str(folder / "m.py"), "--replay"]) == 0
    said = capsys.readouterr().out
    assert "applied by themselves" in said
    assert "whole artefact made again: " in said
    words = ["verify", artefact, "--model", str(folder / "m.py"), "--replay", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["replayed"] >= 0
    assert main(["verify", artefact, "--prove", "--rebuild"]) == 0
    said = capsys.readouterr().out
    assert "traces: taken again, " in said
    assert "each proof checked again" in said
    assert "code made again: " in said
    assert main(["verify", artefact, "--quick"]) == 0
    assert "taken again" not in capsys.readouterr().out
    assert main(["verify", artefact, "--replay"]) == 1
    assert "--model" in capsys.readouterr().err
    other = folder / "other.py"
    other.write_text(SOURCE.replace("op.tan", "op.sin"), encoding="utf-8")
    assert main(["verify", artefact, "--model", str(other)]) == 1
    assert "not compiled from this model" in capsys.readouterr().err
    data = bytearray((folder / "m.plica").read_bytes())
    data[len(data) // 3] ^= 1
    (folder / "bad.plica").write_bytes(data)
    assert main(["verify", str(folder / "bad.plica")]) == 1
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("triple", "machine"),
    [
        ("x86_64-unknown-linux-musl", "x86_64"),
        ("aarch64-unknown-linux-gnu", "aarch64"),
        ("riscv64-unknown-linux-gnu", "riscv64"),
        ("armv7-unknown-linux-gnueabihf", "arm"),
    ],
)
def test_compile_for_another_machine(folder: Path, triple: str, machine: str) -> None:
    out = folder / f"{machine}.plica"
    asked = ["-o", str(out), "--target", triple, "--threads", "1"]
    assert main(["compile", str(folder / "m.py"), *asked]) == 0
    found = [header(data) for name, data in read(out).items() if name.endswith(".o")]
    assert {each.machine for each in found} == {machine}
    assert {each.bits for each in found} == {32 if machine == "arm" else 64}
    assert main(["verify", str(out)]) == 0
    if machine != architecture():
        assert main(["run", str(out)]) == 1


@pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")
def test_compile_for_a_gpu(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = str(folder / "m.py"), folder / "gpu.plica"
    assert main(["compile", source, "-o", str(out), "--target", "cuda:sm_80"]) == 0
    assert "cuda:sm_80" in capsys.readouterr().out
    assert main(["verify", str(out)]) == 0
    assert any(name.endswith(".cubin") for name in read(out))
    assert main(["compile", source, "-o", str(folder / "m.so"), "--target", "cuda:sm_80"]) == 1
    if why_not() is not None:
        assert main(["run", str(out), *given(folder, "x", "w", "at")]) == 1


@pytest.mark.skipif(architecture() != "x86_64", reason="the processors are named")
def test_compile_for_another_processor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = str(folder / "m.py"), folder / "other.plica"
    assert main(["compile", source, "-o", str(out), "--cpu", "x86-64-v2"]) == 0
    target = json.loads(read(out)["manifest.json"])["target"]
    assert target["cpu"] == "x86-64-v2"
    assert "+sse4.2" in target["features"]
    assert "+avx" not in target["features"]
    assert main(["run", str(out), *given(folder, "x", "w", "at")]) == 0
    assert main(["compile", source, "-o", str(out), "--features=-avx512f"]) == 0
    words = ["verify", str(out), "--model", source, "--replay"]
    assert main(words) == 0
    assert main(["compile", source, "-o", str(out), "--cpu", "diamondrapids"]) == 0
    if "avx10" not in features():
        capsys.readouterr()
        assert main(["run", str(out), *given(folder, "x", "w", "at")]) == 1
        assert "avx10.2" in capsys.readouterr().err
    assert main(["compile", source, "-o", str(out), "--cpu", "haswel"]) == 1
    assert "no such processor" in capsys.readouterr().err


def test_compile_refuses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(folder / "no.plica")
    assert main(["compile", str(folder / "nothing.py"), "-o", out]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert main(["compile", str(folder / "m.onnx"), "-o", out]) == 1
    assert "no such file" in capsys.readouterr().err
    assert main(["compile", str(folder / "m.py"), "-o", out, "--dim", "n=2"]) == 1
    assert "apply to ONNX files only" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["compile", str(folder / "m.onnx"), "-o", out, "--dim", "n"])
    assert "NAME=SIZE" in capsys.readouterr().err
    assert main(["compile", str(folder / "m.py"), "-o", out, "--target", "no-such-machine"]) == 1
    assert "no code for no-such-machine" in capsys.readouterr().err
    assert main(["compile", str(folder / "m.py"), "-o", out, "--contract", "loose"]) == 1
    assert not Path(out).exists()


def test_lists_are_printed_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    given = helper.make_tensor_value_info("x", floats, ["n", 2])
    made = helper.make_tensor_sequence_value_info("y", floats, None)
    nodes = [helper.make_node("SplitToSequence", ["x", "s"], ["y"], axis=0)]
    sizes = onnx.numpy_helper.from_array(np.array([1, 2]), "s")
    graph = helper.make_graph(nodes, "g", [given], [made], [sizes])
    onnx.save(helper.make_model(graph), folder / "list.onnx")
    out = str(folder / "list.plica")
    assert main(["compile", str(folder / "list.onnx"), "-o", out]) == 0
    np.save(folder / "rows.npy", np.ones((3, 2), np.float32))
    capsys.readouterr()
    assert main(["run", out, "--input", f"x={folder / 'rows.npy'}"]) == 0
    assert capsys.readouterr().out.startswith("y: List[")  # of arrays of different shapes


def test_a_model_file_becomes_an_artefact(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    given = helper.make_tensor_value_info("x", floats, ["batch", 3])
    made = helper.make_tensor_value_info("y", floats, ["batch", 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [given], [made])
    onnx.save(helper.make_model(graph), folder / "relu.onnx")
    out = folder / "relu.plica"
    model = str(folder / "relu.onnx")
    assert main(["compile", model, "-o", str(out), "--dim", "batch=2"]) == 0
    np.save(folder / "relu_x.npy", np.array([[-1, 0, 2], [3, -4, 5]], np.float32))
    assert main(["run", str(out), "--input", f"x={folder / 'relu_x.npy'}"]) == 0
    assert main(["compile", model, "-o", str(out)]) == 0
    capsys.readouterr()
    assert main(["run", str(out), "--input", f"x={folder / 'relu_x.npy'}"]) == 0
    assert "y: Tensor[(2, 3), f32]\n" in capsys.readouterr().out  # the sizes of this call
    exe = plica.load(out)
    assert [each.name for each in exe.outputs] == ["y"]
