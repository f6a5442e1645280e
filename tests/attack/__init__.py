"""Attacks from the documentation alone: each is refused by a code, or gives what is meant."""
