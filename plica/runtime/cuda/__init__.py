"""cuda: NVIDIA's GPUs through the driver alone, with ctypes and numpy."""
