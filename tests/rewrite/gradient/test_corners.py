"""Gradients where functions have corners, ties, poles and zeros: as torch's autograd has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import plica

pytest.importorskip("torch")

import torch  # it may be missing
import torch.nn.functional as F  # as everybody does

Scalar: TypeAlias = Callable[..., Any]  # Any: tensors of torch

INF: Final = float("inf")
NAN: Final = float("nan")


def f64(values: Any) -> Any:
    return torch.tensor(values, dtype=torch.float64)


ROWS: Final = f64([[1.0, 2.0, 3.0]] * 3)  # equal in each column
TIES: Final = f64([[2.0, 1.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0], [-1.0, 0.0, 0.0, -1.0]])
ZEROS: Final = f64([[0.0, 0.0, 0.0], [0.0, 1.0, -2.0]])
SIGNS: Final = f64([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
WEIGHTS: Final = f64([0.3, -1.2, 0.7, 2.0, -0.4, 1.1, 0.9])
IMAGE: Final = f64([[[[1.0, 1.0, 0.0, 2.0], [1.0, 1.0, 2.0, 2.0], [3.0, 0.0, 0.0, 0.0],
                      [0.0, 3.0, 0.0, 0.0]]]])  # fmt: skip


def weighted(x: Any) -> Any:
    """A sum in which every element counts differently."""
    flat = x.reshape(-1)
    return (flat * torch.arange(1, flat.numel() + 1, dtype=flat.dtype)).sum()


CORNERS: Final[dict[str, tuple[Scalar, tuple[Any, ...]]]] = {
    # spread
    "std of equals": (lambda x: x.std(0, correction=0).sum(), (ROWS,)),
    "std of equals, corrected": (lambda x: weighted(x.std(0)), (ROWS,)),
    "std of some equals": (lambda x: weighted(x.std(1)), (TIES,)),
    "std of all": (lambda x: (x - x).std(), (ROWS,)),
    "std_mean of equals": (lambda x: torch.std_mean(x, 0, correction=0)[0].sum(), (ROWS,)),
    "var of equals": (lambda x: weighted(x.var(0)), (ROWS,)),
    "var of one": (lambda x: x[:1].var(0, correction=0).sum(), (ROWS,)),
    "var_mean": (lambda x: sum(map(weighted, torch.var_mean(x, 0))), (ROWS,)),
    # norms
    **{f"norm {p} at 0": (lambda x, p=p: torch.linalg.vector_norm(x, p), (ZEROS * 0,))
       for p in (0, 0.5, 1, 1.5, 2, 3, 4, INF, -INF)},
    **{f"norm {p} of rows": (lambda x, p=p: weighted(torch.linalg.vector_norm(x, p, dim=-1)),
                             (ZEROS,)) for p in (0, 1, 1.5, 2, 3, 4, INF, -INF)},
    **{f"norm {p} of ties": (lambda x, p=p: weighted(torch.linalg.vector_norm(x, p, dim=-1)),
                             (TIES,)) for p in (1, 2, INF, -INF)},
    "norm method": (lambda x: (x - x).norm(), (ROWS,)),
    "norm fro": (torch.linalg.matrix_norm, (ZEROS * 0,)),
    **{f"cdist {p} of itself": (lambda x, p=p: weighted(torch.cdist(x, x, p)), (ROWS,))
       for p in (1.0, 2.0, 3.0, INF)},
    "cdist of others": (lambda x, y: weighted(torch.cdist(x, y)), (ROWS, ZEROS)),
    "pdist": (lambda x: weighted(torch.pdist(x)), (ROWS,)),
    "pairwise distance": (lambda x, y: F.pairwise_distance(x, y).sum(), (ROWS, ROWS)),
    "normalize 0": (lambda x: weighted(F.normalize(x, dim=-1)), (ZEROS,)),
    "cosine similarity 0": (lambda x: F.cosine_similarity(x, x + 1, dim=-1).sum(), (ZEROS,)),
    "renorm": (lambda x: weighted(torch.renorm(x, 2, 0, 1.0)), (ZEROS,)),
    "hypot": (lambda x, y: weighted(torch.hypot(x, y)), (ZEROS, ZEROS)),
    # roots, powers, logarithms
    "sqrt at 0": (lambda x: weighted(torch.sqrt(x)), (f64([0.0, 1.0, 4.0]),)),
    "sqrt(x) * 0": (lambda x: (torch.sqrt(x) * f64([0.0, 0.0])).sum(), (f64([0.0, 1.0]),)),
    "rsqrt": (lambda x: weighted(torch.rsqrt(x)), (f64([0.25, 1.0]),)),
    "sqrt(relu)": (lambda x: torch.sqrt(torch.relu(x - 5)).sum(), (f64([6.0, 7.0]),)),
    "sqrt of squares": (lambda x: torch.sqrt(x * x).sum(), (f64([-1.0, 2.0]),)),
    "x ** 0": (lambda x: weighted(x**0), (SIGNS,)),
    "x ** 0.0": (lambda x: weighted(x**0.0), (SIGNS,)),
    "x ** 1": (lambda x: weighted(x**1), (SIGNS,)),
    "x ** 2": (lambda x: weighted(x**2), (SIGNS,)),
    "x ** 3": (lambda x: weighted(x**3), (SIGNS,)),
    "x ** 1.5 at 0": (lambda x: weighted(x**1.5), (f64([0.0, 1.0, 2.0]),)),
    "x ** 0.5 at 0": (lambda x: weighted(x**0.5), (f64([0.0, 1.0, 2.0]),)),
    "x ** -1": (lambda x: weighted(x**-1), (f64([1.0, -2.0]),)),
    "x ** y": (lambda x, y: weighted(x**y), (f64([0.0, 0.0, 0.0, 2.0, 0.0]),
                                            f64([0.0, 1.0, 2.0, 0.0, 0.5]))),
    "(-x) ** y": (lambda x, y: weighted(x**y), (f64([-1.0, -2.0]), f64([2.0, 3.0]))),
    "0 ** x": (lambda x: (torch.zeros_like(x) ** x).sum(), (f64([0.0, 1.0, 2.0]),)),
    "2 ** x": (lambda x: weighted(2.0**x), (SIGNS,)),
    "xlogy": (lambda x, y: weighted(torch.special.xlogy(x, y)),
              (f64([0.0, 0.0, 1.0]), f64([0.0, 2.0, 3.0]))),
    "xlog1py": (lambda x, y: weighted(torch.special.xlog1py(x, y)),
                (f64([0.0, 0.0, 1.0]), f64([-1.0, 2.0, 3.0]))),
    "entr": (lambda x: weighted(torch.special.entr(x)), (f64([0.5, 1.0]),)),
    "cbrt of cube": (lambda x: weighted((x**3).abs() ** (1 / 3)), (f64([1.0, -2.0]),)),
    "log1p": (lambda x: weighted(torch.log1p(x)), (f64([0.0, 1e-300, -0.5]),)),
    "logaddexp": (lambda x, y: weighted(torch.logaddexp(x, y)),
                  (f64([0.0, -INF, 1.0, -1000.0]), f64([0.0, 1.0, -INF, 1000.0]))),
    "expm1": (lambda x: weighted(torch.expm1(x)), (f64([0.0, 1.0]),)),
    # angles
    "atan2(0, 0)": (lambda x, y: weighted(torch.atan2(x, y)), (ZEROS, ZEROS.flip(1))),
    "asin at 1": (lambda x: torch.asin(x).sum(), (f64([-1.0, 0.0, 1.0]),)),
    "acos at 1": (lambda x: torch.acos(x).sum(), (f64([-1.0, 0.0, 1.0]),)),
    "acosh at 1": (lambda x: torch.acosh(x).sum(), (f64([1.0, 2.0]),)),
    "atanh at 1": (lambda x: torch.atanh(x).sum(), (f64([-1.0, 0.0, 1.0]),)),
    "sinc": (lambda x: weighted(torch.sinc(x)), (SIGNS,)),
    # ties
    "max of all": (lambda x: x.max(), (TIES,)),
    "min of all": (lambda x: x.min(), (TIES,)),
    "max along": (lambda x: weighted(x.max(0).values), (f64([[2.0, 1.0], [1.0, 3.0]]),)),
    "min along": (lambda x: weighted(x.min(0).values), (f64([[2.0, 1.0], [1.0, 3.0]]),)),
    "amax": (lambda x: weighted(x.amax(1)), (TIES,)),
    "amin": (lambda x: weighted(x.amin((0, 1))), (TIES,)),
    "aminmax": (lambda x: sum(map(weighted, torch.aminmax(x, dim=1))), (TIES,)),
    "maximum": (lambda x, y: weighted(torch.maximum(x, y)), (SIGNS, SIGNS.abs())),
    "minimum": (lambda x, y: weighted(torch.minimum(x, y)), (SIGNS, SIGNS.abs())),
    "fmax": (lambda x, y: weighted(torch.fmax(x, y)), (SIGNS, SIGNS.abs())),
    "fmin": (lambda x, y: weighted(torch.fmin(x, y)), (SIGNS, SIGNS.abs())),
    "maximum of itself": (lambda x: weighted(torch.maximum(x, x * 1)), (SIGNS,)),
    "median of all": (lambda x: x.median(), (ROWS,)),
    "median of all ties": (lambda x: x.median(), (TIES,)),
    "median along": (lambda x: weighted(x.median(1).values), (TIES,)),
    "median along 0": (lambda x: weighted(x.median(0).values), (ROWS,)),
    "nanmedian": (lambda x: x.nanmedian(), (TIES,)),
    "quantile": (lambda x: torch.quantile(x, 0.5), (f64([1.0, 3.0, 2.0, 5.0]),)),
    "kthvalue": (lambda x: weighted(x.kthvalue(2, 1).values), (f64([[2.0, 1.0, 3.0, 0.0]]),)),
    "topk": (lambda x: weighted(x.topk(2, 1).values), (f64([[2.0, 1.0, 3.0, 0.0]]),)),
    "sort": (lambda x: weighted(torch.sort(x, dim=1, stable=True).values), (TIES,)),
    "sort down": (lambda x: weighted(
        torch.sort(x, dim=1, descending=True, stable=True).values), (TIES,)),
    "cummax": (lambda x: weighted(x.cummax(1).values), (TIES,)),
    "cummin": (lambda x: weighted(x.cummin(1).values), (TIES,)),
    "max pool": (lambda x: weighted(F.max_pool2d(x, 2)), (IMAGE,)),
    "max pool, overlapping": (lambda x: weighted(F.max_pool2d(x, 3, 1, 1)), (IMAGE,)),
    "adaptive max pool": (lambda x: weighted(F.adaptive_max_pool2d(x, 3)), (IMAGE,)),
    "avg pool": (lambda x: weighted(F.avg_pool2d(x, 3, 1, 1)), (IMAGE,)),
    "lp pool": (lambda x: weighted(F.lp_pool2d(x, 2.0, 2)), (IMAGE,)),
    # corners
    "abs": (lambda x: weighted(x.abs()), (SIGNS,)),
    "sign": (lambda x: weighted(torch.sign(x) * x), (SIGNS,)),
    "frac": (lambda x: weighted(torch.frac(x)), (SIGNS,)),
    "floor, ceil, trunc, round": (lambda x: weighted(x.floor() + x.ceil() + x.trunc() + x.round()),
                                  (SIGNS,)),
    "fmod": (lambda x: weighted(torch.fmod(x, 0.5)), (SIGNS,)),
    "fmod by a tensor": (lambda x, y: weighted(torch.fmod(x, y)), (SIGNS, WEIGHTS)),
    "remainder": (lambda x, y: weighted(torch.remainder(x, y)), (SIGNS, WEIGHTS)),
    "div floor": (lambda x, y: weighted(torch.div(x, y, rounding_mode="floor")), (SIGNS, WEIGHTS)),
    "clamp": (lambda x: weighted(x.clamp(-1.0, 0.5)), (SIGNS,)),
    "clamp min": (lambda x: weighted(x.clamp_min(0.0)), (SIGNS,)),
    "clamp by tensors": (lambda x, y: weighted(torch.clamp(x, min=y - 1, max=y)), (SIGNS, WEIGHTS)),
    "clamp at tensors": (lambda x, y: weighted(torch.clamp(x, max=y)), (SIGNS, SIGNS * 1)),
    **{name: (lambda x, name=name: weighted(getattr(F, name)(x)), (SIGNS * 6,))
       for name in ("relu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "leaky_relu", "elu",
                    "selu", "celu", "softplus", "softsign", "tanhshrink", "softshrink",
                    "hardshrink", "gelu", "silu", "mish", "logsigmoid", "sigmoid")},
    **{f"{name} at its corners": (lambda x, name=name: weighted(getattr(F, name)(x)),
                                  (f64([-3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0]),))
       for name in ("relu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "leaky_relu", "elu",
                    "selu", "celu", "softshrink", "hardshrink")},
    "threshold": (lambda x: weighted(F.threshold(x, 0.5, 9.0)), (SIGNS,)),
    "prelu": (lambda x, w: weighted(F.prelu(x, w)), (SIGNS, f64([0.25]))),
    "huber": (lambda x, y: F.huber_loss(x, y, reduction="sum", delta=1.0), (SIGNS, SIGNS * 0)),
    "smooth l1": (lambda x, y: F.smooth_l1_loss(x, y, reduction="sum"), (SIGNS, SIGNS * 0)),
    "l1": (lambda x, y: F.l1_loss(x, y, reduction="sum"), (SIGNS, SIGNS.abs())),
    "hinge": (lambda x: F.margin_ranking_loss(x, -x, torch.ones(7, dtype=x.dtype), 0.0), (SIGNS,)),
    "binary cross entropy": (lambda x: F.binary_cross_entropy(x, f64([0.0, 1.0, 1.0])),
                             (f64([0.25, 0.5, 0.75]),)),
    "bce with logits": (lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).double()),
                        (f64([-1000.0, 0.0, 1000.0]),)),
    "kl div": (lambda x, y: F.kl_div(x, y, reduction="sum"),
               (f64([-1.0, -2.0]), f64([0.5, 1.0]))),
    # infinite and masked
    "logsumexp of -inf": (lambda x: torch.logsumexp(
        torch.cat([x, torch.full((1, 3), -INF, dtype=x.dtype)]), 0).sum(), (ROWS,)),
    "logsumexp of inf": (lambda x: weighted(torch.logsumexp(x, 0)),
                         (f64([[1.0, 3.0], [INF, 2.0]]),)),
    "softmax of a masked row": (lambda x: torch.softmax(
        x.masked_fill(torch.tensor([[True], [False], [False]]), -1e308), -1)[0, 0], (ROWS,)),
    "softmax with -inf": (lambda x: weighted(torch.softmax(
        x.masked_fill(torch.tensor([[True, False, False]]), -INF), -1)), (ROWS,)),
    "log_softmax with -inf": (lambda x: torch.log_softmax(
        x.masked_fill(torch.tensor([[True, False, False]]), -INF), -1)[:, 1:].sum(), (ROWS,)),
    "log_softmax, far": (lambda x: weighted(torch.log_softmax(x * 1000, -1)), (ROWS,)),
    "logcumsumexp": (lambda x: weighted(torch.logcumsumexp(x * 1000, 0)), (ROWS,)),
    "where(x > 9, x / 0, x)": (lambda x: torch.where(x > 9, x / 0, x).sum(), (ROWS,)),
    "where(x > 9, log(x - 9), x)": (lambda x: torch.where(x > 9, torch.log(x - 9), x).sum(),
                                    (ROWS,)),
    "where(x > 0, sqrt(x), 0)": (lambda x: torch.where(x > 0, torch.sqrt(x), 0.0).sum(), (ZEROS,)),
    "masked_fill": (lambda x: weighted(torch.log(x).masked_fill(x == 0, 0.0)), (f64([0.0, 1.0]),)),
    "nan_to_num": (lambda x: weighted(torch.nan_to_num(x, 0.0, 1.0, -1.0)),
                   (f64([NAN, INF, -INF, 2.0]),)),
    "nansum": (lambda x: torch.nansum(x * x), (f64([NAN, 1.0, 2.0]),)),
    "nanmean": (torch.nanmean, (f64([NAN, 1.0, 2.0]),)),
    # products
    "prod of zeros": (lambda x: x.prod(), (ZEROS * 0,)),
    "prod of a zero": (lambda x: x.prod(), (f64([2.0, 0.0, 3.0]),)),
    "prod of two zeros": (lambda x: weighted(x.prod(1)), (ZEROS,)),
    "cumprod with a zero": (lambda x: weighted(x.cumprod(-1)), (ZEROS,)),
    "cumprod": (lambda x: weighted(x.cumprod(0)), (SIGNS,)),
    "x / x": (lambda x: (x / x).sum(), (f64([1.0, -2.0]),)),
    "reciprocal": (lambda x: weighted(torch.reciprocal(x)), (f64([1.0, -2.0]),)),
    # resampling
    **{f"grid_sample {mode}, {pad}, {corners}": (
        lambda x, g, mode=mode, pad=pad, corners=corners: weighted(F.grid_sample(
            x, g, mode=mode, padding_mode=pad, align_corners=corners)),
        (IMAGE, f64([[[[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]],
                      [[0.5, -1.5], [2.0, 0.1], [0.3, 0.7]]]])))
       for mode in ("bilinear", "nearest") for pad in ("zeros", "border", "reflection")
       for corners in (False, True)},
    **{f"interpolate {mode}": (lambda x, mode=mode: weighted(F.interpolate(x, (6, 3), mode=mode)),
                               (IMAGE,)) for mode in ("nearest", "bilinear", "bicubic", "area")},
}  # fmt: skip
"""A function of tensors that gives one number, and where it is differentiated."""


class Model(torch.nn.Module):
    """A function as a module, which torch exports."""

    def __init__(self, function: Scalar) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def gradients(function: Scalar, at: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """What plica and torch give, for each argument."""
    given = [each.clone().requires_grad_() for each in at]
    meant: tuple[Any, ...] = torch.autograd.grad(function(*given), given, allow_unused=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Model(function), tuple(each.clone() for each in at))
    module = plica.grad(plica.from_torch(program), wrt=tuple(range(len(at))))
    found = plica.interpret(module, *[each.numpy() for each in at])
    zeros = [np.zeros(each.shape) for each in at]
    wanted = [none if one is None else one.numpy() for one, none in zip(meant, zeros, strict=True)]
    return [np.asarray(each) for each in found], wanted


USUAL: Final = (
    "std of equals", "std_mean of equals", "norm method", "norm 0.5 at 0", "norm 3 of rows",
    "cdist 2.0 of itself", "normalize 0", "x ** y", "xlogy", "atan2(0, 0)", "sinc", "amax",
    "fmax", "median of all ties", "median along", "adaptive max pool", "clamp", "clamp at tensors",
    "hardswish at its corners", "leaky_relu at its corners", "logsumexp of -inf",
    "cumprod with a zero", "where(x > 9, log(x - 9), x)", "prod of two zeros",
)  # fmt: skip
"""Those that are always tried, of each kind some."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=() if each in USUAL else pytest.mark.slow, id=each)
        for each in CORNERS
    ],
)
def test_a_corner_has_the_gradient_of_torch(name: str) -> None:
    for found, meant in zip(*gradients(*CORNERS[name]), strict=True):
        open_ = np.isnan(meant)  # there it may be 0 here
        assert (np.isnan(found[open_]) | (found[open_] == 0)).all()
        np.testing.assert_allclose(found[~open_], meant[~open_], rtol=1e-6, atol=1e-12)


def test_of_equals_max_along_an_axis_gives_each_an_equal_part() -> None:
    """Torch gives all to the one whose place it returns; a subgradient both ways."""
    (found,), (meant,) = gradients(lambda x: weighted(x.max(1).values), (TIES,))
    np.testing.assert_array_equal(found.sum(1), meant.sum(1))
    np.testing.assert_array_equal(found[1], [0.5] * 4)
