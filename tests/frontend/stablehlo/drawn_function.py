"""Functions of JAX drawn by seed: one to three steps from a table of jnp, lax and nn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

Step = Callable[[Any], Any]


def conv(x: Any, **named: Any) -> Any:
    """A convolution of x, (rows, columns), as one image of one channel."""
    kernel = jnp.sin(jnp.arange(18.0)).reshape(2, 1, 3, 3)
    y = lax.conv_general_dilated(x[None, None], kernel, **named)
    return y.reshape(-1, y.shape[-1])


def scanned(x: Any) -> Any:
    last, all_ = lax.scan(lambda c, row: (c * 0.5 + row, jnp.tanh(c)), jnp.zeros(x.shape[1]), x)
    return all_ + last


def loop(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, y: y * 0.5 + i, x)


def until(x: Any) -> Any:
    return lax.while_loop(
        lambda c: c[1].sum() < 50, lambda c: (c[0] + 1, c[1] + 1), (0, nn.relu(x))
    )[1]


def pool_gradient(x: Any) -> Any:
    def pooled(y: Any) -> Any:
        return (lax.reduce_window(y, -jnp.inf, lax.max, (2, 2), (2, 1), "SAME") ** 2).sum()

    return jax.grad(pooled)(x)


def positive(x: Any) -> Any:
    return jnp.abs(x) + 0.5


def bits(x: Any) -> Any:
    return (x * 16).astype(jnp.int32)


ELEMENTWISE: tuple[Step, ...] = (
    jnp.sin, jnp.cos, jnp.tanh, jnp.exp, jnp.expm1, jnp.abs, jnp.square, jnp.sign, jnp.floor,
    jnp.ceil, jnp.round, jnp.trunc, jnp.cbrt, jnp.arctan, jnp.sinh, jnp.arcsinh, jnp.negative,
    jnp.isnan, jnp.isfinite, jnp.reciprocal, jnp.exp2, jnp.sinc, jnp.deg2rad, jnp.nan_to_num,
    jnp.logical_not, jnp.signbit, jnp.cosh, jnp.tan, jnp.fabs, jnp.rint, jnp.degrees,
    nn.relu, nn.gelu, nn.silu, nn.sigmoid, nn.softplus, nn.elu, nn.leaky_relu, nn.selu, nn.celu,
    nn.soft_sign, nn.hard_tanh, nn.hard_swish, nn.relu6, nn.log_sigmoid, nn.hard_sigmoid, nn.mish,
    partial(nn.gelu, approximate=False), lax.erf, lax.erfc, lax.logistic, lax.is_finite,
    lambda x: jnp.log(positive(x)), lambda x: jnp.log1p(positive(x)),
    lambda x: jnp.sqrt(positive(x)), lambda x: lax.rsqrt(positive(x)),
    lambda x: jnp.log2(positive(x)), lambda x: lax.lgamma(positive(x)),
    lambda x: lax.digamma(positive(x)), lambda x: jnp.arccosh(positive(x) + 1),
    lambda x: jnp.arctanh(jnp.tanh(x) * 0.9), lambda x: jnp.arcsin(jnp.sin(x) * 0.9),
    lambda x: lax.erf_inv(jnp.tanh(x) * 0.9), lambda x: jnp.arctan2(x, positive(x)),
    lambda x: positive(x) ** 1.5, lambda x: x**3, lambda x: jnp.hypot(x, 1.0),
    lambda x: jnp.fmod(x, 0.7), lambda x: jnp.mod(x, 0.7), lambda x: jnp.floor_divide(x, 0.3),
    lambda x: jnp.clip(x, -0.5, 0.5), lambda x: jnp.where(x > 0, x, x * x),
    lambda x: jnp.heaviside(x, 0.5), lambda x: jnp.logaddexp(x, x * 2),
    lambda x: jnp.maximum(x, x[::-1]), lambda x: jnp.copysign(x, -x), lambda x: lax.nextafter(x, x + 1),
    lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    lambda x: lax.reduce_precision(x, 8, 7), lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
    lambda x: x.astype(jnp.float16).astype(jnp.float32), lambda x: x.astype(jnp.int8),
    lambda x: bits(x) >> 1, lambda x: bits(x) << 2, lambda x: bits(x) & 6, lambda x: bits(x) ^ 5,
    lambda x: ~bits(x), lambda x: bits(x) // 3, lambda x: bits(x) % 5, lambda x: lax.population_count(bits(x)),
    lambda x: lax.clz(bits(x)), lambda x: lax.shift_right_logical(bits(x), 3),
    lambda x: lax.bitcast_convert_type(x, jnp.int32), lambda x: bits(x) ** 2, lambda x: jnp.gcd(bits(x), 12),
    lambda x: (x > 0) | (x < -1), lambda x: (x > 0) ^ (x < 1), lambda x: bits(x).astype(jnp.uint8),
    lambda x: jnp.ldexp(x, 2), jnp.spacing, lambda x: jnp.float_power(positive(x), 0.3),
    lambda x: jnp.frexp(x)[0], lambda x: jnp.isclose(x, x + 1e-9), lambda x: jnp.divmod(x, 0.4)[0],
)  # fmt: skip

SHAPED: tuple[Step, ...] = (
    jnp.transpose, jnp.ravel, jnp.flipud, jnp.fliplr, jnp.rot90, jnp.triu, jnp.tril, jnp.diagonal,
    jnp.atleast_3d, jnp.cumsum, jnp.squeeze, jnp.unwrap,
    lambda x: jnp.cumsum(x, axis=0), lambda x: jnp.cumprod(x, axis=1), lambda x: jnp.sort(x, axis=0),
    lambda x: lax.cummax(x, axis=1), lambda x: lax.cummin(x, axis=0, reverse=True),
    lambda x: lax.cumlogsumexp(x, axis=0), lambda x: jnp.argsort(x, axis=1),
    lambda x: jnp.argsort(x, axis=0, descending=True), lambda x: jnp.flip(x, 1),
    lambda x: jnp.roll(x, 2, axis=1), lambda x: jnp.roll(x, (1, -1), axis=(0, 1)),
    lambda x: jnp.repeat(x, 2, axis=0), lambda x: jnp.tile(x, (2, 1)), lambda x: jnp.pad(x, 1),
    lambda x: jnp.pad(x, ((1, 0), (0, 2)), mode="edge"), lambda x: jnp.pad(x, 1, mode="reflect"),
    lambda x: lax.pad(x, 0.5, ((1, -1, 1), (0, 2, 0))), lambda x: x[1:, ::2], lambda x: x[..., None],
    lambda x: x[:, jnp.array([1, 0, -1])], lambda x: x[jnp.array([[0, 1], [1, 0]])],
    lambda x: x[jnp.array([0, 1]), jnp.array([1, 0])], lambda x: x.at[0].set(7.0),
    lambda x: x.at[:, 1].add(x[:, 0]), lambda x: x.at[jnp.array([0, 0]), 1].multiply(2.0),
    lambda x: x.at[jnp.array([1, 0])].max(0.2), lambda x: x.at[5, 5].set(1.0, mode="drop"),
    lambda x: jnp.take(x, jnp.array([5, 0]), axis=0, mode="clip"), lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    lambda x: lax.dynamic_slice(x, (bits(x)[0, 0], 1), (1, 2)),
    lambda x: lax.dynamic_update_slice(x, x[:1, :2], (bits(x)[0, 0], 0)),
    lambda x: lax.dynamic_index_in_dim(x, bits(x)[0, 1], 1), lambda x: lax.top_k(x, 2)[0],
    lambda x: lax.top_k(x, 2)[1], lambda x: jnp.concatenate([x, x * 2], axis=1),
    lambda x: jnp.stack([x, -x]), lambda x: jnp.split(x, 1)[0], lambda x: jnp.broadcast_to(x, (2, *x.shape)),
    lambda x: jnp.lexsort((x[0], bits(x)[1] // 8)), lambda x: lax.sort((bits(x), x), num_keys=2)[1],
    lambda x: jnp.searchsorted(jnp.sort(x.ravel()), 0.1), lambda x: jnp.digitize(x, jnp.array([-1.0, 0, 1])),
    lambda x: jnp.diff(x, axis=1), lambda x: jnp.gradient(x, axis=1), lambda x: jnp.convolve(x[0], jnp.array([1.0, 2.0])),
    lambda x: jnp.interp(x, jnp.array([-1.0, 0, 1]), jnp.array([0.0, 1, 4])), lambda x: jnp.select([x > 1, x > 0], [x, 2 * x], 0),
    lambda x: jnp.meshgrid(x[0], x[:, 0])[1], lambda x: jnp.outer(x[0], x[1]), lambda x: jnp.kron(x, jnp.eye(2)),
    lambda x: lax.rev(x, (0, 1)), lambda x: jnp.insert(x, 1, 0.0, axis=0), lambda x: jnp.delete(x, 0, axis=1),
    lambda x: jnp.append(x, x[:1], axis=0), lambda x: jnp.block([[x, x], [x, x]]), lambda x: jnp.moveaxis(x, 0, 1),
    lambda x: lax.broadcasted_iota(jnp.int32, x.shape, 1) + x, lambda x: jnp.indices(x.shape)[0] * x,
    lambda x: jnp.rollaxis(x, 1), lambda x: jnp.diag(x[0]), lambda x: jnp.fill_diagonal(x, 3.0, inplace=False),
    lambda x: jnp.bincount(jnp.clip(bits(x.ravel()), 0, 5), length=6), lambda x: jnp.piecewise(x, [x < 0], [lambda y: -y, lambda y: y]),
    lambda x: jnp.unique(bits(x), size=4), lambda x: jnp.nonzero(x > 0, size=3)[0], lambda x: jnp.histogram(x, 4, (-2.0, 2.0))[0],
    lambda x: nn.one_hot(jnp.clip(bits(x), 0, 3), 4), lambda x: x[::-1],
)  # fmt: skip

REDUCING: tuple[Step, ...] = (
    jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.prod, jnp.std, jnp.var, jnp.all, jnp.any, jnp.ptp,
    jnp.argmax, jnp.argmin, jnp.median, jnp.count_nonzero, jnp.nansum, jnp.nanmax, jnp.trace,
    lambda x: jnp.sum(x, axis=0), lambda x: jnp.mean(x, axis=1, keepdims=True), lambda x: jnp.max(x, axis=1),
    lambda x: jnp.argmax(x, axis=1), lambda x: jnp.argmin(x, axis=0), lambda x: jnp.var(x, axis=0, ddof=1),
    lambda x: jnp.linalg.norm(x, axis=1), lambda x: jnp.quantile(x, 0.3, axis=1), lambda x: jnp.percentile(x, 70.0),
    lambda x: jnp.average(x, axis=0, weights=positive(x)), lambda x: nn.logsumexp(x, axis=1), jnp.cov,
    jnp.corrcoef, lambda x: lax.reduce(x, -jnp.inf, lax.max, (1,)), lambda x: jnp.bitwise_and.reduce(bits(x), axis=0),
    lambda x: lax.reduce(bits(x), 0, lax.bitwise_xor, (0,)), lambda x: x.sum(1),
    lambda x: lax.reduce((x, x + 1), (0.0, 0.0), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (1,))[1],
    lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 2), "VALID"), lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 1), "SAME"),
    lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 2), (1, 1), ((0, 0), (1, 1)), window_dilation=(1, 2)), pool_gradient,
    lambda x: lax.associative_scan(jnp.maximum, x, axis=1), lambda x: jax.ops.segment_sum(x[0], jnp.arange(x.shape[1]) // 2, 3),
)  # fmt: skip

PRODUCTS: tuple[Step, ...] = (
    lambda x: x @ x.T, lambda x: jnp.dot(x[0], x[1]), lambda x: jnp.einsum("ij,kj->ik", x, x), lambda x: jnp.vdot(x, x),
    lambda x: jnp.tensordot(x, x, axes=((1,), (1,))), lambda x: jnp.einsum("ij,ij->j", x, x), lambda x: jnp.inner(x, x),
    lambda x: jax.vmap(jnp.outer)(x, x), lambda x: lax.dot_general(bits(x), bits(x), (((1,), (1,)), ((), ()))),
    lambda x: jnp.matmul(x.astype(jnp.bfloat16), x.T.astype(jnp.bfloat16), preferred_element_type=jnp.float32),
    lambda x: jnp.cross(x[:, :3], x[:, :3] + 1), nn.softmax, lambda x: nn.log_softmax(x, axis=0), nn.standardize,
    lambda x: nn.glu(x[:, :2]), jax.vmap(lambda r: r * r.sum()), partial(conv, window_strides=(1, 1), padding="SAME"),
    partial(conv, window_strides=(2, 1), padding="SAME"), partial(conv, window_strides=(1, 1), padding=((2, 1), (1, 2)), lhs_dilation=(2, 1)),
    partial(conv, window_strides=(1, 1), padding="SAME", rhs_dilation=(1, 2)), jax.grad(lambda y: (conv(y, window_strides=(2, 2), padding="SAME") ** 2).sum()),
    jax.grad(lambda y: nn.softmax(y)[:, 0].sum()), lambda x: jax.jacfwd(jnp.tanh)(x[0]), jax.grad(lambda y: jnp.sort(y, 1)[:, 0].sum()),
    lambda x: lax.conv_transpose(x[None, :, :, None], jnp.ones((2, 2, 1, 1)), (2, 2), "SAME")[0, :, :, 0], scanned, loop, until,
    lambda x: lax.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, x), lambda x: lax.switch(bits(x)[0, 0] % 3, [jnp.sin, jnp.cos, jnp.exp], x),
    lambda x: lax.map(lambda r: r * 2 + r[0], x), jax.checkpoint(jnp.sin), lambda x: lax.stop_gradient(x) + 1,
    lambda x: jax.random.uniform(jax.random.key(1), x.shape) + x, lambda x: jax.random.normal(jax.random.key(2), x.shape) * x,
    lambda x: jax.random.permutation(jax.random.key(3), 6), lambda x: jax.random.bernoulli(jax.random.key(4), 0.5, x.shape),
    lambda x: jnp.polyval(jnp.array([1.0, -2, 3]), x),
    lambda x: jnp.abs(jnp.fft.rfft(jnp.concatenate([x, x], 1)[:, :4])), lambda x: jnp.fft.ifft(jnp.fft.fft(x[:, :2])).real, lambda x: jnp.fft.irfft(jnp.fft.rfft(x[:, :2]), 2),
    lambda x: jnp.abs(x + 1j * x) * 2, lambda x: ((x + 2j) * (x - 1j) / (x + 1j)).imag, lambda x: jnp.exp(1j * x).real,
)  # fmt: skip

TABLE: tuple[tuple[Step, ...], ...] = (ELEMENTWISE, SHAPED, REDUCING, PRODUCTS)


def as_matrix(x: Any) -> Any:
    """What a step gives, as the floats of a matrix that the next one takes."""
    y = x.astype(jnp.float32)
    return jnp.resize(y, (4, 6)) if y.shape != (4, 6) else y


def drawn(seed: int) -> tuple[Step, np.ndarray[Any, Any]]:
    """A function of a matrix of floats, and such a matrix."""
    random = Random(seed)
    steps = [random.choice(random.choice(TABLE)) for _ in range(random.choice((1, 1, 2, 3)))]
    data = np.random.default_rng(seed).standard_normal((4, 6)).astype(np.float32)

    def function(x: Any) -> Any:
        for number, step in enumerate(steps):
            x = step(as_matrix(x) if number else x)
        return x

    return function, data


# ruff: noqa: E501  # a table
