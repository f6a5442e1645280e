"""type: dtypes, dims, types, and their inference."""
