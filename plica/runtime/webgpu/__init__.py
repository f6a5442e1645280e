"""webgpu: devices of WebGPU, and models that were compiled for them."""
