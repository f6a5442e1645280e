"""Two products around a softmax in tiles: the same numbers by the emulator and the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.scheduled import refused
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.contract import approx, exact as exactly, reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, Lit, index
from plica.ir.loop.stages import Stages, kernel_of
from plica.ir.loop.statement import Alloc, Barrier, For, Kernel, Store, seq, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, bf16, f16, f32
from plica.schedule.default.gpu.attention_chain import chain_of, seen_keys
from plica.schedule.default.gpu.attention_form import chained, narrow_chains
from plica.schedule.default.gpu.attention_group import group_attention_tiles
from plica.schedule.default.gpu.attention_side import threads_across
from plica.schedule.default.gpu.attention_tile import AttentionTile
from plica.schedule.default.gpu.attention_writer import attention_tiles
from plica.schedule.default.gpu.choose import candidates
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.form import Facts
from plica.schedule.online_softmax import online_softmax
from tests.codegen.cuda.emulate import COMPILER, run as emulated
from tests.schedule.chains import WINDOW, Mask, Sizes, attention, drawn, exact

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")


def tiles(
    sizes: Sizes,
    tile: AttentionTile,
    mask: Mask = "none",
    dtype: DType = f16,
    together: bool = False,
) -> Stages:
    online = online_softmax(attention(sizes, mask, dtype))
    chain = None if online is None else chain_of(online)
    assert chain is not None
    return group_attention_tiles(chain, tile) if together else attention_tiles(chain, tile)


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "tile", "mask", "dtype"),
    [
        ((2, 40, 70, 24, 20), AttentionTile(1, 2, 32), "none", f16),
        pytest.param(
            (1, 70, 70, 16, 16), AttentionTile(1, 2, 16), "window", f16, marks=pytest.mark.slow
        ),
        ((1, 64, 40, 32, 32), AttentionTile(2, 2, 32), "bias", bf16),
        pytest.param(
            (2, 70, 100, 64, 64), AttentionTile(4, 1, 64), "none", f16, marks=pytest.mark.slow
        ),
        ((1, 130, 250, 64, 128), AttentionTile(8, 1, 128), "causal", bf16),
    ],
)
def test_tiles_mean_the_same(sizes: Sizes, tile: AttentionTile, mask: Mask, dtype: DType) -> None:
    inputs = drawn(sizes, 0, mask, dtype)
    lots, rows, _, _, columns = sizes
    found = np.full((lots, rows, columns), np.nan, np.float32).astype(dtype.numpy)
    together = tile.high == 1
    of = tiles(sizes, tile, mask, dtype, together)
    emulated(fold(lower(kernel_of(of), "gpu"), "k"), [*inputs, found])
    close = 5e-3 if dtype is f16 else 4e-2
    np.testing.assert_allclose(found.astype(np.float64), exact(inputs, mask), atol=close)


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "tile", "mask", "dtype"),
    [
        ((2, 40, 170, 24, 20), AttentionTile(1, 1, 32, 4), "none", f16),
        ((1, 20, 70, 24, 24), AttentionTile(1, 1, 16, 2), "causal", f32),
        ((1, 70, 250, 64, 64), AttentionTile(4, 1, 64, 2), "window", bf16),
    ],
)
def test_warps_with_the_same_rows_join_what_they_have(
    sizes: Sizes, tile: AttentionTile, mask: Mask, dtype: DType
) -> None:
    """Keys of some warps are none, or none that a row sees: they count for nothing."""
    inputs = drawn(sizes, 0, mask, dtype)
    lots, rows, _, _, columns = sizes
    found = np.full((lots, rows, columns), np.nan, np.float32).astype(dtype.numpy)
    of = tiles(sizes, tile, mask, dtype, tile.warps == 4)
    emulated(fold(lower(kernel_of(of), "gpu"), "k"), [*inputs, found])
    close = {f16: 5e-3, bf16: 4e-2, f32: 4e-6}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), exact(inputs, mask), atol=close)


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "tile", "dtype"),
    [
        ((1, 24, 70, 16, 16), AttentionTile(1, 2, 16), f32),
        ((1, 20, 70, 24, 24), AttentionTile(1, 1, 16, 2), bf16),
        ((1, 64, 250, 64, 64), AttentionTile(4, 1, 64, 2), f16),
    ],
)
def test_keys_that_the_least_number_leaves_out(
    sizes: Sizes, tile: AttentionTile, dtype: DType
) -> None:
    """Models leave keys out by the least number there is as well as by minus infinity: all that a
    warp has of a row may be such, and in units of two it is no number any more."""
    inputs = drawn(sizes, 0, "bias", dtype)
    least, bias = np.finfo(np.float32).min, inputs[3]
    half = bias.shape[1] // 2
    bias[0::5] = least
    bias[1::5, :half], bias[1::5, half:] = least, -np.inf
    bias[2::5, :half] = least
    bias[3::5, half:], bias[3::5, :half] = least, -np.inf
    lots, rows, _, _, columns = sizes
    found = np.full((lots, rows, columns), np.nan, np.float32).astype(dtype.numpy)
    of = tiles(sizes, tile, "bias", dtype, tile.warps == 4)
    emulated(fold(lower(kernel_of(of), "gpu"), "k"), [*inputs, found])
    close = {f16: 5e-3, bf16: 4e-2, f32: 4e-6}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), exact(inputs, "bias"), atol=close)


@given(st.integers(1, 64), st.integers(1, 32), st.sampled_from([4, 8, 16, 32, 64]))
def test_no_power_of_two_takes_fewer_turns(down: int, across: int, count: int) -> None:
    def turns(wide: int) -> int:
        return -(-across // wide) * -(-down // (count // wide))

    wide = threads_across(down, across, count)
    assert wide.bit_count() == 1
    assert turns(wide) == min(turns(1 << n) for n in range(count.bit_length()))


def test_threads_of_a_warp_read_what_others_hold() -> None:
    """The interpreter knows registers of a warp, and who races for them."""
    sizes: Sizes = (1, 20, 20, 16, 16)
    inputs = drawn(sizes, 1, "causal")
    lowered = lower(kernel_of(tiles(sizes, AttentionTile(1, 2, 16), "causal")), "gpu")
    (found,) = run_kernel(lowered, inputs)
    np.testing.assert_allclose(found, exact(inputs, "causal"), atol=5e-3)


@pytest.mark.parametrize("wide", [24, 72, 80, 96, 112])
def test_copies_of_any_width_are_under_way_together(wide: int) -> None:
    """Nobody waits between two turns of a copy."""
    of = tiles((1, 64, 64, wide, wide), AttentionTile(2, 2, 64))
    for loop in statements(lower(kernel_of(of), "gpu").body):
        if isinstance(loop, For) and loop.kind == "serial":
            assert not any(isinstance(each, Barrier) for each in statements(loop.body))


@needs_nvrtc
@pytest.mark.parametrize("together", [pytest.param(False, marks=pytest.mark.slow), True])
def test_nothing_is_spilled_and_no_score_is_kept(together: bool) -> None:
    tile = AttentionTile(8, 1, 128) if together else AttentionTile(4, 2, 64)
    wide = 128 if together else 64
    kernel = kernel_of(tiles((16, 1024, 1024, wide, wide), tile, together=together))
    kept = [each.buffer for each in statements(kernel.body) if isinstance(each, Alloc)]
    shared = "shared.swizzled" if together else "shared"
    assert {each.scope for each in kept} == {shared, "local", "warp"}
    assert sum(known(each.shape[0]) == 1024 for each in kept) == 0
    ((_, usage),) = compiled(fold(lower(kernel, "gpu"), "k").text, "sm_90a").usage
    assert usage.spilled == 0


@pytest.mark.parametrize(
    ("mask", "seen"),
    [("none", (None, None)), ("causal", (None, 0)), ("window", (1 - WINDOW, 0)),
     ("bias", (None, None))],
)  # fmt: skip
def test_scores_say_which_keys_are_seen(mask: Mask, seen: tuple[int | None, int | None]) -> None:
    online = online_softmax(attention((1, 64, 64, 16, 16), mask))
    chain = None if online is None else chain_of(online)
    assert chain is not None
    assert seen_keys(chain) == seen


def test_the_form_is_chosen_where_the_contract_allows_it() -> None:
    small, long = attention((2, 64, 64, 32, 32)), attention((64, 1024, 1024, 128, 128))
    together = Gpu(groups=True)
    asked = [(small, reassociates, Gpu()), (small, exactly, Gpu()),
             (small, reassociates, together), (long, reassociates, together)]  # fmt: skip
    forms = [next(candidates(of, Facts((False,) * 3, (), contract), gpu)).form.form
             for of, contract, gpu in asked]  # fmt: skip
    assert forms == [
        "online-softmax", "thread-elements", "online-softmax", "online-softmax-wgmma",
    ]  # fmt: skip


def test_wide_values_are_left_to_others() -> None:
    assert chained(attention((1, 64, 64, 32, 256))) is None


@needs_compiler
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_heads_that_share_keys_are_rows_below_one_another(mask: Mask) -> None:
    sizes: Sizes = (8, 5, 50, 32, 24)
    inputs = drawn(sizes, 0, mask, f16, 4)
    apart, below = narrow_chains(attention(sizes, mask, f16, 4))
    assert [(each.size(each.row), each.size(*each.lots)) for each in (apart, below)] == [
        (5, 8), (20, 2),
    ]  # fmt: skip
    found = np.full((8, 5, 24), np.nan, np.float16)
    of = attention_tiles(below, AttentionTile(1, 1, 32, 2))
    emulated(fold(lower(kernel_of(of), "gpu"), "k"), [*inputs, found])
    np.testing.assert_allclose(found, exact(inputs, mask), atol=5e-3)


@needs_compiler
def test_sides_of_f32_are_multiplied_in_parts() -> None:
    """As exact as f32 is; whoever allows another order of sums alone has none of it."""
    sizes: Sizes = (1, 20, 70, 24, 20)
    inputs = drawn(sizes, 0, "causal", f32)
    found = np.full((1, 20, 20), np.nan, np.float32)
    of = attention(sizes, "causal", f32)
    facts = [Facts((False,) * 3, (), each) for each in (approx(1e-5), reassociates)]
    one, other = (next(candidates(of, each, Gpu())) for each in facts)
    assert one.form.form == "online-softmax-parts"
    assert other.form.form != "online-softmax-parts"
    emulated(fold(lower(one.kernel, "gpu"), "k"), [*inputs, found])
    np.testing.assert_allclose(found, exact(inputs, "causal"), atol=4e-6)


def test_registers_of_others_are_refused() -> None:
    """A plain statement reads what its own thread holds, and nothing else."""
    held = Buffer(Name("held"), (index(32),), f32, "warp")
    out, lane = buffer("out", (32,), f32), axis("t")
    for place, why in ((lane, ""), (31 - lane, "does not hold them")):
        body = seq(Store(held, (lane,), Lit(1.0, f32)), Store(out, (lane,), held[place]))
        kernel = Kernel((), (out,), 0, For(lane, index(32), "threadIdx.x", Alloc(held, body)))
        assert why in refused(kernel, Gpu())
        assert bool(why) == bool(refused(kernel, Gpu()))
