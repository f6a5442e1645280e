"""Item text: kernels as functions for work items, in languages whose drivers compile text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from plica.codegen.cuda.code import KernelCode, KernelLaunch
from plica.codegen.emit import clike
from plica.codegen.emit.clike import count_of
from plica.codegen.emit.dialect import Dialect
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.identifier import Identifiers
from plica.codegen.emit.lines import Lines
from plica.codegen.emit.statement import Row, write
from plica.codegen.emit.work_item import ItemLaunch, launches_of
from plica.core import Name
from plica.ir.loop import Buffer, For, Kernel, dtype_of


@frozen
class ItemTensor:
    """A parameter of a function: its name, and whether it is read-only."""

    word: str
    buffer: Buffer
    is_constant: bool


@frozen(eq=False)
class ItemWords:
    """A language's text around the statements of an item."""

    dialect: Dialect[Any]  # Any: as all dialects
    number: str
    """The number of an item."""
    reserved: tuple[str, ...]
    """Names of further parameters."""
    loop: Callable[[Expressions, Sequence[Buffer]], Row]
    """How a loop is written, where some buffers are parameters."""
    function: Callable[[str, Sequence[ItemTensor], bool, int, str], str]
    """A function of a name, over tensors which may not overlap, for this many items."""


def item_kernel(kernel: Kernel, name: str, apart: bool, words: ItemWords) -> KernelCode:
    """The functions of a kernel; `apart` says that no two of its buffers overlap."""
    launches, scratch = launches_of(kernel)
    params = (*kernel.params, *scratch)
    texts, functions, used = list[str](), list[KernelLaunch](), set[str]()
    for number, launch in enumerate(launches):
        word = name if len(launches) == 1 else f"{name}_{number}"
        values = Expressions(words.dialect, Lines(1), Identifiers(words.dialect.reserved))
        for other in (word, *words.reserved):
            values.names.of(Name(other), other)
        tensors = [
            ItemTensor(values.names.of(param.name, param), param, apart and at < kernel.inputs)
            for at, param in enumerate(params)
        ]
        values.buffers.update({tensor.buffer: tensor.word for tensor in tensors})
        body = _body(launch, values, words, params)
        texts.append(words.function(word, tensors, apart, launch.items, body))
        functions.append(KernelLaunch(word, (launch.items, 1, 1), (1, 1, 1)))
        used |= values.helpers
    sizes = tuple([count_of(buffer) * buffer.dtype.bytes for buffer in scratch])
    return KernelCode("\n".join(texts), tuple(functions), sizes, frozenset(used))


def _body(
    launch: ItemLaunch, values: Expressions, words: ItemWords, params: Sequence[Buffer]
) -> str:
    """The statements of one item, preceded by the computation of its index."""
    if launch.var is not None:
        values.known.bound(launch.var, (0, launch.items - 1))
        word = values.vars[launch.var] = values.names.of(launch.var.name, launch.var)
        kind = words.dialect.register(dtype_of(launch.var))
        values.lines.do(f"const {kind} {word} = {words.number};")
    write([launch.body], {**clike.rows(values), For: words.loop(values, params)})
    return values.lines.text()
