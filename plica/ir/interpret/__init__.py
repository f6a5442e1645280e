"""interpret: the reference meaning of both languages."""
