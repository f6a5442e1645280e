"""check: what is known of a rule, found by instances and by proof."""
