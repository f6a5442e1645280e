"""The printer of kernels, under the name it had before it became one of `plica.ir.show`."""

from plica.ir.show import show_kernel

__all__ = ["show_kernel"]
