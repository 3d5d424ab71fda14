"""The hosts of a job as screens show them: where each is, and what happened. Of a real job that is asked, or of one that is imagined."""
