"""Commands about jobs: run, jobs, ps, logs, stop."""
