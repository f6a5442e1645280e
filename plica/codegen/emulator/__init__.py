"""emulator: the target of those who write for GPUs and have none."""
