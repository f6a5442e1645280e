"""GPUs as targets: code that suits the one that is here, and refusals that name what there is."""

from __future__ import annotations

import pytest

from plica.codegen.cuda.target import parse_gpu
from plica.runtime.cuda.code import ARCHITECTURES, check, runs_on, suited
from plica.runtime.error import ArtefactError, UnsupportedError

UNKNOWN = ("sm_70", "sm_75", "sm_100", "sm_120")


@pytest.mark.parametrize(
    ("here", "wanted"),
    [("sm_80", "sm_80"), ("sm_87", "sm_86"), ("sm_90", "sm_90a"), (None, "sm_90")],
)
def test_code_is_for_the_gpu_that_is_here(here: str | None, wanted: str) -> None:
    found = parse_gpu("cuda", lambda: here)
    assert found is not None
    assert found.architecture == wanted
    if here is not None:
        check(wanted, here)


@pytest.mark.parametrize("here", UNKNOWN)
def test_a_gpu_that_runs_no_code_is_refused(here: str) -> None:
    assert not any(runs_on(each, here) for each in ARCHITECTURES)
    with pytest.raises(UnsupportedError, match=here) as caught:
        parse_gpu("cuda", lambda: here)
    assert "cpu" in (caught.value.diagnostics[0].suggestion or "")
    with pytest.raises(ArtefactError) as other:
        check("sm_90", here)
    assert f"'cuda:{here}'" not in (other.value.diagnostics[0].suggestion or "")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("cuda:sm_70", None),
        ("cuda:sm_87", "Code for sm_86 runs on it: 'cuda:sm_86'."),
        ("cuda:sm90a", "Did you mean 'sm_90a'?"),
    ],
)
def test_what_is_suggested_is_a_target(text: str, hint: str | None) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_gpu(text)
    (said,) = caught.value.diagnostics
    assert said.suggestion == hint
    assert said.expected == f"one of {', '.join(ARCHITECTURES)}"


def test_code_for_another_kind_names_the_one_that_suits() -> None:
    with pytest.raises(ArtefactError) as caught:
        check("sm_90", "sm_87")
    assert "cuda:sm_86" in (caught.value.diagnostics[0].suggestion or "")
    assert suited("nonsense") is None
