"""Sending a working directory to all hosts of a job (``--ship``)."""
