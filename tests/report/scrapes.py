"""What Prometheus would read: an endpoint asked, its text checked by Prometheus' own tool, and samples by name and labels."""

import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

from penstock.state.ranks.clock import Clock

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scrape(port: int) -> str | None:
    """The text; None where nobody answers. Asked in a loop, it leaves most of the machine to others."""
    Clock().pause(0.1)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def check(text: str) -> None:
    """Prometheus' own tool finds nothing wrong with it: neither its form nor its names."""
    tool = shutil.which("promtool")
    if tool is None:
        raise RuntimeError(
            "promtool is not installed: apt-get install prometheus (`make test` as root does it)"
        )
    verdict = subprocess.run(
        [tool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    assert (verdict.returncode, verdict.stdout + verdict.stderr) == (0, ""), text


def samples_of(text: str) -> Samples:
    """Values by name and labels."""
    samples: Samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _SAMPLE.fullmatch(line)
            assert match is not None, line
            key = (match[1], frozenset(_LABEL.findall(match[2] or "")))
            assert key not in samples, f"{key} is told twice"
            samples[key] = float(match[3])
    return samples


def value(text: str, family: str, /, **labels: str) -> float | None:
    """Of the one sample with these labels and perhaps others."""
    wanted = set(labels.items())
    values = [number for (known, of), number in samples_of(text).items() if known == family and wanted <= of]
    assert len(values) <= 1, (family, labels, values)
    return values[0] if values else None
