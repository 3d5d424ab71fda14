"""Structures that cross the border as dicts: here they are a ``TypedDict`` each, there a ``structure!``, and both list the same fields."""

def structures() -> dict[str, dict[str, str]]:
    """Every structure that Rust reads, by name, with its fields and their Rust types."""
