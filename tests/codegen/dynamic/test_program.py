"""Programs with data, closures, recursion and loops: compiled, they mean what they mean."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import plica
from plica.ir.contract import approx
from plica.ir.graph.module import Module
from plica.ir.interpret.value import DataValue, build
from plica.ir.prelude import list_items
from plica.runtime.dynamic.executable import DynamicExecutable
from plica.runtime.dynamic.state import KEEP, MOST
from plica.runtime.error import EvaluationError, InputError, UnsupportedError
from tests.codegen.dynamic.agree import LIST, agree, compiled, text

TREE = """
@plica.data
class Tree:
    Leaf: (Tensor[(4,), f32],)
    Node: (Tree, Tree)

@plica.function
def total(t: Tree, w: Tensor[(4, 4), f32]) -> Tensor[(4,), f32]:
    match t:
        case Leaf(v):
            return v
        case Node(left, right):
            return op.tanh(op.matmul(total(left, w) + total(right, w), w))

@plica.function
def main(t: Tree, w: Tensor[(4, 4), f32]) -> Tensor[(4,), f32]:
    return total(t, w) * 2.0
"""
LOOP = """
@plica.function
def loop(n: i64, x: f32) -> f32:
    return x if n == 0 else loop(n - 1, x + f32(1.0))

@plica.function
def main(n: i64, x: f32) -> f32:
    return loop(n, x)
"""
MUTUAL = """
@plica.function
def even(n: i64, a: i64, b: i64, c: i64, d: i64, e: i64) -> tuple[bool_, i64]:
    return (bool_(True), e) if n == 0 else odd(n - 1, e, a, b, c, d, a)

@plica.function
def odd(n: i64, a: i64, b: i64, c: i64, d: i64, e: i64, f: i64) -> tuple[bool_, i64]:
    return (bool_(False), f) if n == 0 else even(n - 1, b, c, d, e, f)

@plica.function
def main(n: i64) -> tuple[bool_, i64]:
    return even(n, i64(1), i64(2), i64(3), i64(4), i64(5))
"""
DEPTH = """
@plica.function
def depth(n: i64) -> i64:
    return i64(0) if n == 0 else depth(n - 1) + 1

@plica.function
def main(n: i64) -> i64:
    return depth(n)
"""
NUMBERS = (
    LIST
    + """
@plica.function
def upto(n: i64, found: List[i64]) -> List[i64]:
    return found if n == 0 else upto(n - 1, Cons(n, found))

@plica.function
def total(xs: List[i64], sum: i64) -> i64:
    match xs:
        case Nil():
            return sum
        case Cons(x, rest):
            return total(rest, sum + x)
"""
)
SUM = (
    NUMBERS
    + """
@plica.function
def main(n: i64) -> i64:
    return total(upto(n, Nil()), i64(0))
"""
)


def tree(module: Module, depth: int, random: np.random.Generator) -> DataValue:
    if depth == 0:
        return build(module, "Leaf", random.standard_normal(4).astype(np.float32))
    sides = [tree(module, depth - 1 - int(random.integers(2)) * (depth > 1), random) for _ in "lr"]
    return build(module, "Node", *sides)


def test_recursion_over_a_tree() -> None:
    module = text(TREE)
    exe = compiled(module, approx(1e-4))
    random = np.random.default_rng(0)
    w = random.standard_normal((4, 4)).astype(np.float32)
    for depth in (0, 1, 5):
        agree(exe, module, tree(module, depth, random), w, tolerance=1e-4)


def test_compile_knows_what_is_dynamic() -> None:
    module = text(TREE)
    exe = plica.compile(module)
    assert isinstance(exe, DynamicExecutable)
    assert [str(each) for each in exe.inputs] == ["t: Tree", "w: Tensor[(4, 4), f32]"]
    assert "(t: Tree, w: Tensor[(4, 4), f32]) -> Tensor[(4,), f32]" in repr(exe)
    assert "define" in exe.source("llvm")
    leaf = build(module, "Leaf", np.ones(4, np.float32))
    w = np.eye(4, dtype=np.float32)
    assert exe(w=w, t=leaf).tolist() == [2.0] * 4
    assert exe.at(leaf, w) is exe


def test_what_can_be_unfolded_is_a_static_program() -> None:
    module = text(LOOP.replace("loop(n, x)", "loop(i64(3), x)"))
    exe = plica.compile(module)
    assert not isinstance(exe, DynamicExecutable)
    assert exe(np.int64(0), np.float32(1.0)) == 4.0


def test_a_loop_takes_no_stack_and_no_memory() -> None:
    module = text(LOOP)
    exe = compiled(module)
    agree(exe, module, np.int64(10), np.float32(0.5))
    assert exe(1_000_000, 0.0) == 1_000_000.0
    assert exe._states[0].held <= 1 << 20


def test_calls_of_one_another_in_tail_position_take_no_stack() -> None:
    module = text(MUTUAL)
    exe = compiled(module)
    for n in range(8):
        agree(exe, module, np.int64(n))
    assert exe(1_000_001)[0].item() is False


def test_deep_recursion_is_an_error() -> None:
    module = text(DEPTH)
    exe = compiled(module)
    agree(exe, module, np.int64(1_000))
    assert exe(200_000) == 200_000
    with pytest.raises(EvaluationError) as caught:
        exe(1_000_000_000)
    assert caught.value.code == "recursion-depth"
    assert exe(3) == 3  # and it can be called again


def test_long_lists_are_freed_without_recursion() -> None:
    module = text(SUM)
    exe = compiled(module)
    agree(exe, module, np.int64(100))
    assert exe(300_000) == 300_000 * 300_001 // 2
    assert exe._states[0].live == 0
    assert exe._states[0].held <= KEEP


def test_too_much_memory_is_an_error() -> None:
    module = text(
        NUMBERS
        + """
@plica.function
def main(n: i64) -> i64:
    xs = upto(n, Nil())
    return total(xs, i64(0)) + total(xs, i64(1))
"""
    )
    exe = compiled(module)
    assert exe(10) == 111
    exe._states[0].words[MOST] = 1 << 22
    with pytest.raises(EvaluationError) as caught:
        exe(1_000_000)
    assert caught.value.code == "no-memory"
    assert exe(10) == 111


def test_long_lists_go_in_and_out() -> None:
    module = text(
        LIST
        + """
@plica.function
def main(xs: List[tuple[i64, tuple[f32, i64]]]) -> List[tuple[tuple[i64, f32], i64]]:
    match xs:
        case Nil():
            return Nil()
        case Cons((a, (b, c)), rest):
            return Cons(((a + c, b), a), main(rest))
"""
    )
    exe = compiled(module)
    nil = build(module, "Nil")
    agree(exe, module, nil)
    long: Any = nil
    for number in range(1_500):  # more than Python recurses
        item = np.int64(number), (np.float32(0.5), np.int64(1))
        cells = tuple(np.asarray(each) for each in (item[0], *item[1]))
        long = build(module, "Cons", (cells[0], (cells[1], cells[2])), long)
    found = list_items(agree(exe, module, long))
    assert len(found) == 1_500
    assert found[0][0][0] == 1_500


def test_what_is_shared_stays_shared() -> None:
    module = text(
        """
@plica.data
class Tree:
    Leaf: (i64,)
    Node: (Tree, Tree)

@plica.function
def main(t: Tree) -> Tree:
    return Node(t, t)
"""
    )
    exe = compiled(module)
    value = build(module, "Leaf", np.int64(1))
    for _ in range(60):  # which has 2^60 leaves
        value = build(module, "Node", value, value)
    found = exe(value)
    assert found.fields[0] is found.fields[1]
    assert found.fields[0].fields[0] is found.fields[0].fields[1]


def test_closures_are_chosen_and_kept_in_data() -> None:
    module = text(
        LIST
        + """
@plica.function
def pick(by: f32) -> Fn[(Tensor[(3,), f32],), Tensor[(3,), f32]]:
    def scaled(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
        return x * by

    def bent(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
        return x * x + by

    return scaled if by > 0.0 else bent

@plica.function(forall="A B")
def map(f: Fn[(A,), B], xs: List[A]) -> List[B]:
    match xs:
        case Nil():
            return Nil()
        case Cons(x, rest):
            return Cons(f(x), map(f, rest))

@plica.function
def main(xs: List[f32], x: Tensor[(3,), f32]) -> List[Tensor[(3,), f32]]:
    def twice(f: Fn[(Tensor[(3,), f32],), Tensor[(3,), f32]]) -> Tensor[(3,), f32]:
        return f(f(x))

    return map(twice, map(pick, xs))
"""
    )
    exe = compiled(module)
    value = build(module, "Nil")
    x = np.arange(3, dtype=np.float32)
    agree(exe, module, value, x)
    for number in (2.0, -1.0, 0.5):
        value = build(module, "Cons", np.asarray(number, np.float32), value)
        agree(exe, module, value, x)


def test_nested_patterns_come_to_the_first_clause_that_fits() -> None:
    module = text(
        LIST
        + """
@plica.function
def main(xs: List[i64], ys: List[i64]) -> i64:
    match (xs, ys):
        case (Nil(), Nil()):
            return i64(0)
        case (Cons(a, Cons(b, _)), Cons(c, Nil())):
            return a * 100 + b * 10 + c
        case (Cons(a, _), Nil()):
            return a
        case (_, Cons(c, Cons(d, rest))):
            return c - d + main(Nil(), rest)
        case (zs, _):
            match zs:
                case Nil():
                    return i64(-1)
                case Cons(a, _):
                    return a + 1000
"""
    )
    exe = compiled(module)

    def several(*numbers: int) -> DataValue:
        value = build(module, "Nil")
        for each in reversed(numbers):
            value = build(module, "Cons", np.int64(each), value)
        return value

    lists = [several(), several(3), several(4, 5), several(6, 7, 8)]
    for xs in lists:
        for ys in lists:
            agree(exe, module, xs, ys)


def test_what_several_branches_may_need_is_computed_at_most_once() -> None:
    module = text(
        """
@plica.function
def slow(n: i64) -> i64:
    return i64(1) if n <= 0 else slow(n - 1) + slow(n - 2)

@plica.function
def main(n: i64, a: bool_, b: bool_) -> tuple[i64, i64]:
    v = slow(n)
    w = slow(v)
    x = v + w if a else n
    y = w * 2 if b else n
    return x, y
"""
    )
    exe = compiled(module)
    for a in (False, True):
        for b in (False, True):
            agree(exe, module, np.int64(4), np.bool_(a), np.bool_(b))
    # Where nobody needs it, it is not computed: this would take for ever.
    assert exe(200, False, False) == (200, 200)


def test_an_index_outside_is_an_error() -> None:
    module = text(
        LIST
        + """
@plica.function
def main(xs: List[i64], t: Tensor[(3,), f32]) -> f32:
    match xs:
        case Nil():
            return f32(0.0)
        case Cons(x, rest):
            return op.take(t, x, axis=0) + main(rest, t)
"""
    )
    exe = compiled(module)
    t = np.arange(3, dtype=np.float32)
    good = build(module, "Cons", np.int64(2), build(module, "Nil"))
    agree(exe, module, good, t)
    with pytest.raises(EvaluationError) as caught:
        exe(build(module, "Cons", np.int64(3), good), t)
    assert caught.value.code == "index-out-of-bounds"
    assert exe(good, t) == 2.0


def test_a_match_that_fits_nothing_is_an_error() -> None:
    module = text(
        LIST
        + """
@plica.function
def main(xs: List[i64]) -> i64:
    match partial(xs):
        case Cons(x, Cons(y, _)):
            return x - y
"""
    )
    exe = compiled(module)
    with pytest.raises(EvaluationError) as caught:
        exe(build(module, "Nil"))
    assert caught.value.code == "match-failure"


def test_many_calls_take_no_more_memory() -> None:
    module = text(SUM)
    exe = compiled(module)
    exe(50)
    held = exe._states[0].held
    for _ in range(2_000):
        exe(50)
    assert len(exe._states) == 1
    assert exe._states[0].held == held


def test_threads_have_states_of_their_own() -> None:
    module = text(SUM)
    exe = compiled(module)
    found: list[int] = []

    def work() -> None:
        for n in range(100, 140):
            found.append(int(exe(n)) - n * (n + 1) // 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [0] * 160
    assert all(state.live == 0 for state in exe._states)


def test_inputs_that_do_not_fit_are_refused() -> None:
    module = text(TREE)
    exe = compiled(module)
    leaf = build(module, "Leaf", np.ones(4, np.float32))
    w = np.eye(4, dtype=np.float32)
    wrong = {
        "input-type": (3, w),
        "input-shape": (build(module, "Leaf", np.ones(5, np.float32)), w),
        "input-dtype": (build(module, "Leaf", np.ones(4, np.float64)), w),
        "input-missing": (leaf,),
        "input-unknown": (leaf, w, w),
    }
    for code, args in wrong.items():
        with pytest.raises(InputError) as caught:
            exe(*args)
        assert caught.value.code == code
    with pytest.raises(InputError, match="data type Tree"):
        exe(build(text(LIST + TREE), "Nil"), w)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("def main(f: Fn[(i64,), i64], n: i64) -> i64:\n    return f(n)", "function"),
        (
            "def loop(x: Tensor[('n',), f32], k: i64) -> Tensor[('n',), f32]:\n"
            "    return x if k == 0 else loop(x, k - 1)\n\n"
            "@plica.function\n"
            "def main(x: Tensor[('n',), f32], k: i64) -> Tensor[('n',), f32]:\n"
            "    return loop(x, k)",
            "symbolic dim",
        ),
    ],
)
def test_what_is_not_compiled_is_refused(source: str, word: str) -> None:
    with pytest.raises(UnsupportedError, match=word):
        compiled(text("@plica.function\n" + source + "\n"))


def test_a_function_hidden_in_an_input_is_refused() -> None:
    module = text(
        """
@plica.data
class Box:
    Box: (Fn[(i64,), i64],)

@plica.function
def main(b: Box) -> i64:
    match b:
        case Box(f):
            return f(i64(1))
"""
    )
    with pytest.raises(UnsupportedError, match="function is hidden"):
        compiled(module)


def test_tuning_is_for_static_programs(tmp_path: Any) -> None:
    from plica.search.record import Database

    with Database(tmp_path / "tune.db") as database, pytest.raises(UnsupportedError):
        plica.compile(text(TREE), database=database)


def test_sizes_are_settled_where_main_says_them() -> None:
    module = text(
        LIST
        + """
@plica.function
def total(xs: List[Tensor[("n",), f32]], start: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    match xs:
        case Nil():
            return start
        case Cons(x, rest):
            return total(rest, start + x)

@plica.function
def main(
    xs: List[Tensor[(3,), f32]], y: Tensor[(5,), f32]
) -> tuple[Tensor[(3,), f32], Tensor[(5,), f32]]:
    return total(xs, op.zeros(shape=(3,), dtype=f32)), total(Cons(y, Nil()), y)
"""
    )
    exe = compiled(module)
    xs = build(module, "Cons", np.ones(3, np.float32), build(module, "Nil"))
    agree(exe, module, xs, np.arange(5, dtype=np.float32))


def test_a_program_is_saved_and_loaded(tmp_path: Any) -> None:
    module = text(SUM.replace("-> i64:\n    return total(upto(n, Nil()), i64(0))", KEPT))
    exe = compiled(module)
    path = tmp_path / "list.plica"
    exe.save(path)
    again = plica.load(path)
    assert isinstance(again, DynamicExecutable)
    found = again(2)
    assert (found.name, found.index) == ("Cons", 1)
    assert [int(each) for each in (found.fields[0], found.fields[1].fields[0])] == [1, 2]
    assert repr(found) == "Cons(...)"
    with pytest.raises(UnsupportedError, match="not profiled"):
        exe.profile(2)


KEPT = "-> List[i64]:\n    return upto(n, Nil())"


def test_sizes_of_a_call_are_settled_then() -> None:
    module = text(
        """
@plica.function
def loop(x: Tensor[("n",), f32], k: i64) -> Tensor[("n",), f32]:
    return x if k <= 0 else loop(x * 2.0, k - 1)

@plica.function
def main(x: Tensor[("n",), f32], k: i64) -> Tensor[("n",), f32]:
    return loop(x, k)
"""
    )
    exe: Any = plica.compile(module)
    assert exe(np.ones(3, np.float32), 2).tolist() == [4.0] * 3
    assert exe(np.ones(1, np.float32), 3).tolist() == [8.0]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm"])
def test_rows_are_kernels_of_several_stages(name: str) -> None:
    given = "x, const([1.0, 2.0, 3.0], f32), const([0.5, 0.5, 0.5], f32)"
    args = given if name == "layer_norm" else "x"
    program = text(f"""
@plica.function
def main(x: Tensor[(2, 3), f32]) -> Tensor[(2, 3), f32]:
    return nn.{name}({args})
""")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    agree(compiled(program), program, x, tolerance=1e-5)
