"""What recorded facts mean, computed once: screens only show it."""
