"""ir: types, dims, the graph language, the tensor language, operators, syntax, interpreters."""
