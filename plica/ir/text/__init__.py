"""text: both languages as Python source, printed and read."""
