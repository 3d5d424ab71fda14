"""State: checkpoints that are verified, load into any layout, and are saved off the critical path."""

from penstock.state.checkpoint import Checkpoint
from penstock.state.checkpoints import Checkpoints
from penstock.state.retention import Best, Keep
from penstock.state.saving import Failure, Pending

__all__ = ["Best", "Checkpoint", "Checkpoints", "Failure", "Keep", "Pending"]
