"""Eras: the order in which the slices of a version are measured and read."""

def slice_order(version: str, slices: int) -> bytes:
    """The slices of a version in the order in which eras take them (u64): fixed for the version, whatever the seed."""
