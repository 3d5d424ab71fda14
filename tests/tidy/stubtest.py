"""mypy's stubtest for the extension, whose stubs are a folder: one for each Rust file.

The extension is one module, so stubtest cannot import what the stubs in the folder describe and would check nothing of them.
Here each stub gets a module with those names of the extension that it declares.
"""

import ast
import importlib
import sys
import types
from importlib.util import find_spec
from pathlib import Path

from mypy.stubtest import main


def place_modules(package: str) -> None:
    """A module for each stub below the package, with what the extension has of its names."""
    extension = importlib.import_module(package)
    spec = find_spec(package.rpartition(".")[0])
    assert spec is not None
    assert spec.origin is not None
    for stub in (Path(spec.origin).parent / package.rpartition(".")[2]).glob("*.pyi"):
        if stub.stem == "__init__":
            continue
        module = types.ModuleType(f"{package}.{stub.stem}")
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and hasattr(extension, node.name):
                setattr(module, node.name, getattr(extension, node.name))
        sys.modules[module.__name__] = module


if __name__ == "__main__":
    place_modules(sys.argv[1])
    sys.exit(main())
