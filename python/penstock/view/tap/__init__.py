"""The live tap: what processes that run now have in their hands. ``tap`` is what a training loop calls to show its own arrays."""

from penstock.data.tap.arrays import tap
from penstock.view.tap.look import compare_taps, shown_view
from penstock.view.tap.reader import TapEntry, Tapped, read_ring, read_tap, rings_in, taps_in

__all__ = [
    "TapEntry",
    "Tapped",
    "compare_taps",
    "read_ring",
    "read_tap",
    "rings_in",
    "shown_view",
    "tap",
    "taps_in",
]
