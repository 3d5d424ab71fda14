"""Penstock itself needs no framework: each is imported by its own adapter only."""

import ast
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, penstock
for name in penstock.__all__:
    getattr(penstock, name)
import penstock.cli.main
assert not {"torch", "jax"} & set(sys.modules), sorted(sys.modules)
import penstock.torch
# Its compiler takes long to load, and a process that only reads batches has no use for it.
assert "torch._dynamo" not in sys.modules
"""


def test_importing_penstock_imports_no_framework_and_the_adapter_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


#: Programs that ranks of the demo run; nobody imports them.
PROGRAMS = {"cli/scenes/gpt.py"}


def test_only_its_adapter_imports_a_framework(root: Path) -> None:
    package = root / "python/penstock"
    for path in package.rglob("*.py"):
        if path.relative_to(package).as_posix() in PROGRAMS:
            continue
        home = path.relative_to(package).parts[0]
        assert imported(path) & {"torch", "jax", "flax", "lightning", "accelerate"} <= {home}, path
