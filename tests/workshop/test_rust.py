"""Crates are compiled once: tests of Rust use what the extension and the agent were built with."""

import subprocess
from pathlib import Path


def features(root: Path, *words: str) -> dict[str, str]:
    """The features with which each crate is compiled."""
    command = ["cargo", "tree", "--locked", "--prefix", "none", "--no-dedupe", "--format", "{p}|{f}", *words]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=120).stdout
    pairs = (line.removesuffix(" (*)").split("|", 1) for line in listed.splitlines() if line)
    return dict(pairs)


def test_no_crate_is_compiled_again_for_the_tests(root: Path) -> None:
    """Goal: `cargo test` begins with our own crates. Method: a feature more, and cargo compiles a crate and all above it anew."""
    built = features(root, "-p", "penstock-python", "-p", "penstock-process", "-e", "normal,build")
    tested = features(root, "--workspace", "-e", "normal,build,dev")
    assert len(built) > 100
    assert {name: tested[name] for name in built} == built


def test_the_wheel_is_built_from_the_same_crates(root: Path) -> None:
    """maturin builds the extension alone, the wheel's agent is built alone: neither has features of its own."""
    both = features(root, "-p", "penstock-python", "-p", "penstock-process", "-e", "normal,build")
    for package in ("penstock-python", "penstock-process"):
        alone = features(root, "-p", package, "-e", "normal,build")
        assert {name: both[name] for name in alone} == alone, package
