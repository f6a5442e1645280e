"""Kernels in text: print then read, every construct, every refusal with its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import plica
from plica.core.diagnostic import ScriptError
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.generate.loop import block_kernels
from plica.ir.graph.expression import Apply, Call, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import Add, Buffer, Cast, Lit, Load, Lt, Reduce, Scalar, ScalarVar, Select
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Barrier,
    Bind,
    Block,
    Branch,
    For,
    Invoke,
    Kernel,
    Region,
    Seq,
    Stmt,
    Store,
    While,
    block,
    written,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.script import ScriptedKernel, from_text
from plica.ir.text.show import show_kernel, show_module
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f16, f32, i32, i64
from plica.ir.type.term import tensor
from tests.conftest import Golden
from tests.scripts import kernel as live
from tests.strategies import kernels

HEAD = "@plica.kernel\n"
MATMUL = """
@plica.kernel
def matmul(A: Buffer[("m", "k"), f32], B: Buffer[("k", "n"), f32], C: Buffer[("m", "n"), f32]):
    for i, j, l in grid(m, n, k):
        with block("C", spatial=(i, j), reduce=(l,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, l] * B[l, j]
"""


def read(text: str) -> Kernel:
    """The only kernel of a text."""
    (found,) = from_text(text, "f.py").values
    assert isinstance(found, Kernel)
    return found


def body(*lines: str, params: str = 'x: Buffer[("n",), f32], y: Buffer[("n",), f32]') -> Stmt:
    """The statements of a kernel with these lines."""
    inside = "".join(f"    {line}\n" for line in lines)
    return read(f"{HEAD}def f({params}):\n{inside}").body


def check_round_trip(kernel: Kernel) -> None:
    text = show_kernel(kernel)
    again = read(text)
    assert digest(again) == digest(kernel)
    assert show_kernel(again) == text


# --- laws -----------------------------------------------------------------------------------------


@given(kernels())
def test_loops_read_back(kernel: Kernel) -> None:
    check_round_trip(kernel)


@given(block_kernels())
def test_blocks_read_back(kernel: Kernel) -> None:
    check_round_trip(kernel)


@given(block_kernels(depth=2), kernels())
def test_a_module_of_kernels_and_functions_reads_back(one: Kernel, two: Kernel) -> None:
    x = Var(Name("x"), tensor((), "f32"))
    names = {each: Var(Name(each), None) for each in ("exp", "block", "main")}
    function = Function((), (), (x,), None, x)
    for main in (None, names["exp"], names["main"]):
        of = module({names["exp"]: one, names["block"]: two, names["main"]: function}, main)
        check_module(of)
    check_module(module({names["exp"]: one, names["block"]: two}, names["exp"]))
    check_module(module({names["exp"]: one}))


def check_module(of: Module) -> None:
    of = from_text(str(of))  # with types
    source = show_module(of)
    again = from_text(source.text, "f.py", source.constants)
    assert digest(again) == digest(of)
    assert show_module(again).text == source.text


def loops(depth: int, inside: Stmt) -> Stmt:
    for number in range(depth):
        inside = For(axis("i", number), Lit(2, i64), "parallel", inside)
    return inside


def deep_kernels() -> dict[str, Kernel]:
    x, out = buffer("x", (2,), f32), buffer("out", (2,), f32)
    zero = Lit(0, i64)
    doubled: Scalar = x[0]
    for _ in range(60):
        doubled = doubled + doubled
    summed: Scalar = x[0]
    for _ in range(5_000):
        summed = summed * 2
    k = axis("k")
    inner: Scalar = x[k]
    for _ in range(60):
        inner = inner + inner
    allocated: Stmt = Store(out, (zero,), x[0])
    for number in range(3_000):
        allocated = Alloc(Buffer(Name("t", number), (), f32), allocated)
    chosen: Stmt = NOTHING
    grouped: Stmt = NOTHING
    for number in range(300):
        chosen = Branch(Lt(x[0], Lit(float(number), f32)), NOTHING, chosen)
        grouped = Seq((grouped,))
    bodies = {
        "loops": loops(3_000, Store(out, (zero,), x[0])),
        "doubled": Store(out, (zero,), doubled),
        "summed": Store(out, (zero,), summed),
        "inside a reduction": Store(out, (zero,), Reduce("sum", (k,), (Lit(2, i64),), inner)),
        "allocated": allocated,
        "chosen": chosen,
        "grouped": grouped,
    }
    return {name: Kernel((), (x, out), 1, each) for name, each in bodies.items()}


@pytest.mark.parametrize("name", deep_kernels())
def test_deep_and_shared_kernels_read_back(name: str) -> None:
    check_round_trip(deep_kernels()[name])


# --- the text -------------------------------------------------------------------------------------


def everything() -> Kernel:
    n, i, v, t, k = dim_var("n"), axis("i"), axis("vi"), ScalarVar(Name("t"), f32), axis("k")
    x, y = buffer("x", (n, 4), f32), buffer("y", (n,), f32)
    local = Buffer(Name("tile"), (Lit(4, i64), n), f16, "shared", (n + 1, Lit(1, i64)), 64)
    total = Reduce("max", (k,), (Lit(4, i64),), x[i, k])
    inside = Block(
        Name("C"), (v,), (n,), ("spatial",), (i * 4 + 1,), Lt(i, n), Store(y, (v,), Lit(0.0, f32)),
        Store(y, (v,), Add(Load(y, (v,)), x[v, 0])),
        (Region(x, (v, Lit(0, i64)), (Lit(1, i64), Lit(4, i64))),),
        (Region(y, (v,), (Lit(1, i64),)),), (("tile", (4, 4)),),
    )  # fmt: skip
    stmts: list[Stmt] = [
        For(i, n, "threadIdx.x", inside),
        For(i, n, "unrolled", Store(y, (i,), total), (("explicit", True),)),
        Branch(Lt(n, Lit(3, i64)), Barrier("shared"), While(Lt(y[0], Lit(1.0, f32)), NOTHING)),
        Bind(t, x[0, 0], Store(y, (Lit(0, i64),), t)),
        Invoke("copy", (Region(x, (n, Lit(0, i64)), (Lit(1, i64), n)), n)),
        Alloc(local, Store(local, (Lit(0, i64), n), Cast(Select(Lt(n, n), y[0], y[1]), f16))),
    ]
    return Kernel((n,), (x, y), 1, Seq(tuple(stmts)))


def test_every_statement(golden: Golden) -> None:
    text = show_kernel(everything(), "everything")
    check_round_trip(everything())
    golden(f"{text}\n\n\n{show_kernel(read(MATMUL), 'matmul')}", "kernel_text")


def test_the_short_form_of_a_block_binds_loops() -> None:
    found = read(MATMUL)
    assert found.inputs == 2
    assert [str(each.name) for each in found.dims] == ["m", "k", "n"]
    m, k, n = found.dims
    a, b, c = found.params
    i, j, l = axis("i"), axis("j"), axis("l")  # noqa: E741  # as the kernel has them
    vi, vj, vl = axis("vi"), axis("vj"), axis("vl")
    add = Store(c, (vi, vj), Add(c[vi, vj], a[vi, vl] * b[vl, vj]))
    zero = Store(c, (vi, vj), Lit(0.0, f32))
    whole: Stmt = block("C", (vi, vj, vl), (m, n, k), "ssr", (i, j, l), add, zero)
    for var, extent in ((l, k), (j, n), (i, m)):
        whole = For(var, extent, "serial", whole)
    assert found.body is whole


def test_a_loop_may_have_the_name_of_a_dim() -> None:
    found = body("for n in range(n):", "    y[n] = x[n]")
    (n,) = read(f"{HEAD}{LINE}    y[0] = x[0]\n").dims
    assert isinstance(found, For)
    assert found.extent is n
    assert found.var.name == Name("n", 1)


def test_numbers_take_the_dtype_beside_them() -> None:
    half = 'x: Buffer[("n",), f16], y: Buffer[("n",), f16]'
    found = body("y[0] = 2 * x[0]", params=half)
    assert isinstance(found, Store)
    assert found.value is Lit(2.0, f16) * found.value.right  # type: ignore[attr-defined]
    assert body("t = 2", "y[0] = 1", params=half) is Bind(
        ScalarVar(Name("t"), i64), Lit(2, i64), body("y[0] = 1.0", params=half)
    )
    assert body("y[0] = f16(i64(2))", params=half).value is Cast(Lit(2, i64), f16)  # type: ignore[union-attr]


def test_comparisons_chain_and_turn_around() -> None:
    chain = body("if 0 <= n < 4:", "    y[0] = x[0]")
    twice = body("if 0 <= n and n < 4:", "    y[0] = x[0]")
    assert chain is twice
    assert body("if n > 4:", "    y[0] = x[0]") is body("if 4 < n:", "    y[0] = x[0]")


def test_a_region_may_be_a_whole_buffer_or_a_difference() -> None:
    found = body("invoke('f', x, x[n:n * 2], x[2:6])", "y[0] = 0")
    assert isinstance(found, Seq)
    (invoke, _) = found.stmts
    assert isinstance(invoke, Invoke)
    whole, part, four = invoke.operands
    assert isinstance(whole, Region)
    assert isinstance(part, Region)
    assert isinstance(four, Region)
    n = whole.extents[0]
    assert whole.starts == (Lit(0, i64),)
    assert part.extents == (n * 2 - n,)
    assert four.extents == (Lit(4, i64),)


def test_a_shared_term_is_not_captured() -> None:
    found = body(
        "for i in range(n):", "    _0 = x[i]", "    for i in range(4):", "        y[i] = _0"
    )
    assert isinstance(found, For)
    assert isinstance(found.body, For)
    assert isinstance(found.body.body, Store)
    assert isinstance(found.body.body.value, Load)
    assert found.body.body.value.indices == (found.var,)


def test_outputs_are_what_is_written() -> None:
    x, y, t = buffer("x", (2,), f32), buffer("y", (2,), f32), Lit(0, i64)
    inner = Alloc(x, Store(x, (t,), Lit(1.0, f32)))
    assert written(inner, (x, y)) == []
    assert written(Seq((inner, Store(y, (t,), Lit(1.0, f32)))), (x, y)) == [y]
    check_round_trip(Kernel((), (x, y), 2, inner))


# --- running --------------------------------------------------------------------------------------


def test_a_kernel_is_the_main_of_a_module_of_kernels() -> None:
    a, b = np.arange(6, dtype="f4").reshape(2, 3), np.ones((3, 2), "f4")
    of = from_text(MATMUL)
    assert np.array_equal(plica.interpret(of, a, B=b), a @ b)
    with pytest.raises(plica.InputError, match="'B'"):
        plica.interpret(of, a, np.ones((4, 2), "f4"))
    assert np.array_equal(np.asarray(plica.compile(of)(a, b)), a @ b)


def test_live_kernels_run_and_are_called_by_functions() -> None:
    x = np.arange(4, dtype="f4")
    assert isinstance(live.scale, ScriptedKernel)
    assert live.scale.kernel.inputs == 1
    assert repr(live.scale) == "<plica kernel scale>"
    assert np.array_equal(plica.interpret(live.scale, x), x * 4)
    assert np.array_equal(plica.interpret(live.scaled, x), x * 4 + 1)
    body = live.scaled.module.main_function().body
    assert isinstance(body, Apply)
    assert isinstance(body.args[0], Call)
    text = str(live.scaled)
    assert digest(from_text(text)) == digest(live.scaled.module)
    assert digest(live.scaled) == digest(live.scaled.module)
    with pytest.raises(TypeError, match="Terms and scripts have a digest"):
        digest(3)  # type: ignore[arg-type]
    assert np.array_equal(live.scale(x), plica.interpret(live.scale, x))
    with pytest.raises(TypeError, match="marks functions"):
        plica.kernel(3)  # type: ignore[call-overload]


def test_words_have_no_meaning_outside_kernels() -> None:
    from plica import script

    with pytest.raises(ScriptError, match=r"grid\(\.\.\.\) has a meaning inside scripts only"):
        script.grid(3)  # type: ignore[attr-defined]
    assert repr(script.exp) == "<plica word exp>"  # type: ignore[attr-defined]
    assert script.Buffer[(3,), f32] == ((3,), f32)


# --- refusals -------------------------------------------------------------------------------------

LINE = 'def f(x: Buffer[("n",), f32], y: Buffer[("n",), f32]):\n'

LOOP = "for i in range(n):\n        "

# fmt: off
STATEMENTS = [
    ("unbound-name",       "3:12", "y[0] = z[0]"),
    ("unbound-name",       "3:5",  "z[0] = x[0]"),
    ("unbound-name",       "3:12", "y[0] = z"),
    ("unbound-name",       "3:12", "y[0] = expp(x[0])"),
    ("wrong-arity",        "3:12", "y[0] = x[0, 1]"),
    ("wrong-arity",        "3:5",  "y[0, 1] = x[0]"),
    ("wrong-arity",        "3:12", "y[0] = exp(x[0], x[1])"),
    ("wrong-arity",        "3:12", "y[0] = min(x[0])"),
    ("wrong-arity",        "3:14", "for i in range(2, n): pass"),
    ("wrong-arity",        "3:17", "for i, j in grid(n): pass"),
    ("wrong-arity",        "3:35", "t = alloc(Buffer[(4, 4), f32, strides(1)])"),
    ("type-conflict",      "3:12", "y[0] = x"),
    ("type-conflict",      "3:5",  "n[0] = x[0]"),
    ("dtype-conflict",     "3:12", "y[0] = n"),
    ("dtype-conflict",     "3:12", "y[0] = x[0] + n"),
    ("dtype-conflict",     "3:7",  "y[x[0]] = x[0]"),
    ("dtype-conflict",     "3:8",  "if n: pass"),
    ("dtype-conflict",     "3:20", "y[0] = x[0] if n / 2 < 1 else x[1]"),
    ("dtype-conflict",     "3:16", "y[0] = f32(exp(n))"),
    ("dtype-conflict",     "3:20", "for i in range(x[0]): pass"),
    ("bad-constant",       "3:12", "t = i8(300)"),
    ("bad-constant",       "3:9",  "t = n + 0.5"),
    ("bad-constant",       "3:12", "y[0] = True"),
    ("duplicate-name",     "4:9",  "for i in range(n):\n        i = 3"),
    ("duplicate-name",     "3:5",  "x = 3"),
    ("duplicate-name",     "4:5",  "t = 3\n    t = t + 1"),
    ("duplicate-name",     "4:5",  "t = 3\n    t += 1"),
    ("duplicate-name",     "4:51", LOOP + 'with block("C", i=spatial(n, i), spatial=(i,)): pass'),
    ("unbound-name",       "3:30", 'with block("C", spatial=(i,)): pass'),
    ("unsupported-syntax", "4:34", LOOP + 'with block("C", spatial=(i + 1,)): pass'),
    ("unknown-attribute",  "3:21", 'with block("C", sptial=(n,)): pass'),
    ("unsupported-syntax", "3:10", "with block(spatial=(n,)): pass"),
    ("unsupported-syntax", "3:5",  "with init(): pass"),
    ("unsupported-syntax", "3:10", "with open(): pass"),
    ("unsupported-syntax", "3:10", "with let(): pass"),
    ("unsupported-syntax", "3:5",  "reads(x[0])"),
    ("unsupported-syntax", "3:5",  "exp(x[0])"),
    ("unsupported-syntax", "3:5",  "return x[0]"),
    ("unsupported-syntax", "3:14", "for i in x: pass"),
    ("unsupported-syntax", "3:9",  "for i, i in grid(n, n): pass"),
    ("unsupported-syntax", "3:21", 'for i in thread("warp", n): pass'),
    ("unsupported-syntax", "3:30", "for i in range(n, unroll=n): pass"),
    ("unsupported-syntax", "3:36", "for i in range(n, annotations={1: 2}): pass"),
    ("unsupported-syntax", "3:12", "y[0] = x[0:4]"),
    ("unsupported-syntax", "3:7",  "y[0:4] = x[0]"),
    ("unsupported-syntax", "3:19", 'invoke("f", x[0::2])'),
    ("unsupported-syntax", "3:12", "y[0] = ~x[0]"),
    ("unsupported-syntax", "3:12", "y[0] = x[0] @ x[0]"),
    ("unsupported-syntax", "3:12", "y[0] = grid"),
    ("unsupported-syntax", "3:12", "y[0] = grid(n)"),
    ("unsupported-syntax", "3:12", "y[0] = x.sum()"),
    ("unsupported-syntax", "3:12", "y[0] = exp(value=x[0])"),
    ("unsupported-syntax", "3:15", "t = alloc(Tensor[(4,), f32])"),
    ("unsupported-syntax", "3:9",  "t = alloc(4, 4)"),
    ("unsupported-syntax", "3:33", "t = alloc(Buffer[(4,), f32, 3])"),
    ("unbound-name",       "3:28", "t = alloc(Buffer[(4,), f33])"),
    ("cyclic-data",        "4:9",  "def _0():\n        _0()\n    _0()"),
]
KERNELS = [
    ("kernel-output",      "2:31", LINE + "    x[0] = y[0]\n"),
    ("unsupported-syntax", "2:7",  "def f(x):\n    pass\n"),
    ("unsupported-syntax", "2:10", "def f(x: f32):\n    pass\n"),
    ("unsupported-syntax", "2:12", "def f() -> f32:\n    pass\n"),
    ("unsupported-syntax", "2:8",  "def f(*x):\n    pass\n"),
    ("unsupported-syntax", "2:18", 'def f(x: Buffer[("n n",), f32]):\n    pass\n'),
    ("duplicate-name",     "2:7",  'def f(n: Buffer[("n",), f32]):\n    pass\n'),
]
# fmt: on


def refused(text: str) -> list[tuple[str, str]]:
    with pytest.raises(ScriptError) as caught:
        from_text(text, "f.py")
    return [(each.code, str(each.place)) for each in caught.value.diagnostics]


@pytest.mark.parametrize(("code", "place", "text"), STATEMENTS)
def test_what_is_wrong_is_said_with_its_place(code: str, place: str, text: str) -> None:
    assert refused(f"{HEAD}{LINE}    {text}\n") == [(code, f"f.py:{place}")]


@pytest.mark.parametrize(("code", "place", "text"), KERNELS)
def test_a_kernel_is_refused_with_its_place(code: str, place: str, text: str) -> None:
    assert refused(f"{HEAD}{text}") == [(code, f"f.py:{place}")]


def test_options_are_refused() -> None:
    rest = f"{LINE}    pass\n"
    assert refused(f"@plica.kernel(inline=True)\n{rest}") == [("unknown-attribute", "f.py:1:15")]
    assert refused(f"@plica.kernel(inputs=9)\n{rest}") == [("unknown-attribute", "f.py:1:15")]
    stores = f"@plica.kernel(inputs=1)\n{LINE}    x[0] = y[0]\n"
    assert refused(stores) == [("kernel-output", "f.py:2:7")]
    both = f"@plica.kernel\n@staticmethod\n{rest}"
    assert refused(both) == [("unsupported-syntax", "f.py:2:2")]


def test_a_suggestion_says_what_may_be_meant() -> None:
    def hint(text: str) -> str | None:
        with pytest.raises(ScriptError) as caught:
            from_text(f"{HEAD}{LINE}    {text}\n")
        return caught.value.diagnostics[0].suggestion

    assert "parallel" in (hint("y[0] = paralel(n)") or "")
    assert "f32(n)" in (hint("y[0] = n") or "")
    assert "//" in (hint("t = n / 2") or "")


def test_all_that_is_wrong_is_reported_together() -> None:
    text = f"{HEAD}{LINE}    y[0] = z[0]\n    for i in range(n):\n        y[i] = q + x[0, 1]\n"
    assert [code for code, _ in refused(text)] == ["unbound-name", "unbound-name", "wrong-arity"]


def test_dtypes_of_lets() -> None:
    found = body("t = x[0]", "with let(i32(3)) as u:", "    y[0] = t * f32(u)", "y[1] = t")
    assert isinstance(found, Bind)
    assert found.var.dtype is f32
    assert isinstance(found.body, Seq)
    assert isinstance(found.body.stmts[0], Bind)
    assert found.body.stmts[0].var.dtype is i32


def test_loops_say_how_wide_their_variables_are() -> None:
    n = dim_var("n")
    y = buffer("y", (n,), i64)
    narrow, wide = ScalarVar(Name("i"), i32), axis("j")
    for var, extent, said in (
        (narrow, Lit(8, i32), "range(i32(8))"),
        (narrow, Lit(8, i64), "range(8, bits=32)"),
        (narrow, n, "range(n, bits=32)"),
        (wide, Lit(8, i32), "range(i32(8), bits=64)"),
        (wide, n, "range(n)"),
    ):
        loop = For(var, extent, "serial", Store(y, (var,), Lit(1, i64)))
        kernel = Kernel((n,), (y,), 0, loop)
        assert f"in {said}:" in show_kernel(kernel)
        check_round_trip(kernel)
    with pytest.raises(ScriptError, match="Loops do not count so"):
        read(show_kernel(kernel).replace("range(n)", "range(n, bits=7)"))
