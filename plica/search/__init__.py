"""search: spaces, features, models of cost, policies, measuring, records, the device pool."""
