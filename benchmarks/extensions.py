"""Every kind of extension in one fresh environment: written, installed, checked, broken, found.

python benchmarks/extensions.py [--linked] [--examples N]

Plica is installed into a new virtual environment (or, with --linked, found by it where it stands:
no network).  `plica new` writes a package of every kind, pip installs all of them, `plica check`
has to find all of them right and their own tests have to pass.  Then one mistake is planted in
each; all are installed again, and `plica check` has to name the record that is wrong, in every
package that one, beside six other broken ones, with a smallest case.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import Any, Final

from plica.extending import KINDS

ROOT: Final = Path(__file__).resolve().parents[1]

MISTAKES: Final = {
    "rule-pack": ("op.ceil(x)),\n", "op.floor(x)),\n", "acme-rule-pack-floor-of-ceil"),
    "operator": ("cotangent * 2.0 *", "cotangent *", "gradient"),
    "pass": ("op.add(left, op.negative(right))", "op.add(left, right)", "acme-pass"),
    "primitive": ('"unrolled", loop.body', '"parallel", loop.body', "acme_primitive.unrolled"),
    "form": ("*axes), value)", "*axes), value + value)", "acme-form-unit-axis"),
    "target": (
        '"fold-winograd")',
        '"fold-winograd").insert(Pass("wrong", "A mistake.", wrong), before="fuse")',
        "acme-target",
    ),
    # All else follows from the declaration: what can be wrong is that it contradicts itself.
    "accelerator": ('"total", 9', '"total", 4', "acme_accelerator"),
}
"""What stands in the source of a new package, what is planted there, and who is to be named."""

WRONG_PASS: Final = """
from plica import op
from plica.core.fold import map_bottom_up
from plica.ir.graph.expression import Apply
from plica.ir.passes import Pass
from plica.ir.type.infer import infer


def wrong(module):
    def changed(node):
        match node:
            case Apply("subtract" | "add", (left, right)):
                return op.multiply(left, right)
        return node

    return infer(map_bottom_up(changed, module))


PAGE = """


def plant(kind: str, package: Path) -> None:
    """Put the mistake of its kind into a package that `plica new` wrote."""
    source = package / package.name.replace("-", "_") / f"{KINDS[kind].file}.py"
    old, planted, _ = MISTAKES[kind]
    text = source.read_text(encoding="utf-8")
    assert old in text, f"{source} has no {old!r}"
    if kind == "target":
        text = text.replace("PAGE = ", WRONG_PASS)
    source.write_text(text.replace(old, planted), encoding="utf-8")


class Environment:
    """A new virtual environment in a folder, and how commands are run in it."""

    def __init__(self, folder: Path, linked: bool) -> None:
        self.folder, self.env = folder, folder / "env"
        venv.create(self.env, with_pip=True)
        if linked:
            (site,) = (self.env / "lib").glob("python*/site-packages")
            beside = f"{ROOT}\n{sysconfig.get_paths()['purelib']}\n"
            (site / "beside.pth").write_text(beside, encoding="utf-8")
        else:
            self.run("pip", "install", "-q", "--no-compile", str(ROOT), "pytest", "hatchling")

    def run(self, *words: str, may: tuple[int, ...] = (0,)) -> str:
        """What `python -m …` prints; an exit code that may not be ends the trial."""
        done = subprocess.run(
            [str(self.env / "bin" / "python"), "-m", *words],
            cwd=self.folder,
            env={**os.environ, "PLICA_CACHE": "off", "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in may:
            raise SystemExit(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, packages: list[Path]) -> None:
        """Install packages as they now are."""
        self.run("pip", "install", "-q", "--no-deps", "--no-build-isolation", "--force-reinstall",
                 *map(str, packages))  # fmt: skip

    def verdicts(self, package: Path, examples: int, code: int) -> list[dict[str, Any]]:
        """What `plica check` says of an installed package, by its name."""
        words = ("plica", "check", package.name, "--examples", str(examples), "--json")
        found: list[dict[str, Any]] = json.loads(self.run(*words, may=(code,)))["verdicts"]
        return found


def trial(folder: Path, examples: int, linked: bool) -> None:
    """All of it, and a line for each kind; what is not as it should be ends it."""
    start = time.perf_counter()
    here = Environment(folder, linked)
    print(f"a fresh environment: {time.perf_counter() - start:.0f} s", flush=True)
    packages = {kind: folder / f"acme-{kind}" for kind in KINDS}
    for kind in KINDS:
        here.run("plica", "new", kind, f"acme-{kind}")
    here.install(list(packages.values()))
    for kind, package in packages.items():
        good = here.verdicts(package, examples, 0)
        here.run("pytest", "-q", "-p", "no:cacheprovider", str(package))
        words = ", ".join(each["word"] for each in good)
        print(f"{kind:12} right: {words}; its own tests pass", flush=True)
        plant(kind, package)
    here.install(list(packages.values()))
    for kind, package in packages.items():
        rows = here.verdicts(package, 3 * examples, 1)
        (bad,) = [each for each in rows if not each["good"]]
        assert MISTAKES[kind][2] in bad["name"], bad
        lines = len(bad["example"].splitlines())
        case = f"a case of {lines} lines" if lines else bad["why"].splitlines()[-2].strip()
        print(f"{kind:12} mistake: {bad['name']} {bad['word']}, {case}", flush=True)
    print(f"{len(KINDS)} kinds in {time.perf_counter() - start:.0f} s")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--linked", action="store_true", help="Plica is found where it stands")
    parser.add_argument("--examples", type=int, default=16, help="cases a record")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        trial(Path(folder), arguments.examples, arguments.linked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
