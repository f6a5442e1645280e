"""sketch: schedules with open decisions, made from rules of thumb and from general patterns."""
