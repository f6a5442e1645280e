"""Search on an accelerator: tilings and threads of a layer, by the cycles of its simulator."""
