"""From live tensors to a checkpoint that exists: capture, write, wait for all ranks, commit, copy to further tiers."""
