"""opencl: kernels as OpenCL C, which the driver of a device compiles where it is."""
