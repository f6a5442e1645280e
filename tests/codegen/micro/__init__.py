"""Tests of microcontrollers as targets."""
