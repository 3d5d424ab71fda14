"""What the driver says of the GPUs of this host: ``nvidia-smi -q -x``, whose form differs between drivers, and /proc where it does not answer.

The XML has everything at once, and what a driver does not know is missing from it, while a query of fields is refused whole when one of them is
unknown. Errors of memory are counted in other places by each generation, so all counters below ``volatile`` whose name says uncorrectable are added.
"""

import os
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree as Tree
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

#: A driver with a lost GPU can keep nvidia-smi for ever, in a state in which no signal ends it.
PATIENCE_S = 10.0
REAP_S = 0.5
TEXT_BYTES_MAX = 8 << 20
GPUS_MAX = 128
_COUNT = re.compile(r"\d+")
_UNCORRECTABLE = re.compile(r"(?:[ds]ram_)?uncorrectable(?:_.+)?")
#: What slows a GPU down because something is wrong with it or around it.
_SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


class GpuFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU."""

    uuid: str
    name: str
    bus: str = ""
    memory_bytes: int = 0
    #: Since the driver was loaded; nothing where the GPU does not count.
    ecc_uncorrected: int | None = None
    #: Memory that is replaced at the next reset, and memory that could not be.
    remap_pending: bool = False
    remap_failed: bool = False
    #: Such as ``hw_thermal_slowdown``.
    slowed_by: tuple[str, ...] = ()
    #: Lanes of its link, and how many it could have.
    link_width: int = 0
    link_width_max: int = 0
    mig: bool = False


class GpuLook(msgspec.Struct, frozen=True, omit_defaults=True):
    """All GPUs of a host, and why they cannot be told where they cannot."""

    gpus: tuple[GpuFacts, ...] = ()
    driver: str = ""
    problem: str = ""


def look_at_gpus(*, patience_s: float = PATIENCE_S, root: Path = Path("/")) -> GpuLook:
    """Ask the driver; without one there are none."""
    program = shutil.which("nvidia-smi")
    devices = list(_listed(root))
    if program is None:
        words = f"{len(devices)} GPUs are there and nvidia-smi is not" if devices else ""
        return GpuLook(driver=_driver(root), problem=words)
    answer = _ask([program, "-q", "-x"], patience_s)
    if isinstance(answer, str):
        return GpuLook(driver=_driver(root), problem=answer)
    look = parsed(answer)
    if len(devices) > len(look.gpus) and not look.problem:
        missing = sorted({uuid for uuid in devices if uuid} - {gpu.uuid for gpu in look.gpus})
        words = f"{len(look.gpus)} of {len(devices)} GPUs answer{': not ' + ', '.join(missing[:4]) if missing else ''}"
        return msgspec.structs.replace(look, problem=words)
    return look


def gpu_uuids(root: Path = Path("/")) -> list[str]:
    """UUIDs of the GPUs as the kernel lists them, which takes no time."""
    return sorted(uuid for uuid in _listed(root) if uuid)


def parsed(text: bytes) -> GpuLook:
    """The document, of any driver."""
    try:
        # The document is of a program of this host, and is parsed without its DTD.
        document = Tree.fromstring(text)  # noqa: S314
    except Tree.ParseError:
        first = text.decode(errors="replace").strip().partition("\n")[0]
        return GpuLook(problem=f"nvidia-smi said: {first[:200]}" if first else "nvidia-smi said nothing")
    gpus = tuple(_gpu(gpu) for gpu in document.findall("gpu")[:GPUS_MAX])
    attached = _number(_text(document, "attached_gpus"))
    lost = [gpu.bus for gpu in gpus if not gpu.uuid]
    problem = ""
    if lost:
        problem = f"GPU {', '.join(lost[:4])} does not say which it is"
    elif attached is not None and attached > len(gpus):
        problem = f"{len(gpus)} of {attached} GPUs answer"
    return GpuLook(gpus, _text(document, "driver_version"), problem)


def _gpu(gpu: Tree.Element) -> GpuFacts:
    uuid = _text(gpu, "uuid")
    volatile = gpu.find("ecc_errors/volatile")
    rows, retired = gpu.find("remapped_rows"), gpu.find("retired_pages")
    width = gpu.find("pci/pci_gpu_link_info/link_widths")
    reasons = [element for element in gpu.iter() if element.tag.startswith("clocks_")]
    slowed = [
        word
        for word in _SLOWDOWNS
        if any(one.tag.endswith(f"reason_{word}") and (one.text or "").strip() == "Active" for one in reasons)
    ]
    megabytes = _number(_text(gpu, "fb_memory_usage/total")) or 0
    return GpuFacts(
        uuid=uuid if uuid.startswith(("GPU-", "MIG-")) else "",
        name=_text(gpu, "product_name"),
        bus=_text(gpu, "pci/pci_bus_id") or gpu.get("id", ""),
        memory_bytes=megabytes << 20,
        ecc_uncorrected=None if volatile is None else _uncorrected(volatile),
        remap_pending="Yes"
        in (
            _text(rows, "remapped_row_pending"),
            _text(retired, "pending_retirement"),
            _text(retired, "pending_blacklist"),
        ),
        remap_failed=_text(rows, "remapped_row_failure") == "Yes",
        slowed_by=tuple(slowed),
        link_width=_number(_text(width, "current_link_width")) or 0,
        link_width_max=_number(_text(width, "max_link_width")) or 0,
        mig=_text(gpu, "mig_mode/current_mig") == "Enabled",
    )


def _uncorrected(volatile: Tree.Element) -> int | None:
    """``double_bit/total`` before Ampere, ``dram_uncorrectable`` and several of SRAM since; none where nothing is counted."""
    total = _number(_text(volatile, "double_bit/total"))
    counts = [] if total is None else [total]
    counts += [
        count
        for one in volatile.iter()
        if _UNCORRECTABLE.fullmatch(one.tag) and (count := _number(one.text or "")) is not None
    ]
    return sum(counts) if counts else None


def _text(element: Tree.Element | None, path: str) -> str:
    content = None if element is None else element.findtext(path)
    return (content or "").strip()


def _number(text: str) -> int | None:
    match = _COUNT.match(text.strip())
    return int(match[0]) if match else None


def _listed(root: Path) -> Iterator[str]:
    """A UUID, or an empty text, for each GPU that the kernel's driver lists and that this process may use.

    An engine that gives a job some of the GPUs forbids the devices of the others, which is seen without opening any.
    """
    folder = root / "proc/driver/nvidia/gpus"
    try:
        cards = sorted(folder.iterdir())
    except OSError:
        return
    for card in cards[:GPUS_MAX]:
        try:
            text = (card / "information").read_text(errors="replace")
        except OSError:
            text = ""
        minor = re.search(r"^Device Minor:\s*(\d+)\s*$", text, re.MULTILINE)
        if minor and not os.access(root / f"dev/nvidia{minor[1]}", os.R_OK | os.W_OK):
            continue
        match = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", text, re.MULTILINE)
        yield match[1] if match else ""


def _driver(root: Path) -> str:
    try:
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return ""
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else ""


def _ask(words: list[str], patience_s: float) -> bytes | str:
    """What a program writes, or why it does not. One that no signal ends is left behind."""
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as problem:
        return f"nvidia-smi cannot be started: {problem.strerror}"
    try:
        output, _ = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(REAP_S)
        assert process.stdout is not None
        process.stdout.close()
        return f"nvidia-smi does not answer within {patience_s:g} s"
    if process.returncode != 0 and b"<nvidia_smi_log" not in output:
        said = output.decode(errors="replace").strip().partition("\n")[0][:200]
        return f"nvidia-smi said: {said}" if said else f"nvidia-smi ended with {process.returncode}"
    return output[:TEXT_BYTES_MAX]
