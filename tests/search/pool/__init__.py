"""Tests of plica.search.pool."""
