"""dynamic: programs with data, recursion and choices, as routines over counted objects."""
