"""metal: kernels as Metal Shading Language, for GPUs of Apple's that are elsewhere."""
