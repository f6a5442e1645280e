"""mutate: wrong rules made of right ones, to measure how many of them checking refutes."""
