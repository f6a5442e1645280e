"""micro: models as programs for microcontrollers without an operating system, from plain C."""
