"""policy: how a search goes on, as pure functions of what it has seen."""
