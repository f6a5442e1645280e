# ruff: noqa: E501  # rows of a table
"""Sizes, bounds, steps and counts that a torch program computes from open sizes, beside torch.

Each row is a function of `x`, whose first axis has the open size n, and `y`, whose first axis has
the open size m.  It is exported once without assumptions about 0 and 1, compiled once, and called
at all sizes of a small domain.  Where the exported program itself, with its guards, accepts a
call, the compiled one must give what eager torch gives.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import attrs
import numpy as np
import pytest

import plica

torch = pytest.importorskip("torch")
F = torch.nn.functional
from tests.deep import spread  # noqa: E402  # torch may be absent
from tests.frontend.torch.test_by_value import Model  # noqa: E402

Function = Callable[[Any, Any], Any]
SIZES_OF_X: Final = (0, 1, 2, 3, 5, 8)
SIZES_OF_Y: Final = (0, 1, 2, 4, 7)
EXPORTED_AT: Final = (5, 4)
ROWS_PER_RUN: Final = 20
"""Rows in every run, over all sizes; the rest are slow."""


@attrs.frozen
class Row:
    """A function of x and y, with the sizes of their axes after the first."""

    name: str
    function: Function
    x: tuple[int, ...] = ()
    y: tuple[int, ...] = ()
    at: tuple[int, int] = EXPORTED_AT
    of: str = "float32"

    def inputs(self, n: int, m: int) -> tuple[Any, Any]:
        return self._drawn(n, *self.x), self._drawn(m, *self.y) * 2

    def _drawn(self, *shape: int) -> Any:
        count = int(np.prod(shape))
        values = torch.arange(count) * 5 % 7 + 1
        return values.reshape(shape).to(getattr(torch, self.of))


def n_of(x: Any) -> Any:
    """The open size, as a number of the program."""
    return x.shape[0]


SLICES: Final = (
    Row("x[-m:]", lambda x, y: x[-n_of(y) :]),
    Row("x[:-m]", lambda x, y: x[: -n_of(y)]),
    Row("x[m:]", lambda x, y: x[n_of(y) :]),
    Row("x[:m]", lambda x, y: x[: n_of(y)]),
    Row("x[m - 3:]", lambda x, y: x[n_of(y) - 3 :]),
    Row("x[:m - 3]", lambda x, y: x[: n_of(y) - 3]),
    Row("x[m - 4:m]", lambda x, y: x[n_of(y) - 4 : n_of(y)]),
    Row("x[m:-m]", lambda x, y: x[n_of(y) : -n_of(y)]),
    Row("x[n - m:]", lambda x, y: x[n_of(x) - n_of(y) :]),
    Row("x[:n - m]", lambda x, y: x[: n_of(x) - n_of(y)]),
    Row("x[n // 2:]", lambda x, y: x[n_of(x) // 2 :] * 2),
    Row("x[::2]", lambda x, y: x[::2]),
    Row("x[m::2]", lambda x, y: x[n_of(y) :: 2]),
    Row("x[-m::3]", lambda x, y: x[-n_of(y) :: 3]),
    Row("x[1:-1:2]", lambda x, y: x[1:-1:2]),
    Row("x[:, -m:]", lambda x, y: x[:, -n_of(y) :], x=(4,)),
    Row("x[::m + 1]", lambda x, y: x[:: n_of(y) + 1]),
    Row("sum(x[-m:])", lambda x, y: x[-n_of(y) :].sum()),
    Row("x[-m:] + x[-m:]", lambda x, y: x[-n_of(y) :].exp() + x[-n_of(y) :]),
    Row("softmax of x[:, m:]", lambda x, y: x[:, n_of(y) :].softmax(1), x=(5,)),
    Row("product of x[:m]", lambda x, y: x[: n_of(y)] @ x[: n_of(y)].t(), x=(3,)),
    Row("narrow to m", lambda x, y: x.narrow(0, 0, n_of(y))),
    Row("narrow from m", lambda x, y: x.narrow(0, n_of(y), 1)),
    Row("narrow from n - m", lambda x, y: x.narrow(0, n_of(x) - n_of(y), n_of(y))),
    Row("select m", lambda x, y: x[n_of(y)]),
    Row("select -m - 1", lambda x, y: x[-n_of(y) - 1]),
    Row("slice_scatter", lambda x, y: x.slice_scatter(y, 0, 0, n_of(y))),
    Row("select_scatter", lambda x, y: x.select_scatter(y.sum(), 0, n_of(y) // 2)),
)

JOINS: Final = (
    Row("cat of slices", lambda x, y: torch.cat([x[n_of(y) :], x[: n_of(y)]])),
    Row("cat of x and slice of y", lambda x, y: torch.cat([x, y[n_of(x) :], y[:2]])),
    Row("stack of slices", lambda x, y: torch.stack([x[: n_of(y)], x[: n_of(y)] * 2])),
    Row("split in m + 1", lambda x, y: x.split([n_of(y), n_of(x) - n_of(y)])),
    Row("split by 2", lambda x, y: y.new_zeros(4, n_of(x)).split(2, 0)),
    Row("chunk", lambda x, y: x.chunk(2, 1), x=(6,)),
    Row("tensor_split", lambda x, y: torch.tensor_split(x, [n_of(y)], 0)),
    Row("tensor_split from the end", lambda x, y: torch.tensor_split(x, (-n_of(y), 2), 0)),
    Row("tensor_split in 3", lambda x, y: torch.tensor_split(x, 3)),
    Row("repeat m", lambda x, y: x.repeat(n_of(y))),
    Row("repeat rows", lambda x, y: x.repeat(n_of(y), 2)),
    Row("tile", lambda x, y: x.tile((2, n_of(y)))),
    Row("repeat_interleave", lambda x, y: x.repeat_interleave(n_of(y))),
    Row("repeat_interleave of rows", lambda x, y: x.repeat_interleave(n_of(y), 0), x=(2,)),
    Row("expand", lambda x, y: x[None].expand(n_of(y), -1)),
    Row("expand both", lambda x, y: x.sum().expand(n_of(y), n_of(x))),
    Row("broadcast", lambda x, y: x[:, None] * y[None, :]),
    Row("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij")[1]),
    Row("unfold", lambda x, y: x.unfold(0, 2, 1)),
    Row("unfold of step 3", lambda x, y: x.unfold(0, 1, 3)),
    Row("unfold of size m", lambda x, y: x.unfold(0, n_of(y), 1)),
    Row("unfold of step m + 1", lambda x, y: x.unfold(0, 1, n_of(y) + 1)),
)

MAKERS: Final = (
    Row("arange(m)", lambda x, y: torch.arange(n_of(y))),
    Row("arange(n - m)", lambda x, y: torch.arange(n_of(x) - n_of(y))),
    Row("sum of arange(n - m)", lambda x, y: torch.arange(n_of(x) - n_of(y)).sum()),
    Row("arange(m, n)", lambda x, y: torch.arange(n_of(y), n_of(x))),
    Row("arange(n, m, -1)", lambda x, y: torch.arange(n_of(x), n_of(y), -1)),
    Row("arange(0, n, 2)", lambda x, y: torch.arange(0, n_of(x), 2)),
    Row("arange(0, n, m + 1)", lambda x, y: torch.arange(0, n_of(x), n_of(y) + 1)),
    Row("arange of floats", lambda x, y: torch.arange(0.5, n_of(x), 1.5)),
    Row("arange of m / 2", lambda x, y: torch.arange(0, n_of(y) / 2, 0.5)),
    Row("linspace of m", lambda x, y: torch.linspace(0, 1, n_of(y))),
    Row("linspace from m to n", lambda x, y: torch.linspace(n_of(y), n_of(x), n_of(x))),
    Row("logspace", lambda x, y: torch.logspace(0, 1, n_of(y))),
    Row("new_zeros", lambda x, y: x.new_zeros(n_of(y), n_of(x))),
    Row("new_full(n + m)", lambda x, y: x.new_full((n_of(x) + n_of(y),), 2.0)),
    Row("full", lambda x, y: torch.full((n_of(y), 2), n_of(x))),
    Row("ones(n - m)", lambda x, y: torch.ones(n_of(x) - n_of(y))),
    Row("sum of ones(n * m)", lambda x, y: torch.ones(n_of(x) * n_of(y)).sum()),
    Row("empty_like and fill", lambda x, y: torch.empty(n_of(x) + 1).fill_(n_of(y))),
    Row("eye", lambda x, y: torch.eye(n_of(y))),
    Row("eye(n, m)", lambda x, y: torch.eye(n_of(x), n_of(y))),
    Row("tril_indices", lambda x, y: torch.tril(torch.ones(n_of(x), n_of(y)))),
    Row("hann_window", lambda x, y: torch.hann_window(n_of(y))),
)

PADS: Final = (
    Row("pad left m", lambda x, y: F.pad(x, (n_of(y), 0))),
    Row("pad right m - 2", lambda x, y: F.pad(x, (0, n_of(y) - 2))),
    Row("pad n - m", lambda x, y: F.pad(x, (1, n_of(x) - n_of(y)), value=3.0)),
    Row("crop by m", lambda x, y: F.pad(x, (-n_of(y), 0))),
    Row("pad to 8", lambda x, y: F.pad(x, (0, 8 - n_of(x)))),
    Row("pad rows", lambda x, y: F.pad(x, (1, 0, n_of(y), 1)), x=(3,)),
    Row("pad reflect", lambda x, y: F.pad(x.t(), (n_of(y), 0), mode="reflect"), x=(2,)),
    Row("pad replicate", lambda x, y: F.pad(x.t(), (0, n_of(y)), mode="replicate"), x=(2,)),
    Row("pad circular", lambda x, y: F.pad(x.t(), (n_of(y), 1), mode="circular"), x=(2,)),
    Row("constant_pad_nd of nothing", lambda x, y: F.pad(x[:0], (n_of(y), 1))),
)

SHAPES: Final = (
    Row("reshape(-1, 2)", lambda x, y: x.reshape(-1, 2), x=(4,)),
    Row("reshape(m, -1)", lambda x, y: (x[:, None] * y).reshape(n_of(y), -1)),
    Row("reshape(-1, n)", lambda x, y: (x[:, None] * y).reshape(-1, n_of(x))),
    Row("view(-1)", lambda x, y: (x[:, None] + y).view(-1)),
    Row("view(n * 2, -1)", lambda x, y: x.view(n_of(x) * 2, -1), x=(4,)),
    Row(
        "flatten and unflatten",
        lambda x, y: (x[:, None] * y).flatten().unflatten(0, (n_of(x), n_of(y))),
    ),
    Row("as_strided", lambda x, y: x.as_strided((n_of(x),), (1,))),
    Row(
        "pixel_shuffle", lambda x, y: F.pixel_shuffle(x.reshape(1, -1, 2, 2), 2), x=(4,), at=(8, 4)
    ),
    Row("roll m", lambda x, y: x.roll(n_of(y))),
    Row("roll -m", lambda x, y: x.roll(-n_of(y), 0), x=(2,)),
    Row("flip", lambda x, y: x.flip(0)),
    Row("flip of slice", lambda x, y: x[: n_of(y)].flip(0)),
    Row("rot90", lambda x, y: (x[:, None] - y).rot90()),
    Row("tril of m", lambda x, y: x.tril(n_of(y) - 2), x=(4,)),
    Row("triu of m", lambda x, y: x.triu(n_of(y) - 2), x=(4,)),
    Row("diagonal of m", lambda x, y: x.diagonal(n_of(y) - 2), x=(4,)),
    Row("diag", lambda x, y: torch.diag(x, n_of(y) - 2)),
    Row("diag_embed", lambda x, y: torch.diag_embed(x, n_of(y))),
    Row("diagonal of n by m", lambda x, y: (x[:, None] * y).diagonal()),
    Row("movedim", lambda x, y: (x[:, None, None] * y[:, None]).movedim(0, 1).squeeze(2)),
)

INDICES: Final = (
    Row("index_select", lambda x, y: x.index_select(0, torch.arange(n_of(y)) % n_of(x))),
    Row("index by arange", lambda x, y: x[torch.arange(n_of(x) - 1, -1, -1)]),
    Row("index by negatives", lambda x, y: x[-torch.arange(1, n_of(y) + 1)]),
    Row("gather", lambda x, y: x.gather(0, torch.arange(n_of(x)) // 2)),
    Row("take", lambda x, y: x.take(torch.arange(n_of(y)) % n_of(x))),
    Row(
        "scatter",
        lambda x, y: x.new_zeros(n_of(x) + n_of(y)).scatter(0, torch.arange(n_of(x)) + n_of(y), x),
    ),
    Row(
        "index_add",
        lambda x, y: torch.zeros(n_of(y) + 1).index_add(
            0, torch.arange(n_of(x)) % (n_of(y) + 1), x
        ),
    ),
    Row(
        "index_copy",
        lambda x, y: torch.zeros(n_of(x) + n_of(y)).index_copy(0, torch.arange(n_of(y)), y),
    ),
    Row("index_fill", lambda x, y: x.index_fill(0, torch.arange(n_of(x) // 2), 9.0)),
    Row("one_hot", lambda x, y: F.one_hot(torch.arange(n_of(x)) % (n_of(y) + 1), n_of(y) + 1)),
    Row("embedding", lambda x, y: F.embedding(torch.arange(n_of(x)) % 3, y.repeat(3)[:, None])),
    Row("topk m", lambda x, y: x.topk(n_of(y))),
    Row("topk n // 2", lambda x, y: x.topk(n_of(x) // 2, largest=False)[0]),
    Row("topk min(n, m)", lambda x, y: x.topk(torch.sym_min(n_of(x), n_of(y)))[0]),
    Row("kthvalue", lambda x, y: x.kthvalue(n_of(y))[0]),
    Row("sort", lambda x, y: x[: n_of(y)].sort()[0]),
    Row("argsort", lambda x, y: x[n_of(y) :].argsort(stable=True)),
    Row("searchsorted", lambda x, y: torch.searchsorted(torch.arange(n_of(x)).float(), y)),
    Row("bucketize", lambda x, y: torch.bucketize(x, torch.arange(n_of(y)).float(), right=True)),
)

SCANS: Final = (
    Row("cumsum", lambda x, y: x[n_of(y) :].cumsum(0)),
    Row("cumprod", lambda x, y: (x[: n_of(y)] / 4).cumprod(0)),
    Row("cummax", lambda x, y: x[: n_of(y)].cummax(0)[0]),
    Row("diff", lambda x, y: x[: n_of(y)].diff()),
    Row("mean of slice", lambda x, y: x[n_of(y) :].mean()),
    Row("amax of rows", lambda x, y: x[n_of(y) :].amax(1), x=(2,)),
    Row("std of slice", lambda x, y: x[: n_of(y)].std()),
    Row("any of slice", lambda x, y: (x[n_of(y) :] > 6).any()),
    Row("norm over n", lambda x, y: x / n_of(x) + n_of(y) ** 2),
    Row("layer_norm", lambda x, y: F.layer_norm(x[: n_of(y)], (4,)), x=(4,)),
    Row("interpolate nearest to m", lambda x, y: F.interpolate(x.t()[None], size=n_of(y)), x=(2,)),
    Row("interpolate linear to m", lambda x, y: F.interpolate(x.t()[None], size=n_of(y), mode="linear"), x=(2,)),
    Row("interpolate bilinear", lambda x, y: F.interpolate(x.t()[None, None], size=(3, n_of(y)), mode="bilinear", align_corners=True), x=(2,)),
    Row("interpolate twice", lambda x, y: F.interpolate(x.t()[None], scale_factor=2.0), x=(2,)),
    Row("avg_pool", lambda x, y: F.avg_pool1d(x.t()[None], 2), x=(2,)),
    Row("avg_pool of size m", lambda x, y: F.avg_pool1d(x.t()[None], n_of(y)), x=(2,)),
    Row("max_pool", lambda x, y: F.max_pool1d(x.t()[None], 3, 2, 1), x=(2,)),
    Row("adaptive_avg_pool", lambda x, y: F.adaptive_avg_pool1d(x.t()[None], 2), x=(2,)),
    Row("conv1d of padded", lambda x, y: F.conv1d(F.pad(x.t()[None], (n_of(y), 0)), torch.ones(1, 2, 3)), x=(2,)),
    Row("attention of a prefix", lambda x, y: F.scaled_dot_product_attention(x[None], x[None, : n_of(y)], x[None, : n_of(y)]), x=(4,)),
    Row("rfft", lambda x, y: torch.fft.rfft(x, dim=1).abs(), x=(4,)),
    Row("where over arange", lambda x, y: torch.where(torch.arange(n_of(x)) < n_of(y), x, -x)),
    Row("masked_fill", lambda x, y: (x[:, None] * y).masked_fill(torch.arange(n_of(x))[:, None] < torch.arange(n_of(y)), 0.0)),
)  # fmt: skip
ROWS: Final = (*SLICES, *JOINS, *MAKERS, *PADS, *SHAPES, *INDICES, *SCANS)


@attrs.frozen
class Scan:
    """What became of the calls of one row."""

    counted: int
    wrong: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def scanned(row: Row) -> Scan | None:
    """The scan of one row at all sizes, or None if torch does not export it."""
    program = exported(row)
    if program is None:
        return None
    accepting = program.module()
    executable = plica.compile(program, cache=False, threads=1)
    counted, wrong, refused = 0, [], []
    for n, m in product(SIZES_OF_X, SIZES_OF_Y):
        given = row.inputs(n, m)
        if result(accepting, given) is None:
            continue
        counted += 1
        wanted = row.function(*given)
        try:
            found = leaves(executable(*given))
        except plica.PlicaError as error:
            refused.append(f"n={n} m={m}: {error}")
            continue
        if not same(found, leaves(wanted)):
            wrong.append(f"n={n} m={m}: {found}, wanted {wanted}")
    return Scan(counted, tuple(wrong), tuple(refused))


def exported(row: Row) -> Any:
    """The exported program with both sizes open, 0 and 1 among them, or None if torch refuses."""
    auto = torch.export.Dim.AUTO
    try:
        with torch.fx.experimental._config.patch(backed_size_oblivious=True):
            return torch.export.export(
                Model(row.function), row.inputs(*row.at), dynamic_shapes=(({0: auto}, {0: auto}),)
            )
    except Exception:  # noqa: BLE001  # torch has many classes of refusals
        return None


def result(function: Function, given: tuple[Any, Any]) -> list[Any] | None:
    """The tensors that torch gives, or None if it refuses the call."""
    try:
        return leaves(function(*given))
    except Exception:  # noqa: BLE001  # torch has many classes of refusals
        return None


def leaves(value: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in torch.utils._pytree.tree_leaves(value)]


def same(found: list[Any], wanted: list[Any]) -> bool:
    """Whether two lists of arrays are equal up to rounding."""
    return len(found) == len(wanted) and all(
        one.shape == other.shape
        and one.dtype == other.dtype
        and np.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
        for one, other in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("row", spread(ROWS, ROWS_PER_RUN), ids=lambda row: row.name)
def test_all_sizes_of_a_row(row: Row) -> None:
    scan = scanned(row)
    assert scan is not None
    assert scan.counted
    assert scan.wrong == scan.refused == ()


def test_a_length_is_asserted_where_the_program_types_with_it_alone() -> None:
    """A sum of `x[n - m:]` and y types where the slice is as long as y, which torch assumed."""
    scan = scanned(Row("x[n - m:] + y", lambda x, y: x[n_of(x) - n_of(y) :] + y))
    assert scan is not None
    assert scan.counted
    assert scan.wrong == scan.refused == ()
