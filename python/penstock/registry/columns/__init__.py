"""Measured columns: one value per row of a version, kept by what produced them."""
