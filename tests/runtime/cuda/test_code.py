"""Cubins: on which GPUs they run, what they define, and what is none."""

from __future__ import annotations

import pytest

from plica.codegen.cuda.toolchain import compiled, path_of
from plica.runtime.cuda.code import ARCHITECTURES, functions, runs_on
from plica.runtime.error import ArtefactError


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_code_runs_on_its_own_architecture_and_no_older_one(architecture: str) -> None:
    plain = architecture.removesuffix("a")
    assert runs_on(architecture, plain)
    assert not runs_on(architecture, "sm_70")
    assert not runs_on(architecture, "anything")


def test_a_name_with_an_a_is_for_that_one_alone() -> None:
    assert runs_on("sm_80", "sm_89")
    assert not runs_on("sm_89", "sm_80")
    assert not runs_on("sm_90a", "sm_91")


@pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_the_functions_of_a_cubin_are_known(architecture: str) -> None:
    text = "\n".join(
        [f'extern "C" __global__ void {n}(int* x) {{ *x = 1; }}' for n in ("f", "g_1")]
    )
    code = compiled(text, architecture).code
    assert functions(code) == {"f", "g_1"}
    with pytest.raises(ArtefactError, match="sections"):
        functions(code[:80])


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(70), b"\x7fELF\x02\x01" + bytes(70)])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(ArtefactError):
        functions(data)
