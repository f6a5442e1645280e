"""Extensions: a pass, a target, an accelerator of another package, without an edit here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from plica.codegen import backend
from plica.codegen.accel import target as accelerator
from plica.ir import passes

ROOT = Path(__file__).parents[1]

PACKAGE = '''
"""A library with a pass and a target of its own: this processor, as one thread without Winograd."""

from attrs import evolve, frozen
from plica.codegen.backend import Backend, backend_named, find_target
from plica.ir.passes import Pass

LOOKED = []

def look(module):
    LOOKED.append(module)
    return module

LOOK = Pass("look", "Looks at the fused module.", look)
CPU = backend_named("cpu")

@frozen
class Plain:
    backend = "plain"
    def describe(self):
        return "plain"

def here(job):
    return evolve(job, target=find_target("cpu"), threads=1)

def parse(text):
    return Plain()

PIPELINE = CPU.pipeline().without("winograd", "fold-winograd").insert(LOOK, after="fuse")
PLAIN = Backend(
    "plain", "This processor, without Winograd.", parse, {"default": PIPELINE},
    build=lambda pipeline, lowered, job: CPU.build(pipeline, lowered, here(job)),
    texts=lambda lowered, job, artefact: CPU.texts(lowered, here(job), artefact),
    machine=lambda target: CPU.machine(find_target("cpu")), threaded=False,
)
NOTHING = "no pass"
'''
POINTS = """\
[plica.passes]
look = vendor_plain:LOOK
broken-pass = vendor_plain:NOTHING

[plica.targets]
plain = vendor_plain:PLAIN
broken-target = vendor_plain:NOTHING

[plica.accelerators]
outer = accel_outer:OUTER
broken = vendor_plain:NOTHING
"""
MODEL = """
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(4, 8), f32], w: Tensor[(8, 4), f32]) -> Tensor[(4, 4), f32]:
    return nn.relu(op.matmul(x, w))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which the package is installed."""
    (tmp_path / "vendor_plain.py").write_text(PACKAGE)
    (tmp_path / "model_script.py").write_text(MODEL)
    shutil.copy(ROOT / "examples" / "accel_outer.py", tmp_path)
    info = tmp_path / "vendor_plain-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-plain\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    return tmp_path


def python(site: Path, *words: str) -> str:
    path = os.pathsep.join([str(site), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=site,
        env={**os.environ, "PYTHONPATH": path, "PLICA_CACHE": str(site / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_pass_of_a_package_is_inserted_by_its_name(site: Path) -> None:
    code = """
import numpy as np, plica
from plica.pipeline import pipeline_of
module = plica.from_text(open("model_script.py").read())
pipeline = pipeline_of("cpu").insert("look", after="fuse")
x, w = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)
for again in range(2):
    assert (plica.compile(module, passes=pipeline, cache=bool(again))(x, w) == 8).all()
import vendor_plain
print(len(vendor_plain.LOOKED))
"""
    assert python(site, "-c", code).strip() == "2"


def test_a_target_of_a_package_compiles(site: Path) -> None:
    code = """
import numpy as np, plica
module = plica.from_text(open("model_script.py").read())
x, w = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)
exe = plica.compile(module, target="plain")
assert (exe(x, w) == 8).all()
assert plica.compile(module, target="plain") is exe
try:
    plica.compile(module, target="plane")
except plica.UnsupportedError as error:
    print(error.diagnostics[0].suggestion)
import vendor_plain
print(len(vendor_plain.LOOKED))
"""
    assert python(site, "-c", code).split("\n")[:2] == ["Did you mean 'plain'?", "1"]
    changed = PACKAGE.replace('"fold-winograd")', '"fold-winograd", "fuse")')
    (site / "vendor_plain.py").write_text(changed.replace('after="fuse"', 'after="decompose"'))
    # What a library makes is not kept: nobody knows what its next version would make.
    assert python(site, "-c", code).split("\n")[1] == "1"


NETWORK = """
import numpy as np, plica
from plica import op
from plica.script import Tensor, f32

random = np.random.default_rng(0)
w, v = (random.standard_normal((8, n, 3, 3)).astype(np.float32) / 4 for n in (3, 8))
shapes = (20, 8, 1, 1), (16, 20), (10, 16)
u, d, e = (random.standard_normal(shape).astype(np.float32) / 4 for shape in shapes)
x = random.standard_normal((4, 3, 8, 8)).astype(np.float32)

@plica.function
def network(x: Tensor[(4, 3, 8, 8), f32]) -> Tensor[(4, 10), f32]:
    y = op.nn.relu(op.nn.conv(x, w, padding=1))
    z = op.nn.relu(op.nn.conv(y, v, padding=1) + y)
    z = op.nn.max_pool(z, 2, strides=2)
    z = op.nn.relu(op.nn.conv(z, u, strides=2))
    z = op.nn.relu(op.nn.dense(op.mean(z, axis=(2, 3)), d))
    return op.nn.dense(z, e)

small = plica.quantise(network, [x], power_of_two=True)
"""


def test_a_model_runs_on_an_accelerator_of_a_package(site: Path) -> None:
    (site / "network.py").write_text(NETWORK)
    code = """
import numpy as np, plica
from network import small, x
exe, here = plica.compile(small, target="accel:outer"), plica.compile(small)
assert len(np.unique(here(x))) > 20
assert np.array_equal(exe(x), here(x))
exe.save("outer.plica")
assert np.array_equal(plica.load("outer.plica")(x), here(x))
plica.tune(small, "accel:outer", 1, "tune.db")
tuned = plica.compile(small, target="accel:outer", database="tune.db")
assert np.array_equal(tuned(x), here(x))
assert tuned.profile(x, runs=1).cycles <= exe.profile(x, runs=1).cycles
print(exe.source("placement"))
for wrong in ("accel:oter", "accel:broken"):
    try:
        plica.compile(small, target=wrong)
    except plica.UnsupportedError as error:
        print(error.diagnostics[0].suggestion or error.diagnostics[0].message)
"""
    said = python(site, "-c", code)
    assert "accel:outer: 4 of 4 integer layers" in said
    assert "Did you mean 'outer'?" in said
    assert "The entry point broken of plica.accelerators is no machine but 'no pass'." in said


def test_it_is_explained_and_examined_as_plicas_own(site: Path) -> None:
    code = """
from plica.cli import main
assert main(["explain", "--passes", "--target", "plain"]) == 0
print("=" * 9)
assert main(["explain", "model_script.py", "--time-passes", "--target", "cpu"]) == 0
"""
    said, _, road = python(site, "-c", code).partition("=" * 9)
    assert "look" in said
    assert "winograd" not in said
    assert "kernels built" in road


def test_what_is_no_pass_and_no_target_is_refused(site: Path) -> None:
    code = """
import plica
from plica.pipeline import pipeline_of
for ask in (lambda: pipeline_of("cpu").insert("broken-pass"), lambda: pipeline_of("broken-target")):
    try:
        ask()
    except plica.PlicaError as error:
        print(error.diagnostics[0].message)
"""
    one, other = python(site, "-c", code).strip().split("\n")
    assert one == "The entry point broken-pass of plica.passes is no pass but 'no pass'."
    assert other == "The entry point broken-target of plica.targets is no backend but 'no pass'."


def test_plicas_own_are_registered_as_a_librarys_are() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points[backend.TARGETS.name] == backend.OWN
    assert points[passes.INSTALLED.name] == passes.OWN
    assert points[accelerator.ACCELERATORS.name] == accelerator.OWN
    for name in backend.OWN:
        assert backend.backend_named(name).name == name
    for name in passes.OWN:
        assert passes.installed_pass(name).name == name
