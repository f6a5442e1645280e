"""Tests of the target `rocm`."""
