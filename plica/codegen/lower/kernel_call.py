"""Kernel calls: user-written loop programs, launched by the graph that calls them.

The argument types determine its dims. Its loops are compiled unchanged: a hand-written schedule is
kept. Its defects are refused here, before anything is emitted: stores out of bounds, races between
parallel iterations.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.type.term import tensor
>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.type.dim import dim_var
>>> n = dim_var("n")
>>> x, y, i = buffer("x", (n,), f32), buffer("y", (n,), f32), axis("i")
>>> double = Kernel((n,), (x, y), 1, For(i, n, "serial", Store(y, (i,), x[i] * 2)))
>>> known_at(double, (tensor((4,), "f32"),)).dims
()
>>> problems(double), all_written(double) is double
((), True)

Laws: `known_at` preserves the kernel's meaning; `all_written(all_written(k)) is all_written(k)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from attrs import evolve

from plica.analysis.statement_coverage import covered
from plica.codegen.lower.blocks import blocks_to_loops
from plica.codegen.lower.extern_call import called_symbol, extern_kernel
from plica.core import Name, Term, free_vars, fresh, post_order, substitute
from plica.ir.graph.module import Extern, Module
from plica.ir.loop.scalar import Buffer, Lit, Load, Scalar, ScalarVar
from plica.ir.loop.statement import For, Kernel, Stmt, Store, While, seq, statements
from plica.ir.loop.verify import well_formed
from plica.ir.type import TensorType, Type, i64, known, normal_dim, product, solve
from plica.ir.type.size import type_equations
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.schedule.instruction import Scene
from plica.schedule.launch import unsafe
from plica.schedule.replay import NO_OUTPUTS
from plica.schedule.verify import in_bounds


@lru_cache(maxsize=512)
def called_kernel(of: Kernel | Extern, name: str, types: tuple[Type, ...]) -> Kernel:
    """The meaning of a call of a kernel or an extern for given argument types; the launched kernel
    is its `all_written` form."""
    if isinstance(of, Extern):
        return known_at(extern_kernel(of), types)
    _refuse(name, of)
    return known_at(dense(of), types)


def dense(kernel: Kernel) -> Kernel:
    """The kernel over dense row-major parameters, as programs store values."""
    if not (laid := [param for param in kernel.params if param.strides or param.align]):
        return kernel
    plain = {each: Buffer(each.name, each.shape, each.dtype, each.scope) for each in laid}
    params = tuple([plain.get(param, param) for param in kernel.params])
    body = substitute(kernel.body, plain)
    return evolve(kernel, params=params, body=body)


def check_called(module: Module) -> None:
    """Refuse a module with a kernel that cannot be compiled, whatever the sizes are."""
    for name, value in module.items():
        if isinstance(value, Kernel):
            _refuse(str(name.name), value)


def _refuse(name: str, kernel: Kernel) -> None:
    if wrong := problems(kernel):
        message = f"The kernel {name!r} is not compiled. {wrong[0].message}"
        first = replace(wrong[0], message=message)
        raise UnsupportedError(first, *wrong[1:])


def known_at(kernel: Kernel, types: Sequence[Type]) -> Kernel:
    """The kernel for arguments of these types: its dims are numbers, or terms over the caller's."""
    own = [TensorType(param.shape, param.dtype) for param in kernel.params[: kernel.inputs]]
    pairs = list(zip(own, types, strict=True))
    sizes: dict[Term, Scalar] = {}
    for mine, other in pairs:
        assert isinstance(other, TensorType)  # the call was inferred
        for dim, size in zip(mine.shape, other.shape, strict=True):
            if isinstance(dim, ScalarVar):
                sizes.setdefault(dim, size)
    numbers = solve([equation for pair in pairs for equation in type_equations(*pair, {})])
    sizes |= {dim: Lit(size, i64) for dim, size in numbers.items()}
    if lost := [str(var.name) for var in kernel.dims if var not in sizes]:
        message = f"The types of the arguments do not say what {', '.join(lost)} is."
        hint = "Let every dim of a kernel stand alone on some axis of a buffer that it reads."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
    return _known_at(kernel, tuple(sizes.items())) if kernel.dims else kernel


@lru_cache(maxsize=512)
def _known_at(kernel: Kernel, sizes: tuple[tuple[Term, Scalar], ...]) -> Kernel:
    there: Mapping[Term, Term] = {dim: normal_dim(size) for dim, size in sizes}
    free = {var: None for size in there.values() for var in free_vars(size)}
    dims = tuple(sorted([each for each in free if isinstance(each, ScalarVar)], key=_by_name))
    inner = substitute(evolve(kernel, dims=()), dict(there))
    return evolve(inner, dims=dims)


def _by_name(of: ScalarVar) -> tuple[str, int]:
    return of.name.hint, of.name.index


@lru_cache(maxsize=512)
def problems(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """The defects of a user's kernel, including unproved requirements."""
    if wrong := well_formed(kernel):
        return wrong
    for stmt in statements(kernel.body):
        if isinstance(stmt, While):
            message = "It has a while loop, which code is not made of."
            hint = "Write a for loop with an if inside; plica.interpret runs it as it is."
            return (Diagnostic("unsupported", message, None, "for loops", "while", hint),)
    shared = next((param for param in kernel.params if not _is_apart(param)), None)
    if shared is not None:
        message = f"Elements of the parameter {str(shared.name)!r} are not shown to lie apart."
        hint = "Strides of a parameter step over what is inside: strides(8, 2) of sizes (3, 4)."
        return (Diagnostic("unsupported", message, Place(node=str(shared.name)), suggestion=hint),)
    outside = in_bounds(kernel, checked_reads=True)
    if outside:  # with bindings put in, more is known of what a block is bound to
        outside = in_bounds(blocks_to_loops(kernel), checked_reads=True)
    if outside:
        return outside
    if (meets := unsafe(Scene(kernel, NO_OUTPUTS))) is None:
        return ()
    message = "Loops of the kernel that run at once are not shown to keep apart."
    place = Place(node=meets.where)
    return (Diagnostic("data-race", message, place, meets.expected, meets.found, meets.suggestion),)


def _is_apart(buffer: Buffer) -> bool:
    """Whether no two elements of a buffer are at one place, as far as numbers tell."""
    if all(step is product(buffer.shape[at + 1 :]) for at, step in enumerate(buffer.strides)):
        return True
    sizes = [known(dim) for dim in buffer.shape]
    steps = [known(stride) for stride in buffer.strides]
    reach = 0
    for step, size in sorted(zip(steps, sizes, strict=True), key=lambda each: abs(each[0] or 0)):
        if step is None or size is None or (size > 1 and abs(step) <= reach):
            return False
        reach += (max(size, 1) - 1) * abs(step)
    return True


@lru_cache(maxsize=512)
def all_written(kernel: Kernel, stages: Kernel | None = None) -> Kernel:
    """The kernel with zero initialisation of each output that is not shown to be written before it
    is read, or completely: results never depend on previous memory contents.

    For a scheduled kernel this is checked on its stages, which the schedule preserves.
    """
    if called_symbol(kernel) is not None:
        return kernel  # an extern writes all it gives: that is what its type says
    bare = [kernel.params[at] for at in _unwritten(kernel if stages is None else stages)]
    if not bare:
        return kernel
    return evolve(kernel, body=seq(*[_each(of, kernel, _zeroed) for of in bare], kernel.body))


def _unwritten(kernel: Kernel) -> tuple[int, ...]:
    """The outputs that a kernel is not shown to write, as numbers of parameters."""
    outputs = range(kernel.inputs, len(kernel.params))
    return tuple([at for at in outputs if not _is_written(kernel, kernel.params[at])])


def _is_written(kernel: Kernel, buffer: Buffer) -> bool:
    """Whether every element of an output is written, and before it is read."""
    seen = Buffer(fresh(Name("seen"), _names(kernel)), buffer.shape, buffer.dtype)

    def read(of: Buffer, at: tuple[Scalar, ...]) -> Stmt:
        return Store(seen, at, Load(of, at))

    return covered(seq(kernel.body, _each(buffer, kernel, read)), buffer)


def _zeroed(of: Buffer, at: tuple[Scalar, ...]) -> Stmt:
    return Store(of, at, Lit(of.dtype.numpy.type(0).item(), of.dtype))


def _each(of: Buffer, kernel: Kernel, what: Callable[[Buffer, tuple[Scalar, ...]], Stmt]) -> Stmt:
    """Something done to each element of a buffer."""
    taken = _names(kernel)
    axes = []
    for _ in of.shape:
        axes.append(ScalarVar(fresh(Name("at"), taken), i64))
        taken.add(axes[-1].name)
    body = what(of, tuple(axes))
    for axis, size in reversed(list(zip(axes, of.shape, strict=True))):
        body = For(axis, size, "serial", body)
    return body


def _names(kernel: Kernel) -> set[Name]:
    """The names of all variables and buffers of a kernel."""
    nodes = post_order(kernel)
    return {node.name for node in nodes if isinstance(node, ScalarVar | Buffer)}
