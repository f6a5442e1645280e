"""cuda: the fold of lowered kernels into CUDA C++ text, and the compiler for that text."""
