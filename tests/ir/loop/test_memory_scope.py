"""Memory scopes: a table that targets extend, and a verifier that adds up what must fit."""

from __future__ import annotations

import pytest

from plica.core.diagnostic import Malformed
from plica.core.name import Name
from plica.ir.loop.memory_scope import Reach, UnknownScope, declare_scope, is_scope, scope, scopes
from plica.ir.loop.scalar import Buffer, Scalar, index
from plica.ir.loop.statement import NOTHING, Alloc, Kernel, Stmt, seq
from plica.ir.loop.verify import capacities, peak_bytes
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32

PAD = declare_scope("test.pad", capacity=64, reach="all", parent="global")


def pad(name: str, *shape: int | Scalar, strides: tuple[int, ...] = ()) -> Buffer:
    sizes = tuple(index(each) for each in shape)
    return Buffer(Name(name), sizes, f32, PAD.name, tuple(index(each) for each in strides))


def kernel(body: Stmt) -> Kernel:
    return Kernel((dim_var("n"),), (), 0, body)


def test_the_scopes_everybody_has() -> None:
    there = [each.name for each in scopes()][:5]
    assert there == ["global", "shared", "shared.swizzled", "warp", "local"]
    assert [scope(name).reach for name in ("global", "shared", "warp", "local")] == [
        "all", "block", "warp", "thread",
    ]  # fmt: skip


def test_declaring_a_scope() -> None:
    assert is_scope("test.pad")
    assert declare_scope("test.pad", 64, "all", "global") is not None
    with pytest.raises(Malformed, match="declared already") as refused:
        declare_scope("test.pad", 128)
    (said,) = refused.value.diagnostics
    assert ("64 bytes" in str(said.expected), "128 bytes" in str(said.found)) == (True, True)
    assert said.suggestion is not None


@pytest.mark.parametrize(
    ("name", "capacity", "reach", "said"),
    [
        ("", 1, "all", "a word"),
        ("two words", 1, "all", "a word"),
        ("test.less", -1, "all", "at least 0 bytes"),
        ("test.far", 1, "nobody", "reached by"),
    ],
)
def test_a_scope_that_cannot_be(name: str, capacity: int, reach: Reach, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        declare_scope(name, capacity, reach)
    assert not is_scope(name)


def test_a_scope_nobody_declared() -> None:
    with pytest.raises(UnknownScope) as caught:
        scope("globle")
    assert caught.value.code == "unknown-scope"
    assert caught.value.diagnostics[0].suggestion == "Did you mean 'global'?"
    with pytest.raises(UnknownScope):
        declare_scope("test.lost", parent="test.nowhere")


def test_what_is_alive_together_must_fit() -> None:
    half = Alloc(pad("a", 8), NOTHING)
    inside = Alloc(pad("a", 8), Alloc(pad("b", 8), NOTHING))
    more = Alloc(pad("a", 8), Alloc(pad("b", 3, 3), NOTHING))
    for fits in (half, inside, seq(inside, inside)):
        assert capacities(kernel(fits)) == ()
    (finding,) = capacities(kernel(seq(half, more)))
    assert (finding.code, finding.expected, finding.found) == (
        "scope-capacity", "at most 64 bytes", "68 bytes",
    )  # fmt: skip


def test_strides_take_room_and_symbolic_sizes_are_not_counted() -> None:
    padded = Alloc(pad("a", 4, 2, strides=(8, 1)), NOTHING)
    assert peak_bytes(kernel(padded), (PAD.name,)) == (3 * 8 + 1 + 1) * 4
    assert peak_bytes(kernel(Alloc(pad("a", dim_var("n")), NOTHING)), (PAD.name,)) == 0
