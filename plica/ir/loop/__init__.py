"""loop: the tensor language: scalars, tensor expressions, loops and blocks over buffers."""
