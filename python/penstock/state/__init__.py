"""State: checkpoints that are verified, load into any layout, and are saved off the critical path."""

from penstock.state.checkpoint import Checkpoint
from penstock.state.checkpoints import Checkpoints
from penstock.state.log.retention import Best, Keep
from penstock.state.save.capture import Pending
from penstock.state.save.options import Failure

__all__ = ["Best", "Checkpoint", "Checkpoints", "Failure", "Keep", "Pending"]
