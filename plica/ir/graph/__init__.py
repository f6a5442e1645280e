"""graph: the graph language: expressions, operators, modules, and whether they are well formed."""
