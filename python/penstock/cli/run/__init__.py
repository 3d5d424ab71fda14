"""``penstock run``: its options, the description of a job that they make, help, and the dry run."""
