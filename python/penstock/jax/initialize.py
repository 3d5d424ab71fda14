"""Starting JAX on many hosts: coordinator, number and place of processes, from the variables that ranks have.

JAX finds number and place of its processes by itself only where it knows the engine, and the variables of Slurm or MPI are those of the
agents, of which there is one on each host.
"""

import os
from collections.abc import Mapping, Sequence

import jax

from penstock.errors import UsageError


def initialize(
    *,
    local_device_ids: Sequence[int] | None = None,
    timeout_s: float = 300.0,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Call ``jax.distributed.initialize`` for this rank. A process that is alone needs none, and gets none.

    ``local_device_ids`` are the devices of this process, where it does not have all that it sees.
    """
    texts = {name: environment.get(name, "") for name in ("RANK", "WORLD_SIZE")}
    if not any(texts.values()):
        return
    wrong = next((name for name, text in texts.items() if not text.isdigit()), None)
    if wrong is not None:
        raise UsageError(
            f"{wrong} must be a number, got {texts[wrong]!r}", hint="`penstock run` sets it for every rank"
        )
    rank, ranks = int(texts["RANK"]), int(texts["WORLD_SIZE"])
    if ranks == 1:
        return
    if not 0 <= rank < ranks:
        raise UsageError(f"RANK must be below WORLD_SIZE, got {rank} of {ranks}")
    jax.distributed.initialize(
        coordinator_address=coordinator_address(environment),
        num_processes=ranks,
        process_id=rank,
        local_device_ids=None if local_device_ids is None else list(local_device_ids),
        initialization_timeout=round(timeout_s),
    )


def coordinator_address(environment: Mapping[str, str]) -> str:
    """Where process 0 listens: JAX_COORDINATOR_ADDRESS, else MASTER_ADDR and MASTER_PORT."""
    address = environment.get("JAX_COORDINATOR_ADDRESS", "")
    host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if not address and not (host and port):
        raise UsageError(
            "nothing says where process 0 listens",
            hint="`penstock run` sets JAX_COORDINATOR_ADDRESS, MASTER_ADDR and MASTER_PORT",
        )
    return address or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
