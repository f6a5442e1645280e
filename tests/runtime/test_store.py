"""The store: entries are whole or absent, damaged ones are made again, the oldest go first."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import stat
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.unit import units
from plica.core.fold import map_bottom_up, post_order
from plica.core.term import Term
from plica.frontend.zoo import resnet
from plica.ir.graph.expression import Apply, Call, Function
from plica.ir.graph.module import Module
from plica.ir.text.script import from_text
from plica.pipeline import compile, lower
from plica.runtime.error import UnsupportedError
from plica.runtime.link import can_link
from plica.runtime.store import AUDITED, LIMIT, ArtefactStore, key_of, user_store
from tests.runtime.model import inputs, module

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*"))


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_keys_tell_parts_apart(a: list[bytes], b: list[bytes]) -> None:
    assert (key_of(*a) == key_of(*b)) == (a == b)


def test_a_damaged_entry_is_as_none(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path)
    store.put(key_of("a"), b"value")
    assert store.get(key_of("a")) == b"value"
    (path,) = entries(tmp_path)
    for bad in (b"", b"plica1\n", path.read_bytes()[:-1], path.read_bytes() + b"x"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bad)
        with pytest.warns(RuntimeWarning, match="damaged-entry"):
            assert store.get(key_of("a")) is None
        assert entries(tmp_path) == []
    store.put(key_of("a"), b"value")
    assert store.get(key_of("a")) == b"value"


LONG = np.random.default_rng(7).bytes((1 << 20) + 12_345)
"""More than is hashed as it is."""


@given(
    st.lists(st.tuples(st.integers(0, len(LONG) - 1), st.integers(0, 7)), max_size=3, unique=True),
    st.lists(st.integers(0, len(LONG)), max_size=3),
)
@example([(7, 7), (7 + 8 * 4096, 7)], [])  # two signs
@example([], [0, 0])
@example([], [8 * 4096])
def test_damage_of_a_long_entry_is_found(
    tmp_path_factory: pytest.TempPathFactory, bits: list[tuple[int, int]], cuts: list[int]
) -> None:
    store = ArtefactStore(tmp_path_factory.mktemp("store"))
    edges = [0, *sorted(cuts), len(LONG)]
    store.put(key_of("a"), *[LONG[a:b] for a, b in itertools.pairwise(edges)])
    (path,) = entries(store.folder)
    data = bytearray(path.read_bytes())
    for at, bit in bits:
        data[at - len(LONG)] ^= 1 << bit
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert store.get(key_of("a")) == (None if bits else LONG)


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d + bytes(1), lambda d: bytes(len(d))]
)
def test_a_long_entry_of_another_length_is_as_none(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    store = ArtefactStore(tmp_path)
    store.put(key_of("a"), LONG)
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    head = whole[: len(whole) - len(LONG)]
    path.write_bytes(head + change(LONG))
    with pytest.warns(RuntimeWarning, match="damaged-entry"):
        assert store.get(key_of("a")) is None


def test_an_entry_in_the_place_of_another_is_as_none(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path)
    store.put(key_of("a"), b"one")
    store.put(key_of("b"), b"two")
    store._path(key_of("a")).write_bytes(store._path(key_of("b")).read_bytes())
    with pytest.warns(RuntimeWarning, match="damaged-entry"):
        assert store.get(key_of("a")) is None
    assert store.get(key_of("b")) == b"two"


@pytest.mark.parametrize("data", [b"", b"of another kind"])
def test_an_entry_of_another_kind_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    amount = 7.0 + len(data)
    text = (
        "import plica\n\n@plica.function\n"
        f"def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:\n    return x + {amount}\n"
    )
    given = np.ones(3, np.float32)
    made = compile(from_text(text), threads=1)
    del made  # so that it is not shared within this process
    kept = entries(tmp_path)
    assert len(kept) > 2
    for path in kept:
        ArtefactStore(tmp_path).put(path.parent.name + path.name, data)
    again = compile(from_text(text), threads=1)(given)
    assert np.array_equal(again, given + amount)


def test_what_was_used_least_recently_goes(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path, limit=5000)
    for number in range(10):
        store.put(key_of(str(number)), bytes(1000))
    for number, path in enumerate(store._path(key_of(str(each))) for each in range(10)):
        os.utime(path, (number, number))
    assert store.get(key_of("0")) is not None  # used now
    store.sweep()
    left = [each for each in range(10) if store.get(key_of(str(each))) is not None]
    assert left == [0, 8, 9]


def test_many_writers_at_once(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path)
    seen: list[bytes | None] = []

    def work(number: int) -> None:
        for _ in range(50):
            store.put(key_of("same"), bytes([7]) * 5000)
            seen.append(store.get(key_of("same")))

    writers = [threading.Thread(target=work, args=(each,)) for each in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert set(seen) == {bytes([7]) * 5000}
    assert len(entries(tmp_path)) == 1


def test_a_folder_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = ArtefactStore(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match=r"unwritable-store.*\n.*Not a directory"):
        store.put(key_of("a"), b"value")
    with warnings.catch_warnings(action="error"):
        store.put(key_of("b"), b"value")  # it is said once
    assert store.get(key_of("a")) is None


def test_a_full_disk_leaves_no_part_of_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does the store lose what it held, nor is anything half-written left."""
    store = ArtefactStore(tmp_path / "store")
    store.put(key_of("a"), b"value")
    before = entries(tmp_path / "store")
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full_disk)
        patched.setattr(Path, "replace", full_disk)
        with pytest.warns(RuntimeWarning, match="No space left"):
            store.put(key_of("b"), b"other")
        store.put_apart(key_of("c"), b"x" * (1 << 17))
    assert entries(tmp_path / "store") == before
    assert store.get(key_of("a")) == b"value"
    store.put(key_of("b"), b"other")
    assert store.get(key_of("b")) == b"other"


def full_disk(*given: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for said in ("off", "OFF", "Off"):
        monkeypatch.setenv("PLICA_CACHE", said)
        assert user_store() is None
    monkeypatch.setenv("PLICA_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = user_store()
    assert found is not None
    assert (found.folder, found.limit) == (tmp_path / "plica", LIMIT)
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("PLICA_CACHE_BYTES", "5")
    found = user_store()
    assert found is not None
    assert (found.folder, found.limit) == (tmp_path / "here", 5)


def test_a_model_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    first = compile(module(), threads=3)
    expected = first(*inputs())
    bytes_ = first.artefact.objects
    text = first.source("llvm")
    del first
    monkeypatch.setattr(toolchain, "emit", None)  # nothing may be compiled from here on
    second = compile(module(), threads=3)
    assert second.artefact.objects == bytes_
    assert all(np.array_equal(a, b) for a, b in zip(second(*inputs()), expected, strict=True))
    assert second.source("llvm") == text
    assert second.artefact.record().contract


def test_an_executable_from_the_store_is_freed_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    gc.collect()  # executables of other tests that are alive would be shared
    gc.disable()
    try:
        for _ in range(2):
            gone = weakref.ref(compile(module(), threads=3))
            assert gone() is None
    finally:
        gc.enable()


def test_a_damaged_store_is_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    gc.collect()  # an executable that is alive is shared, and nothing is stored
    expected = compile(module(), threads=3)(*inputs())
    assert entries(tmp_path)
    for path in entries(tmp_path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 255
        path.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="damaged-entry"):
        again = compile(module(), threads=3)(*inputs())
    assert all(np.array_equal(a, b) for a, b in zip(again, expected, strict=True))


CHAIN = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(8, 8), f32], w: Tensor[(8, 8), f32]) -> Tensor[(8, 8), f32]:
    a = op.nn.softmax(op.matmul(x, w), axis=-1)
    b = {edited}(op.matmul(a, a))
    return op.nn.softmax(op.matmul(b, op.transpose(b)), axis=0)
"""


def compiled(of: Module, store: ArtefactStore) -> tuple[str, ...]:
    here = toolchain.host()
    lowered = lower(of)
    return units(lowered.program, lowered.plan, here, False, store).compiled


def test_editing_an_operator_compiles_the_kernels_that_contain_it(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path)
    before, after = (
        from_text(CHAIN.format(edited=name)) for name in ("op.nn.relu", "op.nn.sigmoid")
    )
    assert len(compiled(before, store)) > 2
    assert compiled(before, store) == ()
    changed = compiled(after, store)
    assert len(changed) == 1
    assert "sigmoid" in changed[0]
    assert compiled(after, store) == ()


def edited(of: Module, number: int, into: str) -> Module:
    """The module with one of its activations replaced."""
    body = of.main_function().body
    found = [each for each in post_order(body) if is_apply(each, "nn.relu")]
    old = found[number]
    assert isinstance(old, Apply)
    new = Apply(into, old.args)
    made = map_bottom_up(lambda node: new if node is old else node, of)
    assert isinstance(made, Module)
    return made


def is_apply(node: Term, name: str) -> bool:
    return isinstance(node, Apply) and node.op == name


def groups_with(of: Module, name: str) -> int:
    """How many distinct groups of a fused module contain an operator."""
    calls = [each for each in post_order(of.main_function().body) if isinstance(each, Call)]
    functions = dict.fromkeys(each.callee for each in calls if isinstance(each.callee, Function))
    return sum(any(is_apply(node, name) for node in post_order(each)) for each in functions)


def test_an_edit_of_a_resnet_compiles_the_groups_that_contain_it(tmp_path: Path) -> None:
    store, here = ArtefactStore(tmp_path), toolchain.host()
    of = resnet(18, image=32, width=0.0625, classes=10)

    def compiled(module: Module) -> tuple[int, int]:
        lowered = lower(module, target=here)
        made = units(lowered.program, lowered.plan, here, True, store).compiled
        return len(made), groups_with(lowered.final, "nn.sigmoid")

    every, none = compiled(of)
    assert every > 12
    assert none == 0
    for number in (0, 16):
        again, groups = compiled(edited(of, number, "nn.sigmoid"))
        assert again == groups == 1
    assert compiled(of) == (0, 0)


@pytest.mark.slow
def test_another_class_count_compiles_the_last_layers_only(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path)
    first = compiled(resnet(18, image=32, width=0.125, classes=10), store)
    again = compiled(resnet(18, image=32, width=0.125, classes=12), store)
    assert 0 < len(again) < len(first) / 4


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ArtefactStore(tmp_path / "new" / "store").put(key_of("a"), b"value")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new" / "store") == 0o700
    (entry,) = entries(tmp_path / "new" / "store")
    assert mode(entry.parent) == 0o700
    assert not mode(entry) & 0o077


@pytest.mark.parametrize("writable", [0o777, 0o775, 0o722])
def test_a_folder_that_others_may_write_to_is_left_alone(tmp_path: Path, writable: int) -> None:
    store = ArtefactStore(tmp_path / "store")
    store.put(key_of("a"), b"value")
    (tmp_path / "store").chmod(writable)
    with pytest.warns(RuntimeWarning, match="unsafe-store") as told:
        assert store.get(key_of("a")) is None
    assert f"{writable:04o}" in str(told[0].message)
    assert "PLICA_CACHE=off" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        store.put(key_of("b"), b"value")
        assert store.get(key_of("a")) is None
    assert len(entries(tmp_path / "store")) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs two users")
def test_what_belongs_to_somebody_else_is_left_alone(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path / "store")
    store.put(key_of("a"), b"value")
    (entry,) = entries(tmp_path / "store")
    os.chown(entry, 65534, 65534)
    assert store.get(key_of("a")) is None
    os.chown(entry, 0, 0)
    assert store.get(key_of("a")) == b"value"
    os.chown(tmp_path / "store", 65534, 65534)
    with pytest.warns(RuntimeWarning, match="owner 65534"):
        assert store.get(key_of("a")) is None


def test_a_fifo_in_the_place_of_an_entry_is_not_waited_for(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path / "store")
    store.put(key_of("a"), b"value")
    (entry,) = entries(tmp_path / "store")
    entry.unlink()
    os.mkfifo(entry)
    assert store.get(key_of("a")) is None
    store.put(key_of("a"), b"value")
    assert store.get(key_of("a")) == b"value"


TWICE = """
import plica

@plica.function
def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    return x * {amount}
"""


def stored_model(tmp_path: Path, amount: float) -> dict[str, bytes]:
    """What the store holds after a model was compiled, by key."""
    made = compile(from_text(TWICE.format(amount=amount)), threads=1)
    del made
    store = ArtefactStore(tmp_path)
    found = {path.parent.name + path.name: store.get(path.parent.name + path.name)
             for path in entries(tmp_path)}  # fmt: skip
    return {key: data for key, data in found.items() if data is not None}


def test_a_wrong_entry_of_good_form_is_found_by_the_audit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "0")
    right = stored_model(tmp_path, 2.0)
    every = stored_model(tmp_path, 3.0)
    (whole,) = [key for key in right if max(map(len, right.values())) == len(right[key])]
    (other,) = [key for key in every if key not in right and len(every[key]) == len(right[whole])]
    store = ArtefactStore(tmp_path)
    store.put(whole, every[other])  # the digest of the entry is right, and it is another model
    given, text = np.ones(3, np.float32), TWICE.format(amount=2.0)
    assert compile(from_text(text), threads=1)(given)[0] == 3  # nobody looks
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "1")
    with pytest.warns(RuntimeWarning, match=r"not the model.*\[wrong-entry"):
        assert compile(from_text(text), threads=1, cache=True)(given)[0] == 2
    assert store.get(whole) == right[whole]  # and it was put right


def test_a_wrong_kernel_is_found_by_the_audit(tmp_path: Path) -> None:
    here = toolchain.host()
    two, three = (lower(from_text(TWICE.format(amount=each))) for each in ("x", "x * x"))
    store = ArtefactStore(tmp_path, audited=0)
    right = units(two.program, two.plan, here, False, store).objects
    known = set(entries(tmp_path))
    units(three.program, three.plan, here, False, store)
    kernels = [
        path for path in entries(tmp_path) if (store_get(store, path) or b"")[1:5] == b"\x7fELF"
    ]
    (one,), (another,) = (
        [path for path in kernels if (path in known) == before] for before in (True, False)
    )
    key = one.parent.name + one.name
    wrong = store_get(store, another)
    assert wrong is not None
    store.put(key, wrong)
    assert units(two.program, two.plan, here, False, store).objects != right
    audited = ArtefactStore(tmp_path, audited=1)
    with pytest.warns(RuntimeWarning, match="wrong-entry"):
        assert units(two.program, two.plan, here, False, audited).objects == right
    assert audited.wrong == [key]


def store_get(store: ArtefactStore, path: Path) -> bytes | None:
    return store.get(path.parent.name + path.name)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_share_of_hits_that_is_audited(tmp_path: Path, share: float) -> None:
    store = ArtefactStore(tmp_path, audited=share, seed=7)
    made: list[str] = []

    def make(key: str) -> bytes:
        made.append(key)
        return b"same"

    keys = [key_of(str(number)) for number in range(400)]
    for key in keys:
        store.put(key, b"same")
        assert store.found(key, lambda key=key: make(key), "it") == b"same"  # type: ignore[misc]
    assert abs(len(made) - 400 * share) <= 40
    assert store.wrong == []
    again = ArtefactStore(tmp_path, audited=share, seed=7)
    before, made = made, []
    for key in keys:
        again.found(key, lambda key=key: make(key), "it")  # type: ignore[misc]
    assert made == before  # the seed says which


def test_the_audit_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLICA_CACHE", "somewhere")
    for said, audited in (("0.5", 0.5), (".25", 0.25), ("1.0", 1.0), ("0", 0.0), ("", AUDITED)):
        monkeypatch.setenv("PLICA_CACHE_AUDIT", said)
        monkeypatch.setenv("PLICA_CACHE_SEED", "5")
        found = user_store()
        assert found is not None
        assert (found.audited, found.seed) == (audited, 5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PLICA_CACHE_BYTES", "10GB"),
        ("PLICA_CACHE_BYTES", "\N{SUPERSCRIPT TWO}"),
        ("PLICA_CACHE_BYTES", "9" * 5000),
        ("PLICA_CACHE_AUDIT", "7"),
        ("PLICA_CACHE_AUDIT", "nan"),
        ("PLICA_CACHE_SEED", "-1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv("PLICA_CACHE", "somewhere")
    monkeypatch.setenv(name, said)
    with pytest.raises(UnsupportedError, match=name) as refused:
        user_store()
    assert len(str(refused.value)) < 300
