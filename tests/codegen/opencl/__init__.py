"""Tests of the target `opencl`."""
