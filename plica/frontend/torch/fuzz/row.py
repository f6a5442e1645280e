# ruff: noqa: E501  # rows of a table
"""Rows: how a random call of a function of torch on a known tensor is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen
class KnownValue:
    """A tensor of the program, by its number."""

    number: int


@attrs.frozen(eq=False)
class TorchCall:
    """A call of a function of torch, by its path, on tensors of the program and other values."""

    path: str
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()

    def text(self) -> str:
        """The call as Python has it."""
        words = [_text(arg) for arg in self.args]
        words += [f"{name}={_text(value)}" for name, value in self.named]
        return f"{self.path}({', '.join(words)})"


def _text(of: Any) -> str:
    if isinstance(of, KnownValue):
        return f"v{of.number}"
    if isinstance(of, TorchCall):
        return of.text()
    if isinstance(of, list):
        return f"[{', '.join(map(_text, of))}]"
    return repr(of)


@attrs.frozen(eq=False)
class CallDraw:
    """What rows draw from: the tensors that are known, with their values as torch gives them."""

    random: Random
    values: Sequence[Tensor]

    def pick(self, *options: Any) -> Any:
        """One of several."""
        return self.random.choice(options)

    def axis(self, x: Tensor) -> int:
        """An axis, counted from either end."""
        return self.random.randrange(-x.ndim, x.ndim) if x.ndim else 0

    def like(self, x: Tensor, same: bool = False) -> KnownValue:
        """A tensor of the same dtype, of the same shape too if so asked; x itself if no other."""
        fit = [at for at, value in enumerate(self.values)
               if value.dtype == x.dtype and (not same or value.shape == x.shape)]  # fmt: skip
        return KnownValue(self.random.choice(fit))


Row = Callable[[CallDraw, KnownValue, "Tensor"], TorchCall]

F: Final = "torch.nn.functional."


def call(path: str, *args: Any, **named: Any) -> TorchCall:
    """A call as Python writes it."""
    return TorchCall(path, args, tuple(named.items()))


def _plain(path: str) -> Row:
    return lambda d, k, x: call(path, k)


def _pair(path: str) -> Row:
    return lambda d, k, x: call(path, k, d.like(x))


def _scalar(path: str, *numbers: float) -> Row:
    return lambda d, k, x: call(path, k, d.pick(*numbers))


def _pair_or_scalar(path: str, *numbers: float) -> Row:
    return lambda d, k, x: call(path, k, d.like(x) if d.pick(True, False) else d.pick(*numbers))


def _along(path: str) -> Row:
    return lambda d, k, x: call(path, k, dim=d.axis(x))


def _at_axis(path: str, *args: Any) -> Row:
    return lambda d, k, x: call(path, k, *args, d.axis(x))


def _reduced(path: str) -> Row:
    def row(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
        if d.random.random() < 0.3 or not x.ndim:
            return call(path, k)
        return call(path, k, dim=d.axis(x), keepdim=d.pick(True, False))

    return row


def _joined(path: str) -> Row:
    def row(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
        several = [k, d.like(x), *([k] if d.random.random() < 0.3 else [])]
        return call(path, several, dim=d.axis(x))

    return row


def _reshape(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    shape = list(x.shape)
    d.random.shuffle(shape)
    return call("torch.reshape", k, d.pick(shape, [-1], [1, *shape]))


def _slice(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    at = d.axis(x)
    size = x.shape[at] if x.ndim else 1
    start = d.random.randrange(max(1, size))
    return call("torch.narrow", k, at, start, d.random.randint(1, max(1, size - start)))


def _conv(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    rank = x.ndim - 2
    out, own = d.pick(1, 2, 4), x.shape[1]
    groups = own if d.random.random() < 0.3 else 1
    weight = call("weight", out * groups, own // groups, *(d.pick(1, 2, 3),) * rank)
    steps = {"stride": d.pick(1, 2), "padding": d.pick(0, 1)}
    return call(f"{F}conv{rank}d", k, weight, **steps, groups=groups)


def _transposed(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    rank = x.ndim - 2
    weight = call("weight", x.shape[1], d.pick(1, 2), *(d.pick(1, 2, 3),) * rank)
    return call(f"{F}conv_transpose{rank}d", k, weight, stride=d.pick(1, 2))


def _linear(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    out = d.pick(1, 3, 5)
    return call(f"{F}linear", k, call("weight", out, x.shape[-1]), call("weight", out))


def _pool(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    kind = d.pick("max", "avg")
    steps = {"stride": d.pick(1, 2), "padding": d.pick(0, 1), "ceil_mode": d.pick(True, False)}
    return call(f"{F}{kind}_pool{x.ndim - 2}d", k, d.pick(2, 3), **steps)


def _group_norm(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    groups = [g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0]
    return call(f"{F}group_norm", k, d.random.choice(groups))


def _batch_norm(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    weight, spread = call("weight", x.shape[1]), call("spread", x.shape[1])
    return call(f"{F}batch_norm", k, weight, spread, weight, spread)


def _pad(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    width = [d.random.randint(0, 2) for _ in range(2 * d.random.randint(1, max(1, min(2, x.ndim))))]
    return call(
        f"{F}pad", k, width, mode=d.pick("constant", "constant", "reflect", "replicate", "circular")
    )


def _index(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    at = d.axis(x)
    size = x.shape[at] if x.ndim else 1
    places = [d.random.randrange(max(1, size)) for _ in range(d.random.randint(1, 4))]
    return call("torch.index_select", k, at, call("places", *places))


def _gather(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    at = d.axis(x)
    return call("torch.gather", k, at, call("torch.argsort", k, at, stable=True))


def _interpolate(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    mode = d.pick("nearest", "linear" if x.ndim == 3 else "bilinear", "nearest-exact")
    return call(f"{F}interpolate", k, scale_factor=d.pick(2, 1.5), mode=mode)


def _attention(d: CallDraw, k: KnownValue, x: Tensor) -> TorchCall:
    causal, path = d.pick(True, False), f"{F}scaled_dot_product_attention"
    return call(path, k, d.like(x, True), d.like(x, True), is_causal=causal)


_CASTS: Final = ("float", "double", "long", "bool", "half", "bfloat16", "int")
_CHANGES: Final = ("add_", "mul_", "sub_")
_FLOATS: Final = (
    "torch.sigmoid torch.tanh torch.exp torch.sin torch.cos torch.erf torch.atan torch.expm1 torch.log1p "
    "torch.sinh torch.asinh torch.reciprocal torch.rsqrt torch.sqrt torch.log "
    f"{F}silu {F}gelu {F}elu {F}selu {F}celu {F}mish {F}softplus {F}hardswish {F}hardsigmoid "
    f"{F}logsigmoid {F}leaky_relu {F}relu6 {F}hardtanh {F}softsign {F}tanhshrink"
).split()
_ANY: Final = ["torch.abs", "torch.neg", "torch.square", "torch.sign", "torch.clone", "torch.relu"]
_JUMPS: Final = ["torch.floor", "torch.ceil", "torch.round", "torch.trunc"]

# fmt: off
FLOATS: Final[dict[str, Row]] = {
    **{path: _plain(path) for path in (*_FLOATS, *_JUMPS)},
    **{path: _along(path) for path in ("torch.softmax", "torch.log_softmax", f"{F}softmin", "torch.cumsum", "torch.cumprod", "torch.logsumexp", "torch.logcumsumexp")},
    **{path: _reduced(path) for path in ("torch.mean", "torch.std", "torch.var", "torch.norm")},
    **{path: _pair(path) for path in ("torch.div", "torch.atan2", "torch.fmod", "torch.remainder", "torch.logaddexp", "torch.hypot")},
    "torch.pow": _scalar("torch.pow", 2, 3, 0.5, -1),
    f"{F}linear": _linear, "torch.matmul": lambda d, k, x: call("torch.matmul", k, call("weight", x.shape[-1], d.pick(1, 2, 4))),
    f"{F}layer_norm": lambda d, k, x: call(f"{F}layer_norm", k, [x.shape[-1]]), f"{F}normalize": _along(f"{F}normalize"), f"{F}glu": _along(f"{F}glu"),
    "torch.lerp": lambda d, k, x: call("torch.lerp", k, d.like(x), 0.3),
}
"""Calls on floats of any rank."""

IMAGES: Final[dict[str, Row]] = {
    f"{F}conv": _conv, f"{F}conv_transpose": _transposed, f"{F}pool": _pool, f"{F}adaptive": lambda d, k, x: call(f"{F}adaptive_{d.pick('avg', 'max')}_pool{x.ndim - 2}d", k, d.pick(1, 2, 3)),
    f"{F}group_norm": _group_norm, f"{F}batch_norm": _batch_norm, f"{F}interpolate": _interpolate,
    f"{F}instance_norm": _plain(f"{F}instance_norm"), f"{F}attention": _attention,
    f"{F}pixel_shuffle": _scalar(f"{F}pixel_shuffle", 1, 2),
}
"""Calls on floats of rank 3 and 4."""

ANY: Final[dict[str, Row]] = {
    **{path: _plain(path) for path in _ANY},
    **{path: _pair(path) for path in ("torch.maximum", "torch.minimum")},
    **{path: _pair(path) for path in ("torch.eq", "torch.lt", "torch.ge")},
    **{path: _pair_or_scalar(path, 2, 0.5, -1.25) for path in ("torch.add", "torch.mul", "torch.sub")},
    **{path: _reduced(path) for path in ("torch.sum", "torch.prod", "torch.amax", "torch.amin", "torch.argmax", "torch.any", "torch.all", "torch.count_nonzero")},
    "torch.reshape": _reshape, "torch.narrow": _slice, "torch.permute": lambda d, k, x: call("torch.permute", k, d.random.sample(range(x.ndim), x.ndim)), "torch.cat": _joined("torch.cat"),
    "torch.stack": _joined("torch.stack"), f"{F}pad": _pad, "torch.index_select": _index, "torch.gather": _gather,
    "torch.where": lambda d, k, x: call("torch.where", call("torch.gt", k, d.pick(0, 0.25, -1)), k, d.like(x)),
    "cast": lambda d, k, x: call(f"torch.Tensor.{d.pick(*_CASTS)}", k),
    "in place": lambda d, k, x: call(f"torch.Tensor.{d.pick(*_CHANGES)}", call("torch.clone", k), d.like(x, True)),
    "torch.flip": lambda d, k, x: call("torch.flip", k, [d.axis(x)]),
    "torch.roll": lambda d, k, x: call("torch.roll", k, d.pick(-1, 1, 2), d.axis(x)),
    "torch.unsqueeze": lambda d, k, x: call("torch.unsqueeze", k, d.random.randint(0, x.ndim)),
    "torch.squeeze": _plain("torch.squeeze"), "torch.flatten": _plain("torch.flatten"),
    "torch.transpose": lambda d, k, x: call("torch.transpose", k, d.axis(x), d.axis(x)),
    "torch.tile": lambda d, k, x: call("torch.tile", k, [d.pick(1, 2)]),
    "torch.repeat_interleave": lambda d, k, x: call("torch.repeat_interleave", k, 2, dim=d.axis(x)),
    "torch.clamp": lambda d, k, x: call("torch.clamp", k, min=-1, max=d.pick(1, 2)),
    "torch.tril": _scalar("torch.tril", -1, 0, 1), "torch.triu": _scalar("torch.triu", -1, 0, 1),
    "torch.diagonal": _plain("torch.diagonal"), "torch.Tensor.expand": lambda d, k, x: call("torch.Tensor.expand", k, d.pick(2, 1), *x.shape),
    "torch.sort": _at_axis("torch.sort"), "torch.topk": _at_axis("torch.topk", 1), "torch.chunk": _at_axis("torch.chunk", 2),
    "torch.unbind": _at_axis("torch.unbind"), "torch.cummax": _at_axis("torch.cummax"),
    "torch.masked_fill": lambda d, k, x: call("torch.masked_fill", k, call("torch.lt", k, 0), d.pick(0, 1)),
    "torch.full_like": _scalar("torch.full_like", 1, 2), "torch.ones_like": _plain("torch.ones_like"),
}
"""Calls on tensors of any dtype."""
# fmt: on

POINTWISE: Final = {
    *_FLOATS, *_JUMPS, "torch.atan2", "torch.div", "torch.fmod", "torch.remainder", "torch.hypot",
    "torch.logaddexp", "torch.pow", "torch.lerp", "torch.argsort", "torch.gt",
    *[f"torch.Tensor.{name}" for name in (*_CASTS, *_CHANGES)], *ANY,
} - {"torch.sum", "torch.prod"}  # fmt: skip
"""Calls that add up no elements: each is rounded by itself, or only moved."""

LIBRARY: Final = {
    *_FLOATS, "torch.atan2", "torch.pow", "torch.hypot", "torch.logaddexp",
} - {"torch.sqrt", "torch.reciprocal", f"{F}relu6", f"{F}hardtanh", f"{F}leaky_relu"}  # fmt: skip
"""Those among them whose last digit is the affair of a mathematical library."""


def rows_for(x: Tensor) -> dict[str, Row]:
    """The rows of a tensor."""
    if not x.dtype.is_floating_point:
        return ANY
    if x.ndim in (3, 4) and 0 not in x.shape:
        return {**ANY, **FLOATS, **IMAGES, **{f"{name} ": row for name, row in IMAGES.items()}}
    return {**ANY, **FLOATS}
