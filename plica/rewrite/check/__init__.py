"""check: what tests and proofs show about a rule."""
