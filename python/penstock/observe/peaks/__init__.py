"""Peaks: what devices can multiply at most, by their makers' figures and as measured, and what limits this one."""

from penstock.observe.peaks.device import Device, DeviceLimits
from penstock.observe.peaks.table import Peak, peak_of

__all__ = ["Device", "DeviceLimits", "Peak", "peak_of"]
