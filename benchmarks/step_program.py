"""A rank that trains with DDP on gloo until it is ended: after its first step it says which rank of which life it is, in a folder (`MARKS`)."""

import os
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """The program."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    words = [os.environ["PENSTOCK_INCARNATION"], os.environ["RANK"], str(os.getpid())]
    mark = os.path.join(os.environ["MARKS"], "-".join(words))
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        if not os.path.exists(mark):
            open(mark, "w").close()
        # Other ranks of this machine need its processors as well.
        time.sleep(0.02)


if __name__ == "__main__":
    main()
