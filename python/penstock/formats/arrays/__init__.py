"""Arrays: a row is the same index of the first axis of every array of a file."""
