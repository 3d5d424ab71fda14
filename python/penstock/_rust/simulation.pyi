"""Jobs on imagined hosts: the decider of real jobs, over virtual weeks."""

def simulate(plan: str, threads: int) -> str:
    """Live a plan (JSON, as ``penstock.process.simulation.plan`` writes it) through once for each seed; a JSON list of outcomes."""

def simulation_trace(plan: str) -> str:
    """Live a plan through with its first seed; JSON of what a person would have seen: changes of hosts, of the gang, and faults."""
