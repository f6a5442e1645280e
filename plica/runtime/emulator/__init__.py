"""emulator: code for a GPU, run on a processor."""
