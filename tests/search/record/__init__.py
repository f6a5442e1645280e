"""Tests of plica.search.record."""
