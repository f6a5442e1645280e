"""Lowering: from the graph language to programs of loop nests."""
