"""PyTorch: batches as tensors on their device, lanes from process groups and meshes."""

from penstock.torch.batch import Batch
from penstock.torch.lane import current_lane, lane_of
from penstock.torch.loader import Loader, loader

__all__ = ["Batch", "Loader", "current_lane", "lane_of", "loader"]
