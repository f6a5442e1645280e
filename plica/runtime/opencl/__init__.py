"""opencl: devices of OpenCL, and models that were compiled for them."""
