"""Rows: what each ONNX operator is in the graph language, a file for each kind."""
