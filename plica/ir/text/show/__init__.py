"""show: modules, types and expressions as Python source.

>>> from plica.ir.type.term import tensor
>>> show_type(tensor(("n", 4), "f32"))
'Tensor[("n", 4), f32]'
"""

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = ["Source", "show_expr", "show_kernel", "show_module", "show_type"]

if TYPE_CHECKING:
    from plica.ir.text.show.kernel import show_kernel
    from plica.ir.text.show.module import Source, show_expr, show_module
    from plica.ir.text.show.type import show_type
else:
    lazily(__name__)
