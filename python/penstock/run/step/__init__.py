"""What happens around one step: generators, phases, notices, verdicts of all ranks, saves."""
