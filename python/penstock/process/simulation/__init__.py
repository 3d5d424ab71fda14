"""Jobs on hosts that do not exist: what spares, leases and save intervals are worth, before anybody pays for them.

The decider, its policies and the states of hosts are those of real jobs (``crates/penstock-process/src/simulate``). Faults come from a
profile of rates; time without events is skipped.
"""

from penstock.process.simulation.fault_profile import Cause, FaultProfile, built_in_profiles, read_profile
from penstock.process.simulation.outcomes import ACCOUNTS, Outcome, Spread, Summary, simulate
from penstock.process.simulation.plan import SimulationPlan
from penstock.process.simulation.save_interval import daly_s, young_s

__all__ = [
    "ACCOUNTS",
    "Cause",
    "FaultProfile",
    "Outcome",
    "SimulationPlan",
    "Spread",
    "Summary",
    "built_in_profiles",
    "daly_s",
    "read_profile",
    "simulate",
    "young_s",
]
