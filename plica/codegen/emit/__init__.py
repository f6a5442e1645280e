"""emit: the folds that write kernels as text, and the tables (dialects) by which targets differ."""
