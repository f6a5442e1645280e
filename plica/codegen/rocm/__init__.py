"""rocm: kernels as HIP C++, for GPUs of AMD's that are elsewhere."""
