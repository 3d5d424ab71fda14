"""Packed columns, as views give them to front ends; the form is ``penstock.data.tap.columns``'s, since training loops write it too."""

from penstock.data.tap.columns import MAGIC, pack, unpack

__all__ = ["MAGIC", "pack", "unpack"]
