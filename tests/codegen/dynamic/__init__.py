"""Dynamic programs: what compiled code gives is held to the interpreter's word."""
