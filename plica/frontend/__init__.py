"""frontend: models in, from ONNX and PyTorch.  To come."""
