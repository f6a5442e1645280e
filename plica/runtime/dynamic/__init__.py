"""dynamic: calling compiled programs whose values are objects."""
