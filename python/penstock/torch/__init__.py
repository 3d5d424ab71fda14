"""PyTorch: batches as tensors on their device, lanes from process groups and meshes, state for checkpoints and runs."""

from penstock.torch.arithmetic.counter import Flops, flops
from penstock.torch.batch import Batch
from penstock.torch.gang import join
from penstock.torch.lane import current_lane, lane_of
from penstock.torch.loader import Loader, loader
from penstock.torch.own_loop import ObservedLoop, observed
from penstock.torch.replication import ddp
from penstock.torch.state import State, state
from penstock.torch.trainer_rows import trainer_callback

__all__ = [
    "Batch",
    "Flops",
    "Loader",
    "ObservedLoop",
    "State",
    "current_lane",
    "ddp",
    "flops",
    "join",
    "lane_of",
    "loader",
    "observed",
    "state",
    "trainer_callback",
]
