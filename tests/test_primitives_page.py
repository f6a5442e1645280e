"""docs/primitives.md: every primitive of schedules, its preconditions, and an example."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any, Final

import pytest

import plica
from plica.ir.loop.intrinsic import find_intrinsic, intrinsic
from plica.ir.text.show.kernel import show_kernel
from plica.schedule import replay, trace_of
from plica.schedule.instruction import Instruction, kinds
from plica.schedule.replay import kernel_of
from tests.schedule.test_page import text_of

PAGE = Path(__file__).parents[1] / "docs" / "primitives.md"
HEAD: Final = """# Primitives

After this page you can use every primitive of `plica.schedule`: its effect before and after, its
preconditions, and an example. [Schedules](schedule.md) explains do-blocks and traces.

```py
@do
def tiled():
    c = yield block("C")
    i, j, k = yield loops(c)              # c, i, j, k are handles
    i0, i1 = yield split(i, (None, 4))
```

`pytest tests/test_primitives_page.py --update-golden` generates this page and runs its examples.

The examples schedule these kernels:

"""
SCRIPT: Final = """import plica
from plica.script import Buffer, alloc, block, f32, f64, grid, init

"""
KERNELS: Final = {
    "matmul": """@plica.kernel
def matmul(A: Buffer[(8, 8), f32], B: Buffer[(8, 8), f32], C: Buffer[(8, 8), f32]):
    for i, j, k in grid(8, 8, 8):
        with block("C", spatial=(i, j), reduce=(k,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[k, j]
""",
    "chain": """@plica.kernel
def chain(A: Buffer[(10,), f32], C: Buffer[(8,), f32]):
    B = alloc(Buffer[(10,), f32])
    for i in range(10):
        with block("B", spatial=(i,)):
            B[i] = A[i] * 2.0
    for j in range(8):
        with block("C", spatial=(j,)):
            C[j] = B[j] + 1.0
""",
    "same": """@plica.kernel
def same(A: Buffer[(8,), f32], C: Buffer[(8,), f32]):
    B = alloc(Buffer[(8,), f32])
    for i in range(8):
        with block("B", spatial=(i,)):
            B[i] = A[i] * 2.0
    for j in range(8):
        with block("C", spatial=(j,)):
            C[j] = B[j] + 1.0
""",
    "padded": """@plica.kernel
def padded(x: Buffer[(6,), f32], P: Buffer[(8,), f32]):
    for i in range(8):
        with block("P", spatial=(i,)):
            P[i] = x[i - 1] if 1 <= i and i < 7 else 0.0
""",
    "packed": """@plica.kernel
def packed(W: Buffer[(4, 10), f32], P: Buffer[(10, 4), f32]):
    for k, v in grid(10, 4):
        with block("P", spatial=(k, v)):
            P[k, v] = W[v, k]
""",
    "widened": """@plica.kernel
def widened(A: Buffer[(4, 8), f32], C: Buffer[(4,), f64]):
    B = alloc(Buffer[(4,), f64])
    for i, k in grid(4, 8):
        with block("B", spatial=(i,), reduce=(k,)):
            with init():
                B[i] = 0.0
            B[i] += f64(A[i, k])
    for i in range(4):
        with block("C", spatial=(i,)):
            C[i] = B[i] * 2.0
""",
    "window": """@plica.kernel
def window(A: Buffer[(9,), f32], C: Buffer[(4, 3), f32]):
    for i, j in grid(4, 3):
        with block("C", spatial=(i, j)):
            C[i, j] = A[i * 2 + j]
""",
}
WORDS: Final = "from plica.schedule import *\nfrom plica.ir.loop.index_map import index_map\n"
TWICE: Final = kernel_of(
    plica.from_text(
        SCRIPT
        + """@plica.kernel
def twice(A: Buffer[(8,), f32], B: Buffer[(8,), f32]):
    for i in range(8):
        with block("B", spatial=(i,)):
            B[i] = A[i] * 2.0
"""
    )
)[2]
if find_intrinsic("doc.twice8") is None:
    intrinsic("doc.twice8", TWICE)
C, B = 'c = yield block("C")\n', 'b = yield block("B")\n'
IJK = C + "i, j, k = yield loops(c)\n"
J = C + "(j,) = yield loops(c)\n"
TILE = IJK + "i0, i1 = yield split(i, (None, 4))\n"

EXAMPLES: Final[dict[str, tuple[str, str]]] = {
    "add_unit_loop": ("chain", C + "u = yield add_unit_loop(c)"),
    "annotate": ("matmul", IJK + 'yield annotate(i, "unroll_explicit", True)'),
    "bind": ("matmul", IJK + 'yield bind(i, "blockIdx.x")\nyield bind(j, "threadIdx.x")'),
    "block": ("matmul", 'c = yield block("C")'),
    "blockize": ("matmul", TILE + "yield reorder(i0, i1, j, k)\ntile = yield blockize(i1)"),
    "cache_inplace": (
        "matmul", IJK + 'yield decompose_reduction(c, i)\nyield cache_inplace(c, 0, "local")',
    ),
    "cache_read": ("matmul", C + 'a = yield cache_read(c, 0, "shared")'),
    "cache_write": ("matmul", C + 'out = yield cache_write(c, 0, "local")'),
    "child_blocks": (
        "matmul", TILE + "yield reorder(i0, i1, j, k)\ntile = yield blockize(i1)\n"
        "(inner,) = yield child_blocks(tile)",
    ),
    "compute_at": ("chain", B + J + "j0, j1 = yield split(j, (None, 4))\nyield compute_at(b, j0)"),
    "compute_inline": ("chain", B + "yield compute_inline(b)"),
    "consumers": ("chain", B + "(c,) = yield consumers(b)"),
    "decompose_padding": (
        "padded", 'p = yield block("P")\n(i,) = yield loops(p)\nf = yield decompose_padding(p, i)',
    ),
    "decompose_reduction": ("matmul", IJK + "start = yield decompose_reduction(c, k)"),
    "enter_postproc": ("matmul", IJK + "yield enter_postproc()\nyield unroll(k)"),
    "fuse": ("matmul", IJK + "ij = yield fuse(i, j)"),
    "loop_partition": ("chain", J + "first, rest = yield loop_partition(j, (2, None))"),
    "loops": ("matmul", C + "i, j, k = yield loops(c)"),
    "merge_loops": (
        "same", B + C + "(i,) = yield loops(b)\n(j,) = yield loops(c)\nyield merge_loops(i, j)",
    ),
    "narrow_sum": ("widened", B + "yield narrow_sum(b)"),
    "output_blocks": ("chain", "(c,) = yield output_blocks()"),
    "overlap_split": ("same", B + "(i,) = yield loops(b)\nyield overlap_split(i, 3)"),
    "pad_einsum": ("matmul", C + "yield pad_einsum(c, (16, 1, 1))"),
    "pad_fold": ("matmul", IJK + "yield pad_fold(k, 16)"),
    "parallel": ("matmul", IJK + "yield parallel(i)"),
    "peel_init": ("matmul", IJK + "first = yield peel_init(c, k)"),
    "producers": ("chain", C + "(b,) = yield producers(c)"),
    "read_at": ("matmul", IJK + 'yield read_at(i, c, 0, "local")'),
    "reader_loop": ("chain", B + "j = yield reader_loop(b, 0)\nyield compute_at(b, j)"),
    "reindex": ("window", C + 'yield reindex(c, "read", 0)'),
    "reorder": ("matmul", IJK + "yield reorder(k, i, j)"),
    "reorder_block_iter_var": ("matmul", C + "yield reorder_block_iter_var(c, (1, 0, 2))"),
    "reverse_compute_at": (
        "same", C + B + "(i,) = yield loops(b)\nyield reverse_compute_at(c, i)",
    ),
    "reverse_compute_inline": ("same", C + "yield reverse_compute_inline(c)"),
    "rfactor": ("matmul", IJK + "k0, k1 = yield split(k, (None, 4))\npart = yield rfactor(k1, 0)"),
    "sample_categorical": (
        "matmul", IJK + "n = yield sample_categorical((2, 4, 8))\nyield split(i, (None, n))",
    ),
    "sample_compute_location": (
        "chain", B + "n = yield sample_compute_location(b)\nj = yield reader_loop(b, n)\n"
        "yield compute_at(b, j)",
    ),
    "sample_partitioned_tile": (
        "matmul", IJK + "yield split(i, (yield sample_partitioned_tile(i, 2, 1, 4)))",
    ),
    "sample_perfect_tile": ("matmul", IJK + "yield split(i, (yield sample_perfect_tile(i, 2)))"),
    "sample_tile": ("matmul", IJK + "yield split(i, sample_tile(2, max_inner=4))"),
    "sample_tuple": (
        "matmul", IJK + "m, n = yield sample_tuple(((2, 8), (4, 4)))\nyield split(i, (None, m))\n"
        "yield split(j, (None, n))",
    ),
    "set_scope": ("chain", B + 'yield set_scope(b, 0, "local")'),
    "split": ("matmul", IJK + "i0, i1 = yield split(i, (None, 4))"),
    "storage_align": ("chain", B + "yield storage_align(b, 0, 0, 8, 1)"),
    "tensorize": ("same", B + '(i,) = yield loops(b)\nyield tensorize(i, "doc.twice8")'),
    "transform_block_layout": (
        "matmul", C + "yield transform_block_layout(c, index_map(lambda i, j, k: (i * 8 + j, k)))",
    ),
    "transform_layout": (
        "same", B + 'yield transform_layout(b, "write", 0, index_map(lambda i: (i // 4, i % 4)))',
    ),
    "transpose_tile": (
        "packed", 'p = yield block("P")\nk, v = yield loops(p)\nyield transpose_tile(p, k, v)',
    ),
    "unannotate": (
        "matmul", IJK + 'yield annotate(i, "unroll_explicit", True)\n'
        'yield unannotate(i, "unroll_explicit")',
    ),
    "unroll": ("matmul", IJK + "yield unroll(k)"),
    "vectorize": ("matmul", IJK + "yield reorder(i, k, j)\nyield vectorize(j)"),
    "write_at": ("matmul", IJK + 'yield write_at(j, c, 0, "local")'),
}  # fmt: skip


def primitives() -> list[str]:
    """The names that a do-block may yield."""
    from plica.schedule import primitive

    return sorted({*primitive.__all__} & {*plica.schedule.__all__})


def kind_of(name: str) -> type[Instruction]:
    """The instruction of a primitive; of a tile for `split`, that for any loop."""
    return kinds()["sample_perfect_tile" if name == "sample_tile" else name]


def made(name: str) -> str:
    """The kernel after the example of a primitive."""
    kernel, body = EXAMPLES[name]
    source = f"@do\ndef schedule():\n{indent(body, '    ')}\n"
    space: dict[str, Any] = {}
    exec(f"{WORDS}{source}", space)
    program = plica.from_text(SCRIPT + KERNELS[kernel])
    return show_kernel(kernel_of(replay(trace_of(space["schedule"], program), program))[2], kernel)


def entry(name: str) -> str:
    """A primitive on the page."""
    kernel, body = EXAMPLES[name]
    about, _, rest = text_of(kind_of(name), name).partition("\n")
    about = about[:1].upper() + about[1:]
    return (
        f"## {name}\n\n{about}\n{rest.rstrip()}\n\n"
        f"Example, on `{kernel}`:\n\n```py\n{body}\n```\n\n"
        f"The result:\n\n```py\n{made(name)}\n```\n"
    )


def test_every_primitive_has_an_example() -> None:
    assert sorted(EXAMPLES) == primitives()


def test_the_page_is_what_the_primitives_do(request: pytest.FixtureRequest) -> None:
    kernels = "".join(f"```py\n{text}```\n\n" for text in KERNELS.values())
    text = HEAD + kernels + "\n".join(entry(name) for name in primitives())
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
