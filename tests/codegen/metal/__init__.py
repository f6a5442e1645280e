"""Tests of the target `metal`."""
