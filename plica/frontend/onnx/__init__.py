"""onnx: models in ONNX files become modules of the graph language."""

from plica.frontend.onnx.importer import from_onnx
from plica.frontend.onnx.node import NeedsValue

__all__ = ["NeedsValue", "from_onnx"]
