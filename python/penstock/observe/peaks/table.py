"""Makers' figures, from ``peaks.toml``: looked up by exact names, without a fallback."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Peak:
    """What a device can do, in FLOP/s by type, and who says so."""

    device: str
    flops_per_s: Mapping[str, float]
    source: str


@cache
def peaks() -> Mapping[str, Peak]:
    """All devices by name."""
    text = resources.files(__package__).joinpath("peaks.toml").read_text(encoding="utf-8")
    table = {}
    for entry in tomllib.loads(text)["device"]:
        rates = {dtype: teraflops * 1e12 for dtype, teraflops in entry["peaks"].items()}
        for name in entry["names"]:
            table[name] = Peak(name, rates, entry["source"])
    return table


def peak_of(device: str) -> Peak | None:
    """The figures of a device, by exactly this name; None when it is not known, as slices of a device are not."""
    return peaks().get(device)
