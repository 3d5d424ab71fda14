"""Packed columns, as views give them to front ends; the form is ``penstock.data.packed``'s, since training loops write it too."""

from penstock.data.packed import MAGIC, pack, unpack

__all__ = ["MAGIC", "pack", "unpack"]
