"""Tests of the target `webgpu`."""
