"""JAX: batches as global arrays over a mesh, made from the rows of each process; pytrees for checkpoints."""

from penstock.jax.batch import Batch
from penstock.jax.initialize import initialize
from penstock.jax.jaxpr_flops import Flops, flops
from penstock.jax.lane import lane_of
from penstock.jax.loader import Loader, loader
from penstock.jax.own_loop import ObservedLoop, observed
from penstock.jax.state import State, state

__all__ = [
    "Batch",
    "Flops",
    "Loader",
    "ObservedLoop",
    "State",
    "flops",
    "initialize",
    "lane_of",
    "loader",
    "observed",
    "state",
]
