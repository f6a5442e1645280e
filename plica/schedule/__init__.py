"""schedule: instructions, traces, replay.  To come."""
