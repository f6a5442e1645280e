"""gpu: candidates for GPUs, built here or there, checked and timed in a process of their own."""
