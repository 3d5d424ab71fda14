"""A rank that reads batches and records steps as a life does, without a framework, until it is ended: ``gang_rank.py STREAM OUT``."""

import os
import sys
from pathlib import Path

import penstock as ps
from penstock.observe.steps.recorder import recorder_of
from penstock.run.step.observation import Observation
from penstock.state.ranks.clock import Clock
from tests.torch.stream import Stream

STEP_S = 0.02


def main(folder: str, out: str) -> None:
    stream, rank = Stream(Path(folder)), int(os.environ["RANK"])
    observed = Observation(recorder_of(Path(out), int(os.environ["PENSTOCK_INCARNATION"]), rank))
    lane = ps.Lane(rank, of=int(os.environ["WORLD_SIZE"]))
    with ps.open(stream.recipe(), registry=stream.registry, lane=lane) as feed:
        for batch in feed:
            observed.begin(batch.step)
            Clock().pause(STEP_S)
            observed.end(batch.step)


if __name__ == "__main__":
    main(*sys.argv[1:])
