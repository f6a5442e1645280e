"""Tests of the target `c`."""
