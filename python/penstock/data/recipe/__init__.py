"""What determines a stream: sources, stages, weights, schedules and skips, as frozen values with a digest."""
