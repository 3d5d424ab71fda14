"""JAX: batches as global arrays over a mesh, made from the rows of each process."""

from penstock.jax.batch import Batch
from penstock.jax.lane import lane_of
from penstock.jax.loader import Loader, loader

__all__ = ["Batch", "Loader", "lane_of", "loader"]
