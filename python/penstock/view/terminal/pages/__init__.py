"""Pages: one thing to look at each."""
