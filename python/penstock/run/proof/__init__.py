"""Steps executed again: proofs that a run is bit-equal, single steps replayed, and the first difference named."""
