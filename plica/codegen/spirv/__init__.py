"""spirv: kernels as SPIR-V, for drivers that take modules instead of text."""
