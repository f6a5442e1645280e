"""Tests of the folds that write kernels."""
