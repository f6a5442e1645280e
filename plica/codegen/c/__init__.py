"""c: kernels and programs as plain C99, which any C compiler turns into code for one thread."""
