"""Options of the command line: what is wrong usage, values for inputs, files, errors as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from plica.cli import BROKEN_PIPE_EXIT, main
from plica.cli.command import DIFFERS
from tests.frontend.onnx.build import model

node = helper.make_node


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models that leave a size open, take a shape, and give nan, and arrays."""
    inside = tmp_path_factory.mktemp("models")
    rows: dict[str, Any] = {"x": ("float32", ["batch size", 2])}
    onnx.save(model([node("Relu", ["x"], ["y"])], rows, ["y"]), inside / "open.onnx")
    shaped = {"x": ("float32", [6]), "s": ("int64", [2])}
    nodes = [node("Reshape", ["x", "s"], ["t"]), node("Relu", ["t"], ["y"])]
    onnx.save(model(nodes, shaped, ["y"]), inside / "shaped.onnx")
    most = node("ReduceMax", ["x"], ["y"], axes=[1])
    onnx.save(model([most], {"x": ("float32", [2, 3])}, ["y"], opset=17), inside / "most.onnx")
    np.save(inside / "s.npy", np.array([2, 3]))
    np.save(inside / "x.npy", np.arange(6, dtype=np.float32))
    np.save(inside / "nan.npy", np.array([[90, np.nan, -1], [1, 2, 3]], np.float32))
    return inside


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compile m.onnx -o m.plica --dim n=2 --dim n=3", "'n' is given twice"),
        ("compile m.onnx -o m.plica --dim n=x", "n=x"),
        ("compile m.onnx -o m.plica --threads 0", "expected a whole number, at least 1, found '0'"),
        ("run m.plica --input x=a.npy --input x=b.npy", "'x' is given twice"),
        ("bench m.onnx --seconds 0", "expected a number, more than 0, found '0'"),
        ("bench m.onnx --seconds nan", "expected a number, more than 0, found 'nan'"),
        ("tune m.onnx --minutes few", "expected a number, more than 0, found 'few'"),
        ("verify m.plica --dim =3", "=3"),
    ],
)
def test_wrong_words_are_wrong_usage(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["compile", "m.onnx"], ".plica or .so or .c"),
        (["quantise", "m.onnx"], ".plica"),
        (["run", "m.plica"], ".npz"),
        (["explain", "m.onnx"], ".html"),
        (["explore", "m.onnx"], ".html"),
        (["demo"], ".html"),
        (["trace", "minimise", "a.json", "m.py"], ".json or .py"),
    ],
)
def test_a_file_to_write_ends_as_what_it_holds(
    capsys: pytest.CaptureFixture[str], words: list[str], known: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*words, "-o", "b.xyz"])
    assert caught.value.code == 2
    assert f"'b.xyz' does not end with {known}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--threads", "2"], "--threads"),
        (["--cpu", "haswell"], "--cpu"),
        (["--cpu", "haswell", "--features=+fma"], "--cpu and --features"),
    ],
)
def test_options_of_processors_are_none_of_gpus(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    there = [str(folder / "most.onnx"), "-o", str(folder / "most.plica")]
    assert main(["compile", *there, "--target", "cuda:sm_80", *words]) != 0
    assert f"{named} " in capsys.readouterr().err


def test_what_was_compiled_for_sizes_is_verified_with_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = str(folder / "open.onnx"), str(folder / "open.plica")
    assert main(["compile", source, "-o", made]) == 0
    assert main(["verify", made, "--model", source, "--replay"]) == 0
    assert main(["compile", source, "-o", made, "--tune", "1"]) == 1
    assert "--dim batch_size=1" in capsys.readouterr().err  # which can be typed as it is
    assert main(["compile", source, "--dim", "batch_size=2", "-o", made]) == 0
    assert main(["verify", made, "--model", source, "--dim", "batch size=2", "--replay"]) == 0
    capsys.readouterr()
    assert main(["verify", made, "--model", source, "--dim", "batch_size=3"]) == 1
    assert "--dim" in capsys.readouterr().err


def test_a_value_that_decides_shapes_is_given_as_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = str(folder / "shaped.onnx"), str(folder / "shaped.plica")
    value = ["--input", f"s={folder / 's.npy'}"]
    assert main(["compile", source, "-o", made]) == 0  # one code for all values
    assert main(["run", made, "--input", f"x={folder / 'x.npy'}", *value]) == 0
    assert main(["verify", made, "--prove", "--rebuild"]) == 0
    assert "in segments" in capsys.readouterr().out
    assert main(["verify", made, "--model", source]) == 1
    assert "without --model" in capsys.readouterr().err
    assert main(["compile", source, *value, "-o", made]) == 0
    assert main(["verify", made, "--model", source, *value]) == 0
    assert main(["run", made, "--input", f"x={folder / 'x.npy'}"]) == 0
    assert "Tensor[(2, 3), f32]" in capsys.readouterr().out
    for command in ("debug", "explain"):
        assert main([command, source, *value]) == 0
        assert main([command, source]) == 1
        assert main([command, source, *value, "--input", f"q={folder / 'x.npy'}"]) == 1
        assert "There is no input 'q'" in capsys.readouterr().err
    words = ["--against", "onnxruntime", "--rounds", "1", "--seconds", "0.001", "--json"]
    assert main(["bench", source, *value, *words]) == 0
    entries: Any = json.loads(capsys.readouterr().out)["entries"]
    assert [each["difference"] for each in entries] == [0, 0]


def test_bench_sees_that_nan_is_no_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--against", "onnxruntime", "--rounds", "1", "--seconds", "0.001", "--json"]
    source, given = str(folder / "most.onnx"), f"x={folder / 'nan.npy'}"
    assert main(["bench", source, "--input", given, *words]) == DIFFERS
    found = json.loads(capsys.readouterr().out)
    assert found["entries"][0]["difference"] is None  # JSON has no infinity
    assert found["agrees"] is False


def test_an_error_is_json_where_json_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(folder / "open.onnx"), "--json"]) == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["error"] == "UnsupportedError"
    assert found["diagnostics"][0]["suggestion"] == "Give them: --dim batch_size=1."
    assert not shown.err


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "shaped.onnx", "--input", "s=s.npy", "-o"],
        ["explain", "shaped.onnx", "--input", "s=s.npy", "-o"],
        ["run", "shaped.plica", "-o"],
        ["demo", "--small", "-o"],
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = folder / "no" / "such" / "file"
    assert main([*words, str(target)]) == 1
    shown = capsys.readouterr().err
    assert "cannot-write" in shown
    assert "Make the folder first." in shown


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "plica", "rules", "list", "--json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        text=True,
        timeout=60,
    )
    os.close(writing)
    assert done.returncode == BROKEN_PIPE_EXIT
    assert not done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--n", "-5"), "unrecognized arguments"),  # no beginning of --native
        (("--native", "-5"), "--native: expected a whole number, at least 0"),
        (("--first", "-1"), "--first: expected a whole number, at least 0"),
        (("--jobs", "0"), "--jobs: expected a whole number, at least 1"),
    ],
)
def test_numbers_of_the_fuzzers(
    words: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["fuzz", "onnx", *words])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compile", "m.py", "-o", "m.plica", "--targt", "cpu"], "did you mean '--target'?"),
        (["rules", "check", "algebra", "--sed=3"], "did you mean '--seed'?"),
        (["doctor", "more"], "unrecognized arguments: more"),
    ],
)
def test_an_unknown_option_is_an_error_of_its_command(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    said = capsys.readouterr().err
    assert expected in said
    assert f"plica {words[0]}" in said
