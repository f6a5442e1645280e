"""dynamic: routines over counted objects become LLVM functions."""
