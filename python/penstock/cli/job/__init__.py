"""Commands about jobs: jobs, ps, top, logs, stacks, save, stop, incident, exec, slots."""
