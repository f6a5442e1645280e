"""Tests of the target `wasm`."""
