"""Programs as operations on whole arrays, for formats that have no loops over elements."""
