"""A job before and beside its processes: its description, its directory, how it is found and spoken to."""
