"""accel: machines declared as data, and what follows from a declaration."""
