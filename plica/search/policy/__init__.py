"""policy: search policies, as pure functions of the observations."""
