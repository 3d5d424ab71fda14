"""Structures cross the border as both sides declare them.

Python declares each as a TypedDict in a stub, Rust as a `structure!` of the same name. ``tests/golden/border.json`` has every
field with its type on either side: a field that one side renames, adds or retypes fails here, and not in the first run that needs it.
``python -m tests.data.test_to_rust`` writes it anew, after both sides have been changed.
"""

import ast
import json
from pathlib import Path

from penstock import _rust

ROOT = Path(__file__).resolve().parents[2]
STUBS = ROOT / "python/penstock/_rust"
SOURCES = ROOT / "crates/penstock-python/src"
GOLDEN = ROOT / "tests/golden/border.json"
#: Rust to Python only, so Rust reads no fields of it.
ANSWERS = {"ScanSummary"}


def typed_dicts() -> dict[str, dict[str, str]]:
    """Every TypedDict of the stubs, with its fields and their Python types."""
    classes = [
        node
        for stub in STUBS.glob("*.pyi")
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] == ["TypedDict"]
    ]
    return {
        node.name: {
            field.target.id: ast.unparse(field.annotation)
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        }
        for node in classes
        if node.name not in ANSWERS
    }


def declared() -> dict[str, dict[str, dict[str, str]]]:
    """What either side declares: structure, field, side, type."""
    sides = {"rust": _rust.structures(), "python": typed_dicts()}
    names = sorted({name for structures in sides.values() for name in structures})
    return {
        name: {
            field: {
                side: structures[name][field]
                for side, structures in sides.items()
                if field in structures.get(name, {})
            }
            for field in sorted(
                {field for structures in sides.values() for field in structures.get(name, {})}
            )
        }
        for name in names
    }


def test_both_sides_declare_the_same_structures() -> None:
    one_sided = [
        f"{name}.{field}: only {side} has it"
        for name, fields in declared().items()
        for field, sides in fields.items()
        if len(sides) == 1
        for side in sides
    ]
    assert one_sided == []


def test_the_border_is_what_the_golden_file_says() -> None:
    assert declared() == json.loads(GOLDEN.read_text())


def test_every_rust_file_has_its_stub() -> None:
    inside = {"error", "lib"}
    rust = {path.stem for path in SOURCES.glob("*.rs")} - inside
    stubs = {path.stem for path in STUBS.glob("*.pyi")} - {"__init__"}
    assert stubs == rust


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(declared(), indent=1) + "\n")
