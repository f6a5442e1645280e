"""Programs in segments: sizes that become known on the way, and the code that waits for them."""
