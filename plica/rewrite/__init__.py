"""rewrite: patterns, rules, strategies, derivations.  To come."""
