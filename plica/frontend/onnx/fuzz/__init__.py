"""fuzz: random ONNX models, held against onnxruntime."""

from plica.frontend.onnx.fuzz.case import Case, random_case
from plica.frontend.onnx.fuzz.run import Finding, Report, fuzz

__all__ = ["Case", "Finding", "Report", "fuzz", "random_case"]
