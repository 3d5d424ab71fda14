"""PyTorch: batches as tensors on their device, lanes from process groups and meshes, state for checkpoints and runs."""

from penstock.torch.batch import Batch
from penstock.torch.gang import join
from penstock.torch.lane import current_lane, lane_of
from penstock.torch.loader import Loader, loader
from penstock.torch.own_loop import ObservedLoop, observed
from penstock.torch.replication import ddp
from penstock.torch.state import State, state

__all__ = [
    "Batch",
    "Loader",
    "ObservedLoop",
    "State",
    "current_lane",
    "ddp",
    "join",
    "lane_of",
    "loader",
    "observed",
    "state",
]
