"""gpu: candidates for GPUs, built locally or remotely, checked and timed in a separate process."""
