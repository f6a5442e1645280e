"""webgpu: kernels as WGSL, which the driver of a GPU compiles where it is."""
