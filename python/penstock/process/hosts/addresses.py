"""Addresses of this host: which it has, which others reach it at, and whether an endpoint is here."""

import ipaddress
import os
import socket
import struct
import time
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path

from penstock.errors.process import HostUnreachable, InterfaceUnknown

_SIOCGIFADDR = 0x8915
#: Between two looks for a name that is not there yet: names of pods appear when the pods do.
LOOK_S = 0.5
_LOCAL_NAMES = frozenset({"", "localhost", "localhost.localdomain"})


def own_addresses() -> dict[str, list[str]]:
    """Addresses of every interface that has any: IPv4 first, then those of IPv6 that reach further than one link."""
    by_interface: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for _, name in socket.if_nameindex():
            try:
                answer = ioctl(handle, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            by_interface.setdefault(name, []).append(socket.inet_ntoa(answer[20:24]))
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        digits, _, _, _, _, name = line.split()
        address = ipaddress.IPv6Address(int(digits, 16))
        if not address.is_link_local:
            by_interface.setdefault(name, []).append(str(address))
    return by_interface


def is_here(host: str, own: Mapping[str, list[str]], *, nodename: str | None = None) -> bool:
    """Whether a name or address means this host."""
    me = (os.uname().nodename if nodename is None else nodename).lower()
    bare = host.strip("[]").removesuffix(".").lower()
    if bare in _LOCAL_NAMES or bare in (me, me.partition(".")[0]):
        return True
    mine = {address for addresses in own.values() for address in addresses}
    return any(address in mine or is_loopback(address) for address in _resolved(bare))


def is_loopback(address: str) -> bool:
    """Whether no other host can reach it."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether it is an address, and no name that may come to mean another one."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def resolve(host: str, *, timeout_s: float) -> str:
    """The address of a name; waits for names that are not there yet, within the limit."""
    bare = host.strip("[]")
    until = time.monotonic() + timeout_s
    while not (addresses := _resolved(bare)):
        if time.monotonic() >= until:
            raise HostUnreachable(host=bare, reason=f"its name has no address after {timeout_s:g} s")
        time.sleep(min(LOOK_S, max(until - time.monotonic(), 0)))
    return addresses[0]


def address_towards(peer: str, port: int) -> str:
    """Our address on the way to a peer. Nothing is sent."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as handle:
        try:
            handle.connect((peer, port or 9))
        except OSError as problem:
            raise HostUnreachable(
                host=peer, reason=f"no interface leads there: {problem.strerror}"
            ) from problem
        address: str = handle.getsockname()[0]
    return address


def address_of_interface(interface: str, own: Mapping[str, list[str]]) -> str:
    """The address of an interface that somebody chose."""
    if not own.get(interface):
        raise InterfaceUnknown(interface=interface, known=sorted(own))
    return own[interface][0]


def outward_address(own: Mapping[str, list[str]]) -> str:
    """An address that others may reach: on the way out if there is one, else the first that is no loopback, else loopback."""
    try:
        # Of the range for documents (RFC 5737): only the route is looked up.
        return address_towards("192.0.2.1", 9)
    except HostUnreachable:
        every = [address for addresses in own.values() for address in addresses]
        return next((address for address in every if not is_loopback(address)), "127.0.0.1")


def free_port(address: str) -> int:
    """A port that is free on an address now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as handle:
        handle.bind((address, 0))
        port: int = handle.getsockname()[1]
    return port


def joined(address: str, port: int) -> str:
    """``10.0.0.1:29400``, ``[fd00::1]:29400``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _resolved(host: str) -> list[str]:
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    # IPv4 first: what a name means on hosts without a route for IPv6.
    ordered = sorted(entries, key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys(str(entry[4][0]) for entry in ordered))
