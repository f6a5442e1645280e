"""search: spaces, cost models, measuring, records.  To come."""
