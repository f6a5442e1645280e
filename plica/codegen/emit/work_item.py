"""Work items: the launches of a kernel on a device that runs the iterations of an outer loop in
parallel.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> y, i = buffer("y", (4,), f32), axis("i")
>>> body = st.For(i, index(4), "parallel", st.Store(y, (i,), i))
>>> [(each.items, each.var is i) for each in launches_of(st.Kernel((), (y,), 0, body))[0]]
[(4, True)]
"""

from __future__ import annotations

from attrs import frozen

from plica.ir.loop import Buffer, ScalarVar, statement as st
from plica.ir.type import known
from plica.runtime.error import Diagnostic, UnsupportedError


@frozen
class ItemLaunch:
    """The body of each work item; `var` is the item's index."""

    items: int
    var: ScalarVar | None
    body: st.Stmt


def launches_of(kernel: st.Kernel) -> tuple[list[ItemLaunch], list[Buffer]]:
    """The launches of a kernel in their order, and the scratch memory that they share."""
    if kernel.dims:
        message = "Code for a device is made for known sizes; those of this model are open."
        hint = "Give the model its sizes, or compile it for 'cpu'."
        named = ", ".join(str(dim.name) for dim in kernel.dims)
        raise UnsupportedError(Diagnostic("unsupported", message, None, "numbers", named, hint))
    item_launches: list[ItemLaunch] = []
    scratch: list[Buffer] = []
    stack = [kernel.body]
    while stack:
        match stack.pop():
            case st.Seq(stmts):
                stack.extend(reversed(stmts))
            case st.Alloc(buffer, inside) as stmt:
                if _is_parallel(inside):
                    if buffer not in scratch:  # a copy of it comes after: it is needed no longer
                        scratch.append(buffer)
                    stack.append(inside)
                else:
                    item_launches.append(ItemLaunch(1, None, stmt))
            case st.For(var, extent, "parallel", body) if (known(extent) or 0) > 1:
                item_launches.append(ItemLaunch(known(extent) or 1, var, body))
            case stmt:
                item_launches.append(ItemLaunch(1, None, stmt))
    return _joined(item_launches), scratch


def _is_parallel(root: st.Stmt) -> bool:
    return any(isinstance(each, st.For) and each.kind == "parallel" for each in st.statements(root))


def _joined(launches: list[ItemLaunch]) -> list[ItemLaunch]:
    """What one item does after another is one launch."""
    item_launches: list[ItemLaunch] = []
    for launch in launches:
        if item_launches and launch.var is None and item_launches[-1].var is None:
            item_launches[-1] = ItemLaunch(1, None, st.seq(item_launches[-1].body, launch.body))
        else:
            item_launches.append(launch)
    return item_launches
