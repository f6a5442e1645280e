"""Tests of plica.search.measure."""
