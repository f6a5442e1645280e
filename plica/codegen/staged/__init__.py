"""Programs whose sizes become known while they run, cut into segments of code for every size."""
