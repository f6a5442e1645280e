"""c: kernels and programs as plain C99, single-threaded."""
