"""row: the operators of ATen, a file for each kind."""
