"""Tests of plica.training."""
