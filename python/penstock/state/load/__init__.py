"""From a checkpoint to a live tree: find it, fit it to what is there, read it once on a host, go around damage."""
