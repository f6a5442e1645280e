"""TFLite: models of LiteRT, read from their flatbuffers."""

from plica.frontend.tflite.importer import from_tflite

__all__ = ["from_tflite"]
