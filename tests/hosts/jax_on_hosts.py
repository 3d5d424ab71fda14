"""A JAX program over several hosts: a psum over all of them, then it waits in its first life, so that a rank can be killed there.

``python -m tests.hosts.jax_on_hosts FOLDER``: ``summed-RANK-LIFE`` in the folder has what the rank got.
"""

import os
import sys
import threading
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import penstock.jax

LIMIT_S = 120.0


def main(folder: Path) -> None:
    """The program."""
    penstock.jax.initialize(timeout_s=60)
    mesh = Mesh(np.array(jax.devices()), ("hosts",))
    over_hosts = PartitionSpec("hosts")
    own = np.array([10.0 ** jax.process_index()])
    each = jax.make_array_from_process_local_data(NamedSharding(mesh, over_hosts), own)
    summed = jax.shard_map(
        lambda value: jax.lax.psum(value, "hosts"), mesh=mesh, in_specs=over_hosts, out_specs=PartitionSpec()
    )
    total = float(jax.jit(summed)(each)[0])
    life = os.environ["PENSTOCK_INCARNATION"]
    words = f"{total:g} of {jax.process_count()} processes at {os.environ['JAX_COORDINATOR_ADDRESS']}"
    (folder / f"summed-{jax.process_index()}-{life}").write_text(words)
    if life == "0":
        threading.Event().wait(LIMIT_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
