"""Products of bytes by instructions that do four, or two, at once: exact, whatever the shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.codegen.dot_product import dot_of, has_tiles, meaning
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.native import run_native
from plica.codegen.program import launches
from plica.codegen.target import Target
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.interpret.kernel import run_in_place
from plica.ir.loop.scalar import Lt, index
from plica.ir.loop.statement import Branch, For, Invoke, Kernel, Region, Stmt, Store, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import known
from plica.ir.type.dtype import dtype
from plica.ir.type.term import tensor
from plica.pipeline import Lowered, lower
from plica.runtime import host
from tests.conftest import Golden

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(4, settings().max_examples // 4))
HERE = toolchain.host()
# Said to be missing: a feature that is left out is there if the processor has it by its name.
PLAIN = evolve(
    HERE,
    features=tuple(
        [
            f"-{f[1:]}" if any(word in f for word in ("vnni", "dot", "amx")) else f
            for f in HERE.features
        ]
    ),
)
TARGETS = {
    "vnni512": Target(
        "cpu", "x86_64-unknown-linux-gnu", "cascadelake", ("+avx512f", "+avx512vnni")
    ),
    "vnni256": Target("cpu", "x86_64-unknown-linux-gnu", "alderlake", ("+avx", "+avxvnni")),
    "pairs512": Target(
        "cpu", "x86_64-unknown-linux-gnu", "skylake-avx512", ("+avx512f", "+avx512bw")
    ),
    "pairs256": Target("cpu", "x86_64-unknown-linux-gnu", "haswell", ("+avx", "+avx2")),
    "sdot": Target("cpu", "aarch64-unknown-linux-gnu", "neoverse-n1", ("+dotprod",)),
}


TILES = evolve(
    TARGETS["vnni512"], features=("+avx512f", "+avx512vnni", "+amx-tile", "+amx-int8"), cores=1
)


def whole(body: Expr, *params: Var) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), params, None, body)}, main)


def widened(of: Expr) -> Expr:
    return op.cast(of, dtype="i32")


def drawn(seed: int, shape: tuple[int, ...], of: Any) -> Array:
    """Bytes of all kinds, the least and the greatest among them."""
    info = np.iinfo(of)
    random = np.random.default_rng(seed)
    found = random.integers(info.min, info.max, shape, endpoint=True).astype(of)
    found.flat[0], found.flat[-1] = info.min, info.max
    return found


def product(
    sizes: tuple[int, int, int], of: str = "u8", zero: int = 0, known_weight: bool = True
) -> tuple[Module, list[Array]]:
    """A product by signed bytes that are known, or by unsigned ones that are given."""
    m, k, n = sizes
    x = Var(Name("x"), tensor((m, k), of))
    weight = drawn(2, (k, n), np.int8 if known_weight else np.uint8)
    given = [drawn(1, (m, k), np.uint8 if of == "u8" else np.int8)]
    data = widened(x)
    if zero:
        data = op.subtract(data, const(np.array(zero, np.int32)))
    if known_weight:
        return whole(op.matmul(data, widened(const(weight))), x), given
    w = Var(Name("w"), tensor((k, n), "u8"))
    middle = op.subtract(widened(w), const(np.array(128, np.int32)))
    return whole(op.matmul(data, middle), x, w), [*given, weight]


def window(
    channels: int, outputs: int, size: int, zero: int, wide: int = 3, **attrs: Any
) -> tuple[Module, list[Array]]:
    """A quantised convolution, its sums scaled and made bytes again."""
    x = Var(Name("x"), tensor((1, channels, size, size), "u8"))
    weight = widened(const(drawn(2, (outputs, channels, wide, wide), np.int8)))
    data = op.subtract(widened(x), const(np.array(zero, np.int32)))
    bias = const(np.arange(outputs, dtype=np.int32).reshape(outputs, 1, 1))
    sums = op.add(op.nn.conv(data, weight, **attrs), bias)
    scaled = op.round(op.multiply(op.cast(sums, dtype="f32"), const(np.float32(2.0**-12))))
    bytes_ = op.cast(op.clip(scaled, min=-128.0, max=127.0), dtype="i8")
    return whole(bytes_, x), [drawn(1, (1, channels, size, size), np.uint8)]


def invoked(of: Kernel) -> list[str]:
    return [each.name for each in statements(of.body) if isinstance(each, Invoke)]


def kernels(of: Lowered) -> list[str]:
    return [name for kernel in of.program.kernels for name in invoked(kernel)]


def interpreted(of: Module, target: Target, given: list[Array]) -> Array:
    """What the scheduled kernels of a module mean, for any machine."""
    made = lower(of, target=evolve(target, cores=1))
    assert kernels(made)
    arrays: dict[int, Array] = {}
    for number, slot in enumerate(made.program.slots):
        if slot.space == "input":
            arrays[number] = given[slot.index]
        elif slot.space == "constant":
            arrays[number] = made.program.constants[slot.index].numpy()
        else:
            arrays[number] = np.zeros(slot.shape, slot.dtype.numpy)
    found: Array = np.zeros(())
    for launch in launches(made.program):
        kernel = made.program.kernels[launch.kernel]
        sizes = [tuple([known(size) or 0 for size in each.shape]) for each in kernel.params]
        args = zip(launch.args, sizes, strict=True)
        results = run_in_place(kernel, [arrays[n].reshape(shape) for n, shape in args], {})
        arrays |= dict(zip(launch.args, results, strict=True))
        found = results[-1]
    wanted = plica.interpret(of, *given)
    assert isinstance(wanted, np.ndarray)
    return found.reshape(wanted.shape)


@pytest.mark.parametrize("name", TARGETS)
def test_machines_have_what_their_features_say(name: str) -> None:
    dot = dot_of(TARGETS[name])
    assert dot is not None
    lanes = {"vnni512": 16, "vnni256": 8, "pairs512": 16, "pairs256": 8, "sdot": 4}
    assert dot.lanes == lanes[name]
    assert dot_of(evolve(TARGETS[name], features=())) is None


@pytest.mark.parametrize("target", [HERE, PLAIN], ids=["here", "plain"])
def test_an_instruction_does_what_it_means(target: Target) -> None:
    dot = dot_of(target)
    if dot is None:
        pytest.skip("This machine has no dot products of bytes.")
    means = meaning(dot.lanes, dot.dtype, dot.weight, dot.terms)
    x, w, y = means.params
    regions = [Region(each, (index(0),) * len(each.shape), each.shape) for each in (x, w, y)]
    kernel = Kernel((), (x, w, y), 2, Invoke(dot.intrinsic, tuple(regions)))
    for seed in range(8):
        arrays = [
            drawn(seed, (dot.terms,), dot.dtype.numpy),
            drawn(seed + 9, (dot.lanes, dot.terms), dot.weight.numpy),
        ]
        if not seed:
            arrays = [np.full_like(each, np.iinfo(each.dtype).min) for each in arrays]
            arrays[0][:] = np.iinfo(arrays[0].dtype).max
        (found,) = run_native(kernel, arrays)
        start = np.zeros((dot.lanes,), np.int32)
        wanted = run_in_place(means, [*arrays, start], {})[-1]
        np.testing.assert_array_equal(found, wanted)


@FEW
@given(
    st.tuples(st.integers(1, 40), st.integers(20, 70), st.integers(3, 70)),
    st.sampled_from(["u8", "i8"]),
    st.sampled_from([0, 3, 128]),
    st.booleans(),
)
def test_products_are_exact(
    sizes: tuple[int, int, int], of: str, zero: int, known_weight: bool
) -> None:
    whole_of, given_ = product(sizes, of, zero, known_weight)
    wanted = plica.interpret(whole_of, *given_)
    for target in (HERE, PLAIN):
        found = plica.compile(whole_of, target=target, cache=False)(*given_)
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=max(3, settings().max_examples // 12))
@given(
    st.sampled_from([("u8", 0), ("u8", 255), ("i8", -128), ("i8", 127)]),
    st.sampled_from([-128, 127]),
    st.sampled_from([0, 5, 255]),
    st.sampled_from([(3, 4099, 17), (9, 30000, 16)]),
)
def test_extremes_do_not_saturate(
    all_: tuple[str, int], weight: int, zero: int, sizes: tuple[int, int, int]
) -> None:
    """Where pairs were added in 16 bits, or sums held within bounds, it would show."""
    (rows, depth, columns), (of, number) = sizes, all_
    x = Var(Name("x"), tensor((rows, depth), of))
    data = op.subtract(widened(x), const(np.int32(zero)))
    made = whole(op.matmul(data, const(np.full((depth, columns), weight, np.int32))), x)
    given_ = np.full((rows, depth), number, dtype(of).numpy)
    wanted = np.full((rows, columns), (number - zero) * weight * depth, np.int64).astype(np.int32)
    for target in (HERE, PLAIN, "cpu:x86-64-v3") if HERE.architecture == "x86_64" else (HERE,):
        found = plica.compile(made, target=target, cache=False, threads=1)(given_)
        np.testing.assert_array_equal(found, wanted)


@FEW
@given(
    st.tuples(st.integers(2, 9), st.sampled_from([5, 16, 33]), st.integers(5, 9)),
    st.sampled_from([0, 7, 255]),
    st.integers(0, 1),
    st.integers(1, 2),
)
def test_windows_are_exact(
    sizes: tuple[int, int, int], zero: int, padding: int, strides: int
) -> None:
    whole_of, given_ = window(*sizes, zero, padding=padding, strides=strides)
    wanted = plica.interpret(whole_of, *given_)
    for target in (HERE, PLAIN):
        found = plica.compile(whole_of, target=target, cache=False)(*given_)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("of", "zero"),
    [
        ("u8", 5),
        ("i8", 0),
        *[pytest.param(*each, marks=pytest.mark.slow) for each in (("u8", 0), ("i8", 5))],
    ],
)
def test_kernels_for_other_machines_mean_the_same(name: str, of: str, zero: int) -> None:
    for sizes, known_weight in (((6, 24, 16), True), ((5, 23, 19), True), ((5, 22, 20), False)):
        whole_of, given_ = product(sizes, of, zero, known_weight)
        found = interpreted(whole_of, TARGETS[name], given_)
        np.testing.assert_array_equal(found, plica.interpret(whole_of, *given_))


@pytest.mark.parametrize("name", TARGETS)
def test_windows_for_other_machines_mean_the_same(name: str) -> None:
    whole_of, given_ = window(6, 16, 5, 9, padding=1)
    found = interpreted(whole_of, TARGETS[name], given_)
    np.testing.assert_array_equal(found, plica.interpret(whole_of, *given_))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("vnni512", "vpdpbusd"),
        ("vnni256", "vpdpbusd"),
        ("pairs512", "vpmaddwd"),
        ("pairs256", "vpmaddwd"),
        ("sdot", "sdot"),
    ],
)
def test_sums_stay_in_registers(name: str, word: str) -> None:
    target = evolve(TARGETS[name], cores=1)
    made = lower(product((32, 64, 64))[0], target=target)
    text = toolchain.assembly(fold(made.program, made.plan, target), target)
    lines = [line for line in text.splitlines() if line.strip()]
    dots = [at for at, line in enumerate(lines) if word in line]
    assert len(dots) >= 8
    inner = "\n".join(lines[dots[0] : dots[-1]])
    assert "rsp" not in inner
    assert "[sp" not in inner


@pytest.mark.parametrize("name", ["sdot", "pairs256"])
def test_what_is_left_of_a_tile_has_a_known_length(name: str) -> None:
    """Else its sums are chosen at run time: they would be memory, and those of whole tiles too."""
    made = lower(product((263, 134, 76))[0], target=evolve(TARGETS[name], cores=1))
    assert kernels(made)
    loops = [e for k in made.program.kernels for e in statements(k.body) if isinstance(e, For)]
    assert all(known(each.extent) is not None for each in loops if each.kind == "unrolled")


@pytest.mark.parametrize("sizes", [(128, 128, 128), (131, 126, 96), (1, 2048, 1024)])
def test_cores_share_products(sizes: tuple[int, int, int]) -> None:
    whole_of, given_ = product(sizes, "u8", 3)
    made = lower(whole_of, target=evolve(TARGETS["vnni512"], cores=2))
    assert kernels(made)
    kinds = {e.kind for k in made.program.kernels for e in statements(k.body) if isinstance(e, For)}
    assert "parallel" in kinds
    found = plica.compile(whole_of, threads=2, cache=False)(*given_)
    np.testing.assert_array_equal(found, plica.interpret(whole_of, *given_))


@pytest.mark.parametrize(("channels", "wide"), [(32, 3), (64, 1), (30, 1)])
def test_cores_share_windows(channels: int, wide: int) -> None:
    whole_of, given_ = window(channels, 32, 28, 7, wide=wide, padding=wide // 2)
    made = lower(whole_of, target=evolve(TARGETS["vnni512"], cores=2))
    assert kernels(made)
    found = plica.compile(whole_of, threads=2, cache=False)(*given_)
    np.testing.assert_array_equal(found, plica.interpret(whole_of, *given_))


@FEW
@given(
    st.tuples(st.integers(8, 70), st.sampled_from([48, 64, 100, 130]), st.integers(3, 70)),
    st.sampled_from(["u8", "i8"]),
    st.sampled_from([0, 3, 128]),
    st.booleans(),
)
def test_products_of_tiles_are_exact(
    sizes: tuple[int, int, int], of: str, zero: int, known_weight: bool
) -> None:
    whole_of, given_ = product(sizes, of, zero, known_weight)
    wanted = plica.interpret(whole_of, *given_)
    made = lower(whole_of, target=TILES)
    assert kernels(made) == [f"x86.tiles_{of}i8"]
    if has_tiles(HERE):
        found = plica.compile(whole_of, cache=False, threads=2)(*given_)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("of", ["u8", "i8"])
def test_kernels_of_tiles_mean_the_same(of: str) -> None:
    whole_of, given_ = product((9, 50, 18), of, 5)
    found = interpreted(whole_of, TILES, given_)
    np.testing.assert_array_equal(found, plica.interpret(whole_of, *given_))


def test_tiles_that_the_system_does_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    if "amx_tile" not in host.features():
        pytest.skip("This machine has no tiles.")
    monkeypatch.setattr(host, "_may_use_tiles", lambda: False)
    assert host.TILES.isdisjoint(host.features.__wrapped__())
    assert {"avx2"} <= host.features.__wrapped__()


def test_a_zero_point_that_comes_with_the_call() -> None:
    x, zero = Var(Name("x"), tensor((9, 32), "u8")), Var(Name("zero"), tensor((), "u8"))
    weight = widened(const(drawn(2, (32, 48), np.int8)))
    whole_of = whole(op.matmul(op.subtract(widened(x), widened(zero)), weight), x, zero)
    given_ = [drawn(1, (9, 32), np.uint8), np.array(200, np.uint8)]
    wanted = plica.interpret(whole_of, *given_)
    np.testing.assert_array_equal(plica.compile(whole_of, cache=False)(*given_), wanted)


def test_what_is_no_byte_stays_in_loops() -> None:
    x = Var(Name("x"), tensor((16, 32), "u8"))
    target = TARGETS["vnni512"]
    far = const(np.where(np.eye(32) > 0, 300, 0).astype(np.int32))
    assert not kernels(lower(whole(op.matmul(widened(x), far), x), target=target))
    near = const(np.full((32, 32), 100, np.int32))
    assert kernels(lower(whole(op.matmul(widened(x), near), x), target=target))
    assert not kernels(
        lower(whole(op.matmul(widened(x), near), x), target=evolve(target, features=()))
    )


@FEW
@given(
    st.integers(1, 300), st.sampled_from([2, 3, 4]), st.sampled_from(["u8", "f32", "i64"]),
    st.integers(0, 9),
)  # fmt: skip
def test_rows_become_neighbours(count: int, many: int, of: str, less: int) -> None:
    kind = dtype(of)
    x, y = buffer("x", (many, count), kind), buffer("y", (count, many), kind)
    at, part = axis("at"), axis("part")
    stored: Stmt = Store(y, (at, part), x[part, at])
    if less:
        stored = Branch(Lt(at, index(max(0, count - less))), stored, Store(y, (at, part), x[0, at]))
    inner = For(part, index(many), "unrolled", stored)
    kernel = Kernel((), (x, y), 1, For(at, index(count), "vectorized", inner))
    given_ = np.arange(many * count).reshape(many, count).astype(kind.numpy)
    wanted = np.where(np.arange(count) < count - less, given_, given_[0]).T
    np.testing.assert_array_equal(run_native(kernel, [given_])[0], wanted if less else given_.T)


def test_text_of_a_product(golden: Golden) -> None:
    made = lower(product((30, 33, 32), "i8", 3)[0], target=evolve(TARGETS["vnni512"], cores=1))
    (origin,) = made.program.origins
    assert origin is not None
    golden(origin.trace.to_python() + "\n" + show_kernel(made.program.kernels[0], "product"))
