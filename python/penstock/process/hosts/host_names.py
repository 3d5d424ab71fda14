"""Names of hosts as people and engines write them: lists, patterns such as ``gpu[01-64]``, and MPI host files.

Patterns are Slurm's, so a node list of Slurm is read by the same function and ``scontrol`` is not needed. Everything here is pure but for
the reading of a host file.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors.process import HostsInvalid

#: More than any list that a person means; a pattern such as ``n[0-9999999]`` is a slip.
HOSTS_MAX = 100_000
SLOTS_MAX = 4096
FILE_BYTES_MAX = 16 << 20
_NAME = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
#: An address of IPv6 before the slots of a line; without slots it needs no brackets.
_BRACKETED = re.compile(r"(?P<name>(?:[^@\s]+@)?\[[0-9A-Fa-f:.]+\])(?::(?P<slots>\w+))?")
#: What mpirun of one kind or another says of a host beside its slots, and what has no meaning here.
_UNUSED_FIELDS = ("max_slots", "max-slots", "sockets", "cores", "binding", "ifhn", "maxcpu")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class NamedHost:
    """A host of a list: what ssh or an engine calls it."""

    name: str
    #: Ranks that it takes, where a host file says so.
    slots: int = 0
    #: What it shares with its neighbours: a switch, a power supply. Empty: not known.
    rack: str = ""


def expand(pattern: str, *, option: str = "--hosts") -> list[str]:
    """The names that a list or pattern stands for, in order: ``a,gpu[01-03,7]``."""
    names: list[str] = []
    for part in _parts(pattern, option):
        names += _expanded(part, pattern, option, HOSTS_MAX - len(names))
    if not names:
        raise HostsInvalid(option=option, value=pattern, reason="names no host")
    return names


def read_hosts(value: str, *, option: str = "--hosts") -> list[NamedHost]:
    """What ``--hosts`` means: a list, a pattern, or the path of an MPI host file."""
    if re.fullmatch(r"\s*\d+\s*", value):
        raise HostsInvalid(
            option=option,
            value=value,
            reason="is a number, and names are needed",
            hint=f"a number of hosts is --nnodes {value.strip()}; --hosts takes names, as in a,b or gpu[01-64]",
        )
    if "/" in value or Path(value).is_file():
        return read_host_file(Path(value), option=option)
    hosts = [NamedHost(name) for name in expand(value, option=option)]
    _check_once(hosts, option, value)
    return hosts


def read_host_file(path: Path, *, option: str = "--hostfile") -> list[NamedHost]:
    """Hosts of a file as ``mpirun`` reads it: ``gpu01 slots=8 rack=a``, also ``gpu01:8``."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX)
    except OSError as problem:
        raise HostsInvalid(
            option=option, value=str(path), reason=f"cannot be read: {problem.strerror}"
        ) from problem
    # Editors of another system begin a file with a mark.
    hosts = parse_host_file(content.decode("utf-8-sig", errors="replace"), source=str(path), option=option)
    _check_once(hosts, option, str(path))
    return hosts


def parse_host_file(text: str, *, source: str, option: str = "--hostfile") -> list[NamedHost]:
    """The lines of such a file. A host on several lines that say nothing else has as many slots: PBS and LSF write files like that."""
    hosts: list[NamedHost] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = re.sub(r"\s*=\s*", "=", line.partition("#")[0]).split()
        if not words:
            continue
        pattern, colon_slots = _pattern_and_slots(words[0])
        slots, rack = _fields(words[1:], colon_slots, f"{source}:{number}", option)
        hosts += [NamedHost(name, slots, rack) for name in expand(pattern, option=option)]
    if not hosts:
        raise HostsInvalid(option=option, value=source, reason="names no host")
    return _counted(hosts)


def _pattern_and_slots(word: str) -> tuple[str, str]:
    """``gpu01:8``, ``[fd00::1]:8`` and ``fd00::1``: names, and slots where they are said."""
    if bracketed := _BRACKETED.fullmatch(word):
        return bracketed["name"], bracketed["slots"] or ""
    if _is_ipv6(word.rpartition("@")[2]):
        return word, ""
    pattern, _, slots = word.partition(":")
    return pattern, slots


def _counted(hosts: list[NamedHost]) -> list[NamedHost]:
    """Hosts that are only repeated, each once with the number of its lines as slots."""
    lines = Counter(hosts)
    if len(lines) == len(hosts) or any(host.slots for host in hosts):
        return hosts
    return [replace(host, slots=count) for host, count in lines.items()]


def common_slots(hosts: Sequence[NamedHost], *, option: str = "--hostfile") -> int:
    """Ranks that every host takes; 0 where the list does not say. A job has as many ranks on each of its hosts."""
    counts = {host.slots for host in hosts}
    if len(counts) > 1:
        some = ", ".join(f"{host.name} slots={host.slots}" for host in hosts[:4])
        raise HostsInvalid(
            option=option,
            value=some,
            reason="hosts have different numbers of slots, and a job has as many ranks on every host",
            hint="give --ranks N, or the same slots= on every line",
        )
    return counts.pop() if counts else 0


def in_racks(hosts: Sequence[NamedHost]) -> list[NamedHost]:
    """The hosts so that those of one rack stand together: racks in the order in which they are named first, hosts in theirs."""
    first: dict[str, int] = {}
    for place, host in enumerate(hosts):
        first.setdefault(host.rack, place)
    return sorted(hosts, key=lambda host: first[host.rack])


def _fields(words: Iterable[str], colon_slots: str, where: str, option: str) -> tuple[int, str]:
    slots, rack = colon_slots, ""
    for word in words:
        key, equals, value = word.partition("=")
        if key in ("slots", "cpu") and equals:
            slots = value
        elif key == "rack" and equals:
            rack = value
        elif key in _UNUSED_FIELDS and equals:
            continue
        else:
            raise HostsInvalid(
                option=option,
                value=f"{where}: {word}",
                reason="is not known in a host file",
                hint="a line is NAME slots=N rack=NAME",
            )
    if slots and not (slots.isdigit() and 1 <= int(slots) <= SLOTS_MAX):
        raise HostsInvalid(
            option=option, value=f"{where}: slots={slots}", reason=f"slots must be 1 to {SLOTS_MAX}"
        )
    return int(slots or 0), rack


def _check_once(hosts: Sequence[NamedHost], option: str, value: str) -> None:
    seen: set[str] = set()
    for host in hosts:
        # Names are the same in letters of any size.
        bare = host.name.rpartition("@")[2].lower()
        if bare in seen:
            raise HostsInvalid(
                option=option,
                value=value,
                reason=f"names {bare} twice",
                hint="name each host once; --ranks N starts several ranks on every host",
            )
        seen.add(bare)


def _parts(pattern: str, option: str) -> list[str]:
    """Cut at commas that stand outside of brackets."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(pattern):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            break
        if letter == "," and depth == 0:
            parts.append(pattern[begin:place])
            begin = place + 1
    if depth != 0:
        raise HostsInvalid(
            option=option, value=pattern, reason="has brackets that do not match", hint="as in gpu[01-64]"
        )
    return [part.strip() for part in [*parts, pattern[begin:]] if part.strip()]


def _expanded(part: str, pattern: str, option: str, room: int) -> list[str]:
    """One name, or those of its brackets; the first bracket varies slowest. A dot at the end says that the name is whole."""
    user, at, address = part.rpartition("@")
    if _is_ipv6(bare := address.removeprefix("[").removesuffix("]")):
        return [f"{user}{at}{bare}"]
    part = part.removesuffix(".")
    names = [""]
    for text, ranges in re.findall(r"([^\[\]]*)(?:\[([^\]]*)\])?", part):
        endings = [text] if not ranges else [text + number for number in _numbers(ranges, pattern, option)]
        if len(names) * len(endings) > room:
            raise HostsInvalid(option=option, value=pattern, reason=f"stands for more than {HOSTS_MAX} hosts")
        names = [name + ending for name in names for ending in endings]
    for name in names:
        if not _NAME.fullmatch(name):
            raise HostsInvalid(
                option=option,
                value=pattern,
                reason=f"{name!r} cannot be the name of a host",
                hint="letters, digits, `.`, `_` and `-`, as in gpu01 or user@gpu01",
            )
    return names


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _numbers(ranges: str, pattern: str, option: str) -> list[str]:
    """``01-03,7`` as ``01 02 03 7``: as wide as the first of a range is written."""
    numbers: list[str] = []
    for piece in ranges.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise HostsInvalid(
                option=option,
                value=pattern,
                reason=f"[{ranges}] is not a range of numbers",
                hint="as in [01-64] or [1-3,7]",
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= HOSTS_MAX:
            raise HostsInvalid(option=option, value=pattern, reason=f"stands for more than {HOSTS_MAX} hosts")
        numbers += [f"{number:0{len(match[1])}d}" for number in range(first, last + 1)]
    return numbers
