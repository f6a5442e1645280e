"""show: modules, types and expressions as Python source.

>>> from plica.ir.type import tensor
>>> show_type(tensor(("n", 4), "f32"))
'Tensor[("n", 4), f32]'
"""

from plica.ir.show.kernel import show_kernel
from plica.ir.show.module import Source, show_expr, show_module, show_type

__all__ = ["Source", "show_expr", "show_kernel", "show_module", "show_type"]
