"""Rows: what each operation of StableHLO is in terms of Plica's operators, a file a family."""
