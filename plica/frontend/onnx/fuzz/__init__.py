"""fuzz: random ONNX models, compared with onnxruntime."""

from plica.frontend.onnx.fuzz.case import ModelCase, random_case
from plica.frontend.onnx.fuzz.run import ModelFinding, fuzz

__all__ = ["ModelCase", "ModelFinding", "fuzz", "random_case"]
