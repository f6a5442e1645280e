"""What every test shares: hypothesis profiles, golden text, the `slow` and `device` markers.

The profile is chosen by the environment variable PLICA_PROFILE: `ci` (the default: few examples,
the same ones every time), `dev` (more, random), `deep` (thousands; `make properties`).
"""

from __future__ import annotations

import difflib
import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from plica.core.diagnostic import CODES
from plica.ir.graph import operator
from plica.pipeline import compiled
from plica.runtime.error import Diagnostic
from tests.lean import lean
from tests.verified import compiled_artefacts_are_verified, saved_artefacts_are_verified

TESTS: Final = Path(__file__).parent

# No test of ours may depend on a clock, so neither do hypothesis's own checks.
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    max_examples=6,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", max_examples=100, deadline=None, print_blob=True)
settings.register_profile(
    "deep",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# Tests make what they test; those of the store have folders of their own.
os.environ["PLICA_CACHE"] = "off"
os.environ["PLICA_CACHE_AUDIT"] = "0"  # and tests of the audit say what they audit
os.environ["PLICA_RECORDS"] = "off"  # a machine for which records are shipped is like any other
os.environ["PLICA_JOBS"] = "1"  # tests of the pool say how many

# Terms that live as long as the run are not looked through again and again: a sixth of its time.
gc.set_threshold(500_000, 20, 50)

PROFILE: Final = os.environ.get("PLICA_PROFILE", "ci")
settings.load_profile(PROFILE)
if PROFILE == "ci":
    lean()


@pytest.fixture
def young() -> None:
    """What is there already is not looked through when garbage is collected: seconds, by then."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of this project's tests."""
    group = parser.getgroup("plica")
    group.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )
    group.addoption("--slow", action="store_true", help="run tests marked slow")
    group.addoption(
        "--verify-compiled", action="store_true", help="verify every artefact that tests compile"
    )
    group.addoption("--device", action="store_true", help="run tests marked device")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Files of tests have no examples in docstrings, so they are not looked through for them."""
    found = yield
    if not file_path.name.startswith("test_"):
        return found
    return [each for each in found if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests and those of devices unless they are asked for."""
    wanted = {
        "slow": config.getoption("--slow") or PROFILE == "deep",
        "device": config.getoption("--device"),
    }
    left_out = {marker for marker, asked in wanted.items() if not asked}
    deselected = [item for item in items if any(map(item.get_closest_marker, left_out))]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        kept = set(items) - set(deselected)
        items[:] = [item for item in items if item in kept]


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which tests are left out."""
    asked = {"--slow": config.getoption("--slow") or PROFILE == "deep"}
    asked["--device"] = config.getoption("--device")
    return [f"tests that need {option} are left out" for option, on in asked.items() if not on]


def pytest_collection_finish() -> None:
    """What is loaded by now stays: it is not looked through for garbage, and its bytecode is kept.

    A package that a test edits within a second would be found as it was, so tests keep no bytecode.
    """
    sys.dont_write_bytecode = True
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """At its end pytest looks for garbage that raises: seconds, among terms that stay."""
    gc.freeze()


class Golden:
    """Compare text with `tests/golden/<package>/<name>.txt`.

    `golden(text)` uses the name of the test, without `test_`; `golden(text, "name")` another one.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.update = bool(request.config.getoption("--update-golden"))
        place = request.path.parent.relative_to(TESTS)
        self.folder = TESTS / "golden" / place
        name: str = request.node.name
        self.name = name.removeprefix("test_")

    def __call__(self, text: str, name: str | None = None) -> None:
        """Fail with a diff when the text is not what the file holds."""
        path = self.folder / f"{name or self.name}.txt"
        text = text if text.endswith("\n") else f"{text}\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        shown = path.relative_to(TESTS.parent).as_posix()
        if not path.exists():
            pytest.fail(f"{shown} does not exist; make it with `pytest --update-golden`")
        golden = path.read_text(encoding="utf-8")
        if golden != text:
            lines = difflib.unified_diff(
                golden.splitlines(), text.splitlines(), shown, "this run", lineterm=""
            )
            pytest.fail(
                "\n".join((*lines, "If this is meant, run `pytest --update-golden`.")),
                pytrace=False,
            )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare text with a file under tests/golden."""
    return Golden(request)


@pytest.fixture(autouse=True)
def _own_operators() -> Iterator[None]:
    """Operators that a test registers, or a package or a page that it loads, end with it."""
    before = frozenset(operator._homes)
    yield
    for name in operator._homes.keys() - before:
        record = operator._registry.pop(name)
        for each in (name, *record.aliases):
            del operator._known[each]
        del operator._homes[name]


@pytest.fixture(autouse=True, scope="session")
def _frozen() -> Iterator[None]:
    """Modules are frozen here, so that nothing ages; to see so for each compilation is 4 %."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "age", lambda: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _known_codes() -> Iterator[None]:
    """Every diagnostic that any test makes has a code in the table of codes."""
    make = Diagnostic.__init__

    def checked(self: Diagnostic, code: str, *rest: object, **named: object) -> None:
        assert code in CODES, f"the code {code!r} is not in plica.core.diagnostic.CODES"
        make(self, code, *rest, **named)  # type: ignore[arg-type]  # passed on as they came

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Diagnostic, "__init__", checked)
        yield


@pytest.fixture(autouse=True, scope="session")
def _verified_artefacts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every artefact that a test saves verifies, by every mode with --slow; with --verify-compiled
    every program that a test compiles does, by every mode."""
    compiled_too = bool(request.config.getoption("--verify-compiled"))
    with (
        saved_artefacts_are_verified(bool(request.config.getoption("--slow"))),
        compiled_artefacts_are_verified() if compiled_too else nullcontext(),
    ):
        yield
