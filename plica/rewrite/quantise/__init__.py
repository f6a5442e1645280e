"""Quantisation: networks of floats become networks of bytes, by rules."""
